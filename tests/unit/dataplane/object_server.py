"""A small server that speaks enough of S3, and of what Google's and Azure's stores speak, for reading, listing and
writing objects, and misbehaves when told to."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .object_uploads import BOUNDARY, Query, Uploads, listing

AZURE_ACCOUNT = "devstoreaccount1/"
Misdeed = Callable[[str, bytes], bytes | int | None]


class ObjectServer:
    """Objects by bucket/key. `misdeed(key, body)` may give other bytes, a status code, or None to cut the connection
    in the middle of the body; `pause_s` delays each answer; `requests` counts (method, key). The next `busy_puts` uploads
    are answered with 503. `notes` holds what clients noted with each object."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads = Uploads(self.objects)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.misdeed: Misdeed = lambda _key, body: body
        self.notes: dict[str, dict[str, str]] = {}
        self.pause_s = 0.0
        self.busy_puts = 0
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # otherwise each answer waits 40 ms for an acknowledgement

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                server.enter()
                try:
                    server.get(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    server.leave()

            do_HEAD = do_GET

            def do_PUT(self) -> None:
                key, query, body = asked(self)
                server.requests["PUT", key] += 1
                if server.busy_puts:
                    server.busy_puts -= 1
                    answer(self, 503, b"<Error><Code>SlowDown</Code></Error>")
                    return
                server.note(key, self.headers)
                server.uploads.put(key, query, body)
                self.send_response(201 if key.startswith(AZURE_ACCOUNT) else 200)
                self.send_header("ETag", '"0"')
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_DELETE(self) -> None:
                key, _, _ = asked(self)
                server.objects.pop(key, None)
                self.send_response(202 if key.startswith(AZURE_ACCOUNT) else 204)
                self.end_headers()

            def do_POST(self) -> None:
                key, query, body = asked(self)
                server.note(key, self.headers)
                if query.get("comp") == ["batch"]:
                    told = {"Content-Type": f"multipart/mixed; boundary={BOUNDARY}"}
                    answer(self, 202, server.uploads.batch(body), told)
                else:
                    answer(self, 200, server.uploads.post(key, query, body).encode())

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def enter(self) -> None:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)

    def leave(self) -> None:
        with self._lock:
            self._now -= 1

    def note(self, key: str, headers: Mapping[str, str]) -> None:
        """Keeps what a client notes with an object, under the names that its store has for that."""
        if found := {name.lower(): value for name, value in headers.items() if "-meta-" in name.lower()}:
            self.notes[key] = found

    def gets(self, ending: str) -> int:
        return sum(count for (method, key), count in self.requests.items() if method == "GET" and key.endswith(ending))

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        key, query, _ = asked(handler)
        if "list-type" in query or "comp" in query:
            answer(handler, 200, listing(self.objects, key.strip("/"), query).encode())
            return
        self.requests[handler.command, key] += 1
        time.sleep(self.pause_s)
        body = self.objects.get(key)
        if body is None:
            answer(handler, 404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        size = len(body)
        begin, end = 0, size
        if wanted := handler.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(size, int(last) + 1) if last else size
            body = body[begin:end]
        told = self.misdeed(key, body)
        if isinstance(told, int):
            answer(handler, told, b"<Error><Code>Told</Code></Error>")
            return
        handler.send_response(206 if wanted else 200)
        if wanted:
            handler.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        handler.send_header("Content-Length", str(len(body if told is None else told)))
        handler.send_header("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
        handler.send_header("ETag", '"0"')
        for name, value in self.notes.get(key, {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        if told is None:
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            handler.close_connection = True
            handler.connection.close()
            return
        handler.wfile.write(told)


def asked(handler: BaseHTTPRequestHandler) -> tuple[str, Query, bytes]:
    """The key, the query and the body of a request."""
    split = urlsplit(handler.path)
    body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    return unquote(split.path).lstrip("/"), parse_qs(split.query, keep_blank_values=True), body


def answer(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: Mapping[str, str] = MappingProxyType({})
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)
