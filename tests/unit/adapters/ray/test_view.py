"""From what is seen host by host to the phase of an attempt."""

from __future__ import annotations

import pytest

from phalanx.adapters.ray.attempt_files import HostStatus
from phalanx.adapters.ray.view import Unseen, observed
from phalanx.model.intent import GangPhase as P
from phalanx.model.intent import RankExit

IDLE = HostStatus()
RUNS = HostStatus(started=True, supervised=True, ranks=(0,))
WARNED = HostStatus(started=True, supervised=True, stopping=True, ranks=(0,))
HALF = HostStatus(started=True, supervised=True, ranks=(0, 1), exits=((0, 0),))
DONE = HostStatus(started=True, ranks=(2,), exits=((2, 0),))
GONE = HostStatus(started=True, ranks=(0, 1), exits=((0, 0),))
ORPHANED = HostStatus(started=True, supervised=True, orphaned=True, stopping=True, ranks=(0,))


@pytest.mark.parametrize(
    ("group", "hosts", "launching", "phase"),
    [
        ("PENDING", (Unseen.SILENT, Unseen.SILENT), False, P.RESERVING),
        ("CREATED", (IDLE, IDLE), False, P.RESERVED),
        ("CREATED", (RUNS, IDLE), False, P.RESERVED),
        ("CREATED", (Unseen.SILENT, Unseen.SILENT), True, P.LAUNCHING),
        ("CREATED", (RUNS, IDLE), True, P.LAUNCHING),
        ("CREATED", (RUNS, RUNS), False, P.RUNNING),
        ("CREATED", (RUNS, DONE), False, P.RUNNING),
        ("CREATED", (HALF, DONE), False, P.RUNNING),
        ("CREATED", (DONE, DONE), False, P.EXITED),
        ("", (DONE, DONE), False, P.EXITED),
        ("CREATED", (RUNS, Unseen.SILENT), False, P.UNKNOWN),
        ("CREATED", (RUNS, Unseen.DEAD), False, P.BROKEN),
        ("CREATED", (Unseen.SILENT, Unseen.DEAD), True, P.BROKEN),
        ("CREATED", (DONE, GONE), False, P.BROKEN),
        ("CREATED", (RUNS, ORPHANED), False, P.BROKEN),
        ("RESCHEDULING", (RUNS, RUNS), False, P.BROKEN),
        ("", (RUNS, RUNS), False, P.BROKEN),
        ("", (IDLE, IDLE), False, P.BROKEN),
    ],
)
def test_phase(group: str, hosts: tuple, launching: bool, phase: P) -> None:
    gang = observed("j", 1, group, dict(zip(("a", "b"), hosts, strict=True)), launching=launching)
    assert gang.phase is phase


def test_a_broken_attempt_names_the_host_and_the_cause() -> None:
    gang = observed("j", 1, "CREATED", {"a": RUNS, "b": Unseen.DEAD})
    assert (gang.lost_host, gang.cause, gang.stopping) == ("b", "host b was lost", False)
    gang = observed("j", 1, "CREATED", {"a": WARNED, "b": GONE})
    assert (gang.lost_host, gang.cause, gang.stopping) == ("b", "what runs the ranks on host b was lost", True)
    gang = observed("j", 1, "RESCHEDULING", {"a": RUNS})
    assert (gang.lost_host, gang.cause) == ("a", "its placement group is rescheduling")


@pytest.mark.parametrize(
    ("hosts", "stopping"),
    [((RUNS, RUNS), False), ((WARNED, RUNS), False), ((WARNED, WARNED), True), ((WARNED, DONE), True)],
)
def test_an_attempt_is_stopping_once_every_living_rank_is_warned(hosts: tuple, stopping: bool) -> None:
    gang = observed("j", 1, "CREATED", dict(zip(("a", "b"), hosts, strict=True)))
    assert gang.stopping is stopping


def test_the_exits_of_all_hosts_are_told_by_rank() -> None:
    gang = observed("j", 1, "CREATED", {"b": DONE, "a": HALF})
    assert gang.exits == (RankExit(rank=0, code=0), RankExit(rank=2, code=0))
