"""Why one job waits, asked for alone: what its round would have told had it had the work."""

from __future__ import annotations

from dataclasses import replace

from small_worlds import POLICY, box, gang, running, world

from phalanx.model.decision import Decision, Reason, ReasonKind
from phalanx.model.host import HostState
from phalanx.model.ids import JobId
from phalanx.model.snapshot import Snapshot
from phalanx.solver.solve import solve
from phalanx.solver.why import why
from phalanx.solver.wording import left_open


def crowded() -> Snapshot:
    hosts = [box("h1"), box("h2", state=HostState.DOWN), box("a1", gpu_type="A100")]
    held = running(gang("r", 1, 6), ("h1", range(6)))
    jobs = [gang("first", 1, 2), gang("wide", 1, 8), gang("down", 2, 8), gang("never", 1, 9)]
    return world(hosts, held, *jobs)


def blank(decision: Decision) -> Decision:
    """The decision of a round that had no work left for reasons."""
    waiting = (Reason(job=reason.job, kind=ReasonKind.UNDECIDED) for reason in decision.waiting)
    return replace(decision, waiting=tuple(waiting))


def test_what_was_left_open_is_what_the_round_would_have_told() -> None:
    snapshot = crowded()
    decision = solve(snapshot, POLICY)
    assert len({reason.kind for reason in decision.waiting}) > 1
    for told in decision.waiting:
        assert why(snapshot, POLICY, blank(decision), told.job) == told


def test_what_the_round_told_stands() -> None:
    snapshot = crowded()
    told = Reason(job=JobId("down"), kind=ReasonKind.UNDECIDED, subject="it fits, and the round ended")
    decision = replace(solve(snapshot, POLICY), waiting=(told,))
    assert why(snapshot, POLICY, decision, JobId("down")) is told


def test_a_job_that_does_not_wait_has_no_reason() -> None:
    snapshot = crowded()
    assert why(snapshot, POLICY, solve(snapshot, POLICY), JobId("r")) is None


def test_the_work_for_one_job_is_bounded() -> None:
    snapshot = crowded()
    decision = blank(solve(snapshot, POLICY))
    reason = why(snapshot, POLICY, decision, JobId("down"), most_work=-1)
    assert reason is not None
    assert left_open(reason)
    assert "the work set aside" in reason.sentence
