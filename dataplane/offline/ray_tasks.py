"""Units of a job as tasks of a Ray cluster. Needs the extra `ray`."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from ..errors import OfflineError
from .unit import Part, Task

# A unit whose worker or host died is made anew elsewhere so many times.
_RETRIES = 3
_CONNECT_S = 10.0
_JOIN_S = 60.0

_WHICH_PORT = (
    "is its head up, and the port that of its GCS (6379 by default), or with ray:// that of its client server (10001)?"
)
# What a client of HTTP/2, and so of gRPC, says first, and the head of the frame that a server answers with.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_HEAD, _SETTINGS = 9, 4
_TRIAL = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"


def run_on_ray(
    address: str, call: Callable[[Task], Part], tasks: Mapping[int, Task], folder: str
) -> Iterator[tuple[int, Part]]:
    """Runs each task, in `folder`, on the cluster at `address` ("local": one started here), and yields it when done.

    The first failure ends the run once the units at hand are done. Raises OfflineError for it, for a cluster that
    cannot be reached, and where Ray is not installed.
    """
    ray = _connected(address)
    remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(call_task)
    running = {remote.remote(call, task, folder): number for number, task in tasks.items()}
    failure: OfflineError | None = None
    try:
        while running:
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            number = running.pop(done)
            try:
                yield number, ray.get(done)
            except ray.exceptions.TaskCancelledError:
                continue
            except ray.exceptions.RayError as error:
                failure = failure or _told(error)
                for waiting in running:
                    ray.cancel(waiting)
    finally:
        for waiting in running:
            ray.cancel(waiting)
    if failure is not None:
        raise failure


def call_task(call: Callable[[Task], Part], task: Task, folder: str) -> Part:
    """What a worker of the cluster does."""
    os.chdir(folder)
    return call(task)


def _connected(address: str) -> Any:
    try:
        ray = import_module("ray")
    except ImportError:
        raise OfflineError("tasks of a Ray cluster need the package ray: pip install 'phalanx[ray]'") from None
    if not ray.is_initialized():
        _answers(address)
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise OfflineError(f"{address}: no Ray cluster can be reached there ({error})") from error
    return ray


def _answers(address: str) -> None:
    """Raises OfflineError unless a Ray cluster takes a driver at HOST:PORT.

    Ray itself would try for minutes where nobody or something else answers, and then end the process.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S) as connection:
            speaks = bool(os.environ.get("RAY_USE_TLS")) or _speaks_grpc(connection)
    except (OSError, OverflowError) as error:
        raise OfflineError(
            f"{address}: no Ray cluster answers there within {_CONNECT_S:g} s ({error}); {_WHICH_PORT}"
        ) from error
    if not speaks:
        raise OfflineError(f"{address}: what answers there is no Ray cluster (it speaks no gRPC); {_WHICH_PORT}")
    _joined_on_trial(address)


def _speaks_grpc(connection: socket.socket) -> bool:
    """Whether the other side answers as a server of HTTP/2 does, within the connection's time limit."""
    try:
        connection.sendall(_PREFACE)
        head = b""
        while len(head) < _FRAME_HEAD and (piece := connection.recv(_FRAME_HEAD - len(head))):
            head += piece
    except OSError:
        return False
    return len(head) == _FRAME_HEAD and head[3] == _SETTINGS


def _joined_on_trial(address: str) -> None:
    """Joins the cluster from a process of its own, which can be ended. Raises OfflineError if it could not."""
    try:
        trial = subprocess.run(
            [sys.executable, "-c", _TRIAL, address], capture_output=True, text=True, timeout=_JOIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise OfflineError(
            f"{address}: what answers there has let no driver join within {_JOIN_S:g} s; {_WHICH_PORT}"
        ) from None
    if trial.returncode:
        lines = [line for line in trial.stderr.splitlines() if line.strip()]
        cause = lines[-1][:300] if lines else f"exit code {trial.returncode}"
        token = "" if os.environ.get("RAY_AUTH_MODE") == "token" else " Does it ask for a token (RAY_AUTH_MODE=token)?"
        raise OfflineError(f"{address}: no Ray cluster can be joined there ({cause}); {_WHICH_PORT}{token}")


def _told(error: Any) -> OfflineError:
    cause = getattr(error, "cause", None)
    if isinstance(cause, OfflineError):
        return cause
    lines = [line for line in str(error).splitlines() if line.strip()]
    return OfflineError(f"a task of the Ray cluster failed: {lines[-1][:300] if lines else type(error).__name__}")
