"""Runs the ranks of one attempt on one host and outlives the Ray worker that started it.

Run as a script by the interpreter, with the standard library only: `supervisor.py SPEC FD`. It detaches itself (own
session, parent gone), adopts whatever its ranks leave behind, forwards the warning, kills what outlasts the grace and
writes each exit code durably. FD is a socket to the worker: lines of JSON `{"stop": grace_s}` come in, `up` goes out
once every rank is started; its end means that the worker is lost, which counts as a stop with the job's grace.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINGER_S = 5.0
"""How long processes that a finished rank left behind may take to end after a warning of their own."""
CANNOT_RUN, NOT_FOUND = 126, 127
"""Exit codes of a command that cannot be started, as in shells."""


def main() -> None:
    """Detaches, then supervises until nothing of the attempt is left on this host."""
    spec_path, fd = sys.argv[1], int(sys.argv[2])
    if os.fork():
        os._exit(0)
    os.setsid()
    channel = socket.socket(fileno=fd)
    channel.setblocking(False)
    spec = json.loads(Path(spec_path).read_text())
    Path(spec_path).unlink()  # it holds the environment, which may hold secrets
    Supervisor(spec, channel).run()
    # At once, with the socket open until the kernel closes it: its end means that this process is no more.
    os._exit(0)


class Supervisor:
    """One attempt's ranks on this host. `spec` is what `specs.HostSpec.document` writes."""

    def __init__(self, spec: dict[str, Any], channel: socket.socket) -> None:
        self._spec = spec
        self._channel: socket.socket | None = channel
        self._inbox = b""
        self._ranks: dict[int, dict[str, Any]] = {}
        self._warned = False
        self._swept = False
        self._deadline: float | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Starts every rank and returns once no process is left."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._watch_signals()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        for rank in self._spec["ranks"]:
            self._start(rank, libc)
        self._tell(b"up\n")
        while not self._finished():
            self._wait()
            self._reap()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                for pid in descendants(os.getpid()):
                    kill(pid, signal.SIGKILL)

    def _watch_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._stop(float(self._spec["grace_s"])))
        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writing)
        self._selector.register(reading, selectors.EVENT_READ)
        assert self._channel is not None
        self._selector.register(self._channel, selectors.EVENT_READ)

    def _start(self, rank: dict[str, Any], libc: ctypes.CDLL) -> None:
        def with_parent() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        with open(rank["log"], "ab", buffering=0) as log:
            try:
                process = subprocess.Popen(
                    rank["argv"],
                    cwd=rank["cwd"],
                    env=rank["env"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=with_parent,
                )
            except (OSError, subprocess.SubprocessError) as fault:
                log.write(f"phalanx: cannot run {rank['argv'][0]!r} in {rank['cwd']!r}: {fault}\n".encode())
                missing = isinstance(fault, FileNotFoundError)
                write_durably(Path(rank["exit"]), str(NOT_FOUND if missing else CANNOT_RUN))
                return
        process.returncode = 0  # waited for in _reap, never by subprocess
        self._ranks[process.pid] = rank

    def _finished(self) -> bool:
        if self._ranks:
            return False
        left = descendants(os.getpid())
        if left and not self._swept:
            self._swept = True
            for pid in left:
                kill(pid, signal.SIGTERM)
            self._limit(LINGER_S)
        return not left

    def _wait(self) -> None:
        timeout = None if self._ranks else 0.05
        if self._deadline is not None:
            timeout = min(0.05 if not self._ranks else 60.0, max(0.02, self._deadline - time.monotonic()))
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._channel:
                self._receive()
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 4096)

    def _receive(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None
            if not self._warned:
                # Ranks that heed the warning may end with 0: that must not read as a success.
                write_durably(Path(self._spec["orphaned"]), "the runner was lost")
            self._stop(float(self._spec["grace_s"]))
            return
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        for line in lines:
            self._stop(float(json.loads(line)["stop"]))

    def _stop(self, grace_s: float) -> None:
        self._limit(grace_s)
        if not self._warned:
            self._warned = True
            # Only the rank itself is warned: its data-loading children must live until it has saved.
            for pid in self._ranks:
                kill(pid, signal.SIGTERM)

    def _limit(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            rank = self._ranks.pop(pid, None)
            if rank is not None:
                write_durably(Path(rank["exit"]), str(os.waitstatus_to_exitcode(status)))

    def _tell(self, message: bytes) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(message)


def descendants(root: int) -> list[int]:
    """The processes below `root`, zombies left out, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found, front = [], [root]
    while front:
        front = [child for parent in front for child in children.get(parent, ())]
        found += front
    return found


def kill(pid: int, number: int) -> None:
    """Sends a signal to one of our descendants, which may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def write_durably(path: Path, text: str, mode: int = 0o644) -> None:
    """The file holds `text` whole, or does not exist, even across a power loss."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


if __name__ == "__main__":
    main()
