"""Units of a job as tasks of a Ray cluster. Needs the extra `ray`."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from ..errors import OfflineError
from .unit import Part, Task

# A unit whose worker or host died is made anew elsewhere so many times.
_RETRIES = 3
_CONNECT_S = 10.0


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
    """Raises OfflineError unless somebody listens at HOST:PORT: Ray itself would try for minutes, and then abort."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise OfflineError(
            f"{address}: no Ray cluster answers there within {_CONNECT_S:g} s ({error}); is its head up, and the port "
            "that of its GCS (6379 by default), or with ray:// that of its client server (10001)?"
        ) from error


def _told(error: Any) -> OfflineError:
    cause = getattr(error, "cause", None)
    if isinstance(cause, OfflineError):
        return cause
    lines = [line for line in str(error).splitlines() if line.strip()]
    return OfflineError(f"a task of the Ray cluster failed: {lines[-1][:300] if lines else type(error).__name__}")
