"""Keeps child processes alive: starts them, restarts the dead with back-off, and leaves nothing behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARK = "SERVED_BY_PHALANX"
"""The variable by which everything that a child has started is found again, whatever session it moved to."""

BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0
STEADY_S = 60.0
"""A child that lived this long starts its back-off anew."""

LOG_MOST_BYTES = 10 * 2**20
log = logging.getLogger(__name__)


def always() -> bool:
    """The condition of a child that waits for nothing."""
    return True


def nothing() -> None:
    """The cleaning up of a child that leaves nothing but processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One process to keep alive, started once `ready()`; `grace_s` is how long it may take to stop.

    When it dies, `clean_up()` is called and the children that name it in `needs` are started anew too: what they were
    connected to is gone.
    """

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool] = always
    grace_s: float = 10.0
    needs: str = ""
    clean_up: Callable[[], None] = nothing


@dataclass(slots=True)
class Child:
    """A child and its fate. Times on the monotonic clock."""

    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    not_before: float = 0.0

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None


@dataclass(slots=True)
class Supervisor:
    """Children of one service. `instance` tells its processes from those of other services on this machine.

    A child's stdin is a pipe that ends with the supervisor, so that children stop even when it is killed.
    """

    specs: Sequence[ChildSpec]
    environment: Mapping[str, str]
    log_dir: Path
    instance: str
    children: list[Child] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.children = [Child(spec) for spec in self.specs]

    def tend(self) -> None:
        """One look at every child: buries the dead, starts those that are due."""
        now = time.monotonic()
        for child in self.children:
            if child.process is not None and not child.alive:
                self._bury(child, now)
            if child.process is None and now >= child.not_before and child.spec.ready():
                self._start(child, now)

    def stop(self, impatient: Callable[[], bool] = lambda: False) -> None:
        """Stops the children, last started first: asks, waits its grace, kills; then kills whatever is left of them."""
        for child in reversed(self.children):
            if child.process is None:
                continue
            _signal(child.process, signal.SIGTERM)
            deadline = time.monotonic() + child.spec.grace_s
            while child.alive and time.monotonic() < deadline and not impatient():
                time.sleep(0.05)
            self._end(child)
        kill_marked(f"{self.instance}/")

    def _start(self, child: Child, now: float) -> None:
        path = self.log_dir / f"{child.spec.name.replace(':', '-')}.log"
        _rotate(path)
        environment = {**self.environment, MARK: f"{self.instance}/{child.spec.name}"}
        with path.open("ab") as out:
            child.process = subprocess.Popen(
                child.spec.argv,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                # Its own session: Ctrl-C in the terminal reaches the supervisor only, which stops children in order.
                start_new_session=True,
            )
        child.started_at = now

    def _bury(self, child: Child, now: float) -> None:
        process = child.process
        lived_s = now - child.started_at
        child.failures = 1 if lived_s >= STEADY_S else child.failures + 1
        delay_s = min(BACKOFF_FIRST_S * 2 ** (child.failures - 1), BACKOFF_MOST_S)
        child.not_before = now + delay_s
        code = process.returncode if process else None
        log.warning("%s ended with code %s; it is started again in %.1f s", child.spec.name, code, delay_s)
        self._end(child)
        for other in self.children:
            if other.spec.needs == child.spec.name:
                self._end(other)

    def _end(self, child: Child) -> None:
        """Makes sure that nothing of the child is left, and forgets it."""
        process, child.process = child.process, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin:
            process.stdin.close()
        kill_marked(f"{self.instance}/{child.spec.name}")
        child.spec.clean_up()


def kill_marked(mark: str) -> int:
    """Kills every process whose mark is `mark`, or begins with it where it ends in a slash. Returns how many."""
    found = [process for process in psutil.process_iter() if _marked(process, mark)]
    for process in found:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(found, timeout=5)
    return len(found)


def _marked(process: psutil.Process, mark: str) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        value = process.environ().get(MARK, "")
    except (psutil.Error, OSError):
        return False
    return value.startswith(mark) if mark.endswith("/") else value == mark


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)


def _rotate(path: Path) -> None:
    with suppress(OSError):
        if path.stat().st_size > LOG_MOST_BYTES:
            path.replace(path.with_suffix(".log.1"))
