"""Bringing up the ranks of a reserved attempt: runners on every host, a port for rank 0, then one start each."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import PhalanxError
from ...model.ids import HostId
from ...model.intent import Intent
from . import actors
from .compat import Group
from .names import Names
from .runner import Runner
from .specs import Folders, host_specs


class LaunchFailed(PhalanxError):
    """The attempt did not come up; `host` is the one to blame, where known."""

    def __init__(self, cause: str, host: HostId | None = None) -> None:
        self.cause = cause
        self.host = host
        super().__init__(cause, host)

    def __str__(self) -> str:
        return self.cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch. `addresses` of the hosts in the group; `term` of the adapter's lease; `space` marks the processes."""

    intent: Intent
    group: Group
    names: Names
    space: str
    folders: Folders
    addresses: Mapping[HostId, str]
    term: int
    wait_s: float
    cancelled: threading.Event

    def run(self) -> None:
        """Returns once every rank's process runs; a repetition starts nothing twice. Raises LaunchFailed."""
        intent = self.intent
        hosts = intent.placement.hosts
        runners = {host: self._runner(bundle, host) for bundle, host in enumerate(hosts)}
        first = hosts[0]
        port = self._answers({first: actors.call(runners[first], "free_port", self.term)})[first]
        # All runners are alive before any rank starts: a host that cannot take part costs no work of the others.
        self._answers({host: actors.call(runner, "status") for host, runner in runners.items()})
        if self.cancelled.is_set():
            raise LaunchFailed("it was stopped before it had started")
        specs = host_specs(intent, self.space, self.folders, (self.addresses[first], port))
        self._answers({host: actors.call(runners[host], "launch", self.term, specs[host]) for host in hosts})

    def _runner(self, bundle: int, host: HostId) -> Any:
        intent = self.intent
        job, attempt = intent.job.id, intent.attempt
        arguments = {"job": job, "attempt": attempt, "host": host, "logs": self.folders.on(host).logs}
        return actors.start_runner(Runner, self.names.runner(job, attempt, host), self.group, bundle, arguments)

    def _answers(self, asked: Mapping[HostId, Any]) -> Mapping[HostId, Any]:
        deadline = time.monotonic() + self.wait_s
        while True:
            answers = actors.answers(asked, 0.5)
            waiting = any(isinstance(answer, actors.ActorSilent) for answer in answers.values())
            if not waiting or time.monotonic() >= deadline or self.cancelled.wait(0.02):
                break
        for host, answer in answers.items():
            if isinstance(answer, BaseException):
                raise LaunchFailed(f"host {host}: {answer}", host) from answer
        return answers
