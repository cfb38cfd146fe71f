"""Waiting for another process without waiting for ever: one that is stopped, or hangs, holds its locks still."""

import os
import socket
import time
from pathlib import Path

from .errors import CacheError


def note_holder(lock: int) -> None:
    """Writes into a lock file, whose exclusive lock the caller has just taken, who that is."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)


class StallWatch:
    """Bounds the wait for a lock: `stall_s` seconds in which the holder's file shows no sign of work."""

    def __init__(self, sign_of_work: Path, stall_s: float) -> None:
        self._path = sign_of_work
        self._stall_s = stall_s
        self._seen = self._sign()
        self._since = time.monotonic()

    def look(self, lock: int, what: str) -> None:
        """Raises CacheError, naming what is locked, by whom and in which state, when it has taken too long."""
        now, sign = time.monotonic(), self._sign()
        if sign != self._seen:
            self._seen, self._since = sign, now
        elif now - self._since > self._stall_s:
            raise CacheError(
                f"{what} has been locked for {now - self._since:.0f} s without any progress by {_holder(lock)}; "
                f"end that process (waiting on host {socket.gethostname()})"
            )

    def _sign(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0


def _holder(lock: int) -> str:
    pid, _, host = os.pread(lock, 300, 0).decode(errors="replace").strip().partition(" ")
    if not pid.isdigit():
        return "a process that left no name"
    return f"process {pid} of host {host}{_state(int(pid)) if host == socket.gethostname() else ''}"


def _state(pid: int) -> str:
    """Whether the process is stopped, as far as /proc tells."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    letter = status.rpartition(")")[2].split()[0]
    return " (stopped by a signal)" if letter in "Tt" else ""
