"""Waiting for another process without waiting for ever: one that is stopped, or hangs, holds its locks still."""

import fcntl
import os
import socket
import threading
import time
from pathlib import Path

from .errors import CacheError

_LOOK_EVERY_S = 0.2


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


def lock_within(lock: int, kind: int, watch: StallWatch, what: str) -> None:
    """Takes a flock (LOCK_SH or LOCK_EX) in its turn; raises CacheError as the watch does.

    The system queues who waits in flock, and cannot be told a time: a thread waits there on behalf of the caller.
    Trying again and again instead would let others pass for ever where a cache is small and busy.
    """
    guard, done = threading.Lock(), threading.Event()
    abandoned = False
    descriptor = os.dup(lock)  # the same lock: it is the caller's once the thread has it

    def wait() -> None:
        try:
            fcntl.flock(descriptor, kind)
            with guard:
                if abandoned:
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                done.set()
        finally:
            os.close(descriptor)

    threading.Thread(target=wait, name="phalanx-lock", daemon=True).start()
    while not done.wait(_LOOK_EVERY_S):
        try:
            watch.look(lock, what)
        except CacheError:
            with guard:
                abandoned = not done.is_set()
            if abandoned:
                raise
            return


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
