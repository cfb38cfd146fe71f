"""Finding the processes of attempts on this machine, by the variables in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

NAMESPACE, JOB, ATTEMPT, HOST = "PHALANX_NAMESPACE", "PHALANX_JOB", "PHALANX_ATTEMPT", "PHALANX_HOST"
SUPERVISOR = "PHALANX_SUPERVISOR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A live process of an attempt; `supervisor` if it is the one that runs and ends the ranks."""

    pid: int
    job: str
    attempt: int
    host: str
    supervisor: bool

    @property
    def shown(self) -> str:
        """As told to an operator."""
        what = "supervisor" if self.supervisor else "process"
        return f"{what} {self.pid} of job {self.job} attempt {self.attempt}"


def environment_of(pid: int) -> dict[str, str] | None:
    """The environment a process was started with; None for one that is gone, a zombie, or another user's."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs} or None


def find(namespace: str, job: str | None = None, attempt: int | None = None, host: str | None = None) -> list[Found]:
    """All live processes of that namespace, narrowed by job, attempt and host where given."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        process = _found(int(entry.name), namespace)
        if (
            process is not None
            and job in (None, process.job)
            and attempt in (None, process.attempt)
            and host in (None, process.host)
        ):
            found.append(process)
    return found


def _found(pid: int, namespace: str) -> Found | None:
    environment = environment_of(pid)
    if environment is None or environment.get(NAMESPACE) != namespace:
        return None
    attempt = environment.get(ATTEMPT, "")
    if not attempt.isdigit() or JOB not in environment:
        return None
    return Found(
        pid=pid,
        job=environment[JOB],
        attempt=int(attempt),
        host=environment.get(HOST, ""),
        supervisor=environment.get(SUPERVISOR) == "1",
    )


def kill(process: Found, namespace: str) -> None:
    """Kills that process, and no other one that has come to bear its number."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if _found(process.pid, namespace) == process:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
