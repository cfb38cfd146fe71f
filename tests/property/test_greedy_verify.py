"""The verifier on decisions that are wrong in any way: it reports, and never fails itself."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import policies, snapshots

from phalanx.model.decision import Certificate, Decision, GoalResult, GoalStatus, Grain, Stage, Start
from phalanx.model.ids import HostId, JobId
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.goals import values
from phalanx.solver.greedy import greedy
from phalanx.solver.verify import verify, verify_starts

WORKERS = st.builds(
    WorkerPlacement,
    role=st.sampled_from(("worker", "helper", "stranger")),
    index=st.integers(0, 4),
    host=st.sampled_from([HostId(f"h{n}") for n in range(6)]),
    gpus=st.sets(st.integers(0, 5), max_size=4).map(lambda cards: tuple(sorted(cards))),
)
STARTS = st.builds(
    Start,
    job=st.sampled_from([JobId(name) for name in ("j0", "j1", "j2", "r0", "ghost")]),
    attempt=st.integers(0, 3),
    placement=st.builds(Placement, workers=st.lists(WORKERS, max_size=5).map(tuple)),
)


@settings(deadline=None, max_examples=80)
@given(snapshot=snapshots(), policy=policies(), starts=st.lists(STARTS, min_size=1, max_size=3))
def test_nonsense_is_reported(snapshot: Snapshot, policy: Policy, starts: list[Start]) -> None:
    found = verify_starts(snapshot, policy, starts)
    for violation in found:
        assert violation.amount > 0
        assert violation.subject
        assert violation.unit
        assert violation.message
        assert str(violation)


@settings(deadline=None, max_examples=80)
@given(snapshot=snapshots(max_hosts=5), policy=policies(), data=st.data())
def test_one_worker_moved_to_a_taken_card_or_left_out_is_noticed(
    snapshot: Snapshot, policy: Policy, data: st.DataObject
) -> None:
    starts = greedy(snapshot, policy)
    assume(starts)
    start = data.draw(st.sampled_from(starts))
    workers = start.placement.workers
    index = data.draw(st.integers(0, len(workers) - 1))
    without = replace(start, placement=Placement(workers=(*workers[:index], *workers[index + 1 :])))
    others = [other for other in starts if other is not start]
    assert "gang" in {str(violation.family) for violation in verify_starts(snapshot, policy, [*others, without])}
    twin = replace(start, job=JobId("ghost"))
    assert verify_starts(snapshot, policy, [*starts, twin]) != ()


@settings(deadline=None, max_examples=80)
@given(snapshot=snapshots(), policy=policies(), data=st.data())
def test_a_goal_stated_wrongly_is_noticed(snapshot: Snapshot, policy: Policy, data: st.DataObject) -> None:
    starts = greedy(snapshot, policy)
    stated = [
        GoalResult(name=g.name, unit=g.unit, value=g.value, bound=g.value, status=GoalStatus.PROVEN, parts=g.parts)
        for g in values(snapshot, policy, starts)
    ]
    certificate = Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1)
    right = Decision(
        snapshot_version=0, now_s=snapshot.now_s, starts=starts, goals=tuple(stated), certificate=certificate
    )
    assert verify(snapshot, policy, right) == ()
    assume(stated)
    index = data.draw(st.integers(0, len(stated) - 1))
    by = data.draw(st.integers(1, 10**9))
    stated[index] = replace(stated[index], value=stated[index].value - by)
    (violation,) = verify(snapshot, policy, replace(right, goals=tuple(stated)))
    assert (violation.subject, violation.amount, violation.family) == (stated[index].name, by, None)
