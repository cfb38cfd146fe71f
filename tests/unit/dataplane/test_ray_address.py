"""An address of `--ray` that leads to no cluster: one sentence within bounds, whatever is behind it."""

import socket
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.dataplane.errors import OfflineError
from phalanx.dataplane.offline.ray_tasks import run_on_ray


@pytest.fixture(autouse=True)
def began(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Ray that must not be asked to join anything: also where the machine has none at hand."""
    joined: list[str] = []
    ray = types.SimpleNamespace(is_initialized=lambda: False, init=lambda **_: joined.append("init"))
    monkeypatch.setitem(sys.modules, "ray", ray)
    yield
    assert joined == []


def test_a_ray_cluster_that_cannot_be_reached_is_told_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.dataplane.offline.ray_tasks._CONNECT_S", 0.3)
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            with pytest.raises(OfflineError, match=rf"{address}: no Ray cluster answers there within 0.3 s"):
                next(run_on_ray(address, lambda task: task, {}, str(tmp_path)))
    with socket.socket() as silent:
        # Its queue is full: a further connection is answered by nothing, as behind a firewall.
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(silent.getsockname())
        with pytest.raises(OfflineError, match="timed out"):
            next(run_on_ray(f"127.0.0.1:{silent.getsockname()[1]}", lambda task: task, {}, str(tmp_path)))
        for each in waiting:
            each.close()


@pytest.mark.parametrize("spoken", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None])
def test_what_answers_but_is_no_ray_cluster_is_told_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoken: bytes | None
) -> None:
    """A server of another kind, one that hangs up, and one that says nothing (None)."""
    monkeypatch.setattr("phalanx.dataplane.offline.ray_tasks._CONNECT_S", 0.3)
    with answering(spoken) as address, pytest.raises(OfflineError, match=r"is no Ray cluster \(it speaks no gRPC"):
        next(run_on_ray(address, lambda task: task, {}, str(tmp_path)))


@pytest.mark.parametrize(
    ("trial", "told"),
    [
        ("import time; time.sleep(60)", "has let no driver join within 0.5 s"),
        ("raise SystemExit('some other service')", "can be joined there .some other service.*RAY_AUTH_MODE=token"),
        ("import os; os.abort()", "can be joined there .exit code -6"),
    ],
)
def test_what_speaks_grpc_but_is_no_ray_cluster_is_told_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: str, told: str
) -> None:
    monkeypatch.setattr("phalanx.dataplane.offline.ray_tasks._JOIN_S", 0.5 if "sleep" in trial else 20.0)
    monkeypatch.setattr("phalanx.dataplane.offline.ray_tasks._TRIAL", trial)
    settings = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    with answering(settings) as address, pytest.raises(OfflineError, match=rf"{address}: .*{told}"):
        next(run_on_ray(address, lambda task: task, {}, str(tmp_path)))


@contextmanager
def answering(spoken: bytes | None) -> Iterator[str]:
    """The address of a server that says `spoken` to who connects and hangs up, or says nothing at all."""
    with socket.socket() as server, socket.socket() as waker:
        server.bind(("127.0.0.1", 0))
        server.listen()
        ended = threading.Event()

        def serve() -> None:
            with server.accept()[0] as connection:
                if spoken is None:
                    ended.wait(20)
                else:
                    connection.recv(100)
                    connection.sendall(spoken)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            if thread.is_alive():
                waker.connect_ex(server.getsockname())
            thread.join(20)
