"""A store as slow as a distant one: each answer waits, and each connection has a limited rate. Run as a script."""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PIECE = 1 << 18


def handler_of(root: Path, wait_s: float, bytes_per_s: float) -> type[BaseHTTPRequestHandler]:
    """Answers GET and HEAD, with ranges, for the files below `root`, at paths /BUCKET/KEY."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # otherwise an answer's end waits 40 ms for an acknowledgement, as in no store

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            begun = time.perf_counter() + wait_s
            path = root / self.path.partition("?")[0].lstrip("/").partition("/")[2]
            if not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            size = path.stat().st_size
            begin, end = 0, size
            if wanted := self.headers.get("Range"):
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                begin, end = int(first), min(size, int(last) + 1) if last else size
            time.sleep(wait_s)
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - begin))
            self.send_header("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
            self.send_header("ETag", '"0"')
            self.end_headers()
            if self.command == "HEAD":
                return
            with path.open("rb") as file:
                for at in range(begin, end, PIECE):
                    file.seek(at)
                    self.wfile.write(file.read(min(PIECE, end - at)))
                    time.sleep(max(0.0, begun + (at - begin) / bytes_per_s - time.perf_counter()))

        do_HEAD = do_GET

    return Handler


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as a client opens."""

    daemon_threads = True
    request_queue_size = 256


def main() -> None:
    """store.py FOLDER WAIT_S BYTES_PER_S: prints its port and serves until it is ended."""
    root, wait_s, bytes_per_s = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    server = Server(("127.0.0.1", 0), handler_of(root, wait_s, bytes_per_s))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
