"""What runs on the hosts: the runner of one attempt, and the caretaker of a machine. Neither knows Ray."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from ...model.errors import PhalanxError, StaleTerm
from ...model.ids import JobId
from ..ports import GpuLibrary
from ..retention import AttemptFolder, attempt_folders, remove_attempts
from . import processes, supervisor
from .attempt_files import AttemptFiles, HostStatus
from .specs import HostSpec, scrubbed

UP_WAIT_S = 30.0


class Runner:
    """The one owner of an attempt's ranks on one host; lives in a Ray actor. Every order carries the adapter's term.

    An order with an older term than one seen before raises StaleTerm.
    """

    def __init__(self, job: str, attempt: int, host: str, logs: str) -> None:
        self._files = AttemptFiles(logs, job, attempt)
        self._host = host
        self._term = 0
        self._stopping = False
        self._mine = False
        self._launching = False
        self._channel: socket.socket | None = None
        self._port_holder: socket.socket | None = None
        self._port = 0
        self._lock = threading.Lock()

    def status(self) -> HostStatus:
        """How far this host's ranks are; not started while a launch is under way."""
        if self._launching:
            return HostStatus()
        # The supervisor is looked for first: whatever it wrote before it went is then in the files.
        supervised = self._supervised()
        return self._files.status(self._host, supervised=supervised, stopping=self._stopping)

    def free_port(self, term: int) -> int:
        """A port for rank 0, held until the launch; the same at every call."""
        with self._lock:
            self._check(term)
            if self._port_holder is None:
                self._port_holder = socket.socket()
                self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._port_holder.bind(("", 0))
                self._port = int(self._port_holder.getsockname()[1])
            return self._port

    def launch(self, term: int, spec: HostSpec) -> HostStatus:
        """Starts the ranks once; a repetition changes nothing.

        PhalanxError where an earlier runner of this attempt has started them already, or the supervisor fails.
        """
        with self._lock:
            self._check(term)
            if self._stopping and not self._mine:
                raise PhalanxError("it was stopped before it had started")
            if not self._mine:
                self._launching = True
                try:
                    self._launch(spec)
                finally:
                    self._launching = False
        return self.status()

    def stop(self, term: int, grace_s: int) -> None:
        """Warns the ranks; the supervisor kills what is left after `grace_s`."""
        with self._lock:
            self._check(term)
            self._stopping = True
            if self._channel is not None:
                try:
                    self._channel.send(json.dumps({"stop": grace_s}).encode() + b"\n")
                except OSError:
                    return  # the supervisor has ended, and with it all that it ran

    def read_log(self, rank: int, offset: int, limit: int) -> bytes:
        """A piece of a rank's log; a negative offset counts from its end."""
        return self._files.read_log(rank, offset, limit)

    def close(self) -> None:
        """Lets go of the supervisor, as the end of this process does: it stops its ranks with the job's grace."""
        for end in (self._channel, self._port_holder):
            if end is not None:
                end.close()

    def _check(self, term: int) -> None:
        if term < self._term:
            raise StaleTerm(f"an adapter of term {term} gave an order after one of term {self._term}")
        self._term = term

    def _launch(self, spec: HostSpec) -> None:
        if not self._files.mark_started(self._host, [rank.rank for rank in spec.ranks]):
            raise PhalanxError(f"attempt {spec.attempt} of job {spec.job} was started on host {self._host} before")
        self._mine = True
        self._spawn(spec)

    def _spawn(self, spec: HostSpec) -> None:
        if self._port_holder is not None:
            self._port_holder.close()
        files = {r.rank: (str(self._files.log(r.rank)), str(self._files.exit(r.rank))) for r in spec.ranks}
        path = self._files.write_spec(
            self._host, spec.document(files, os.environ, str(self._files.folder), str(self._files.orphaned(self._host)))
        )
        ours, theirs = socket.socketpair()
        errors = self._files.folder / f"host-{self._host}.supervisor.log"
        with theirs, errors.open("ab") as log:
            subprocess.run(
                [sys.executable, "-I", "-S", supervisor.__file__, str(path), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**scrubbed(os.environ), **spec.identity, processes.SUPERVISOR: "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                check=True,
            )
        ours.settimeout(UP_WAIT_S)
        try:
            answer = ours.recv(3)
        except OSError as fault:
            answer = str(fault).encode()
        # From now on it is only peeked at; with a time limit Python would wait before it peeks.
        ours.setblocking(False)
        self._channel = ours
        if answer != b"up\n":
            raise PhalanxError(f"the supervisor did not come up: {answer.decode() or errors.read_text()[-500:]}")

    def _supervised(self) -> bool:
        if self._channel is None:
            return False
        try:
            return self._channel.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


class Caretaker:
    """Looks after what attempts leave on one machine: the ground truth beside Ray's books."""

    def __init__(self, namespace: str, gpus: Callable[[], GpuLibrary] | None = None) -> None:
        self._namespace = namespace
        # Made here, on the machine that is looked after: a GPU library cannot travel.
        self._gpus = gpus() if gpus is not None else None

    def status(self, logs: str, job: str, attempt: int, host: str) -> HostStatus:
        """How far an attempt is on a host whose runner is gone, from its files and processes."""
        alive = processes.find(self._namespace, job, attempt, host)
        supervised = any(process.supervisor for process in alive)
        return AttemptFiles(logs, job, attempt).status(host, supervised=supervised, stopping=supervised)

    def sweep(self, job: str, attempt: int, host: str) -> tuple[str, ...]:
        """Kills what is left of an attempt, and tells what would not go within a second."""
        left = processes.find(self._namespace, job, attempt, host)
        for _ in range(20):
            for process in left:
                processes.kill(process, self._namespace)
            left = processes.find(self._namespace, job, attempt, host)
            if not left:
                return ()
            time.sleep(0.05)
        return tuple(process.shown for process in left)

    def foreign(self, cards: Sequence[int]) -> tuple[str, ...]:
        """Compute processes on those cards that belong to no attempt; empty where no GPU library answers."""
        if self._gpus is None:
            return ()
        return tuple(
            f"process {pid} on card {reading.index}"
            for reading in self._gpus.read()
            if reading.index in cards
            for pid in reading.pids
            if (processes.environment_of(pid) or {}).get(processes.NAMESPACE) != self._namespace
        )

    def attempt_folders(self, logs: str) -> tuple[AttemptFolder, ...]:
        """What attempts have left in a folder of logs."""
        return attempt_folders(logs)

    def remove_attempts(self, logs: str, keys: Sequence[tuple[JobId, int]]) -> int:
        """Removes these folders, but for attempts of which a process lives; returns how many are gone."""
        alive = {(JobId(job), attempt) for job, attempt, _ in self.attempts()}
        return remove_attempts(logs, keys, alive)

    def attempts(self) -> tuple[tuple[str, int, str], ...]:
        """(job, attempt, host) of every process found."""
        return tuple(sorted({(p.job, p.attempt, p.host) for p in processes.find(self._namespace)}))

    def read_reports(self, logs: str, job: str, attempt: int, offsets: dict[str, int], limit: int) -> dict[str, bytes]:
        """What is new in these reports of an attempt's ranks, by name."""
        return AttemptFiles(logs, job, attempt).read_reports(offsets, limit)

    def read_log(self, logs: str, job: str, attempt: int, rank: int, offset: int, limit: int) -> bytes:
        """A piece of a rank's log; a negative offset counts from its end."""
        return AttemptFiles(logs, job, attempt).read_log(rank, offset, limit)
