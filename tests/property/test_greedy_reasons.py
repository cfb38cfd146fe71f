"""Whatever the world: one reason for each waiting job, and what it blames is to blame."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis.strategies import one_of
from one_more import accepted, could_start
from strategies import contested, policies, snapshots

from phalanx.model.decision import Reason, ReasonKind, RuleFamily
from phalanx.model.ids import JobId
from phalanx.model.job_state import WAITING, JobState
from phalanx.model.placement import Placement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.books import Books
from phalanx.solver.empty_fleet import unheld, well
from phalanx.solver.evict import greedy_plan
from phalanx.solver.explain import Explainer, reasons
from phalanx.solver.lifts import Lift
from phalanx.solver.placing import Placer
from phalanx.solver.plan import Plan
from phalanx.solver.solve import solve
from phalanx.solver.why import why
from phalanx.solver.world import NOW

STANDING = {ReasonKind.NEVER_FITS, ReasonKind.HELD, ReasonKind.BLOCKED, ReasonKind.BACK_OFF}


@settings(deadline=None, max_examples=100)
@given(snapshot=one_of(snapshots(4, 3, 6, 3), contested(3, 3, 5)), policy=policies())
def test_what_waits_could_start_nowhere_and_what_is_told_is_true(snapshot: Snapshot, policy: Policy) -> None:
    """With guarantees, reserved pools, plans and jobs that are never to be preempted; each place is tried."""
    plan = greedy_plan(snapshot, policy)
    started = {start.job for start in plan.starts}
    explainer = Explainer(snapshot, policy, plan.starts, plan.preemptions, reservations=plan.reservations)
    for record in snapshot.jobs:
        if record.state is not JobState.QUEUED or record.id in started:
            continue
        reason = explainer.reason(record)
        if reason.kind is ReasonKind.NEVER_FITS:
            alone = replace(snapshot, jobs=(replace(record, replacing=()),), reservations=())
            emptied = replace(alone, hosts=tuple(replace(well(host), windows=()) for host in snapshot.hosts))
            assert not could_start(emptied, policy, Plan(), record), reason.sentence
        elif reason.kind not in STANDING | {ReasonKind.UNDECIDED, ReasonKind.RESERVED}:
            assert not could_start(snapshot, policy, plan, record), reason.sentence
            for tip in explainer.tips(record):
                changed = replace(record, job=tip.job)
                placement = explainer.lifted(changed, ())
                assert placement is not None
                assert accepted(snapshot, policy, plan, changed, placement), tip.text
            lifts = explainer.blame(record)
            assert lifts
            if not plan.reservations:
                placement = explainer.lifted(record, lifts)
                assert placement is not None
                assert to_blame(snapshot, policy, plan, record, lifts, placement), [lift.name for lift in lifts]


def to_blame(
    snapshot: Snapshot, policy: Policy, plan: Plan, record: JobRecord, lifts: tuple[Lift, ...], placement: Placement
) -> bool:
    """Whether the gang may start there once these are lifted."""
    world, job, aside = NOW, record.job, set[RuleFamily]()
    for lift in lifts:
        job = (lift.change(job) or job) if lift.change else job
        world |= lift.world
    if any(lift.anywhere for lift in lifts) or world.all_hosts:
        # Whole cards that were broken may make one host enough, which confines the gang to it.
        aside.add(RuleFamily.TOPOLOGY)
    if world.no_starts:
        # Then nobody is left for whom the victims leave.
        plan = Plan(preemptions=plan.preemptions)
        aside.add(RuleFamily.PREEMPTION)
    if world.no_running:
        plan = Plan()
        snapshot = without(snapshot, {other.id for other in snapshot.jobs if other.placement})
    if world.no_lower:
        leaving = {act.job for act in plan.preemptions}
        ran = {other.id for other in snapshot.jobs if other.placement and other.level <= record.level}
        snapshot = without(snapshot, ran - leaving)
    if world.no_limits:
        snapshot = replace(snapshot, teams=tuple(replace(team, limit=None) for team in snapshot.teams))
    if world.no_windows:
        snapshot = replace(snapshot, hosts=tuple(replace(host, windows=()) for host in snapshot.hosts))
    if world.all_hosts:
        snapshot = unheld(replace(snapshot, hosts=tuple(well(host) for host in snapshot.hosts)))
    numbers = replace(policy, reserved=()) if world.no_reserve else policy
    return accepted(snapshot, numbers, plan, replace(record, job=job), placement, aside)


@settings(deadline=None, max_examples=80)
@given(snapshot=snapshots(max_hosts=5, max_jobs=6), policy=policies())
def test_every_waiting_job_has_one_true_reason(snapshot: Snapshot, policy: Policy) -> None:
    plan = greedy_plan(snapshot, policy)
    started = {start.job for start in plan.starts}
    found = reasons(snapshot, policy, plan.starts, plan.preemptions, plan.reservations)
    waiting = [record for record in snapshot.jobs if record.state in WAITING and record.id not in started]
    assert [reason.job for reason in found] == [record.id for record in waiting]
    for record, reason in zip(waiting, found, strict=True):
        assert reason.sentence.endswith(".")
        assert (reason.kind in STANDING - {ReasonKind.NEVER_FITS}) <= (not reason.families)
        if reason.kind is ReasonKind.OUTRANKED and not reason.besides:
            assert reason.subject
            assert Placer(snapshot, policy, Books(without(snapshot, victims_of(plan, snapshot, record)))).place(record)
        elif reason.kind is ReasonKind.BUSY and reason.families == (RuleFamily.PREEMPTION,):
            # Of its own level where it is on capacity that is borrowed from the job's guarantee.
            lower = {other.id for other in snapshot.jobs if other.level <= record.level}
            assert reason.subject
            assert any(f"{job} " in reason.subject for job in lower)
        elif reason.kind is ReasonKind.UNDECIDED:
            # Beside plans the greedy may pass over a place that would leave their room.
            several = len(record.job.roles) > 1
            # Nor does it evict inside work of the own guarantee of a gang of level 2.
            own = record.level == 2 and "could be preempted" in reason.sentence
            assert several or plan.reservations or own, "a gang of one role is placed wherever it fits"


@settings(deadline=None, max_examples=30)
@given(snapshot=one_of(snapshots(4, 3, 6, 3), contested(3, 3, 5)), policy=policies())
def test_asked_about_alone_a_job_is_told_what_the_round_would_have_told(snapshot: Snapshot, policy: Policy) -> None:
    """Whatever returns or grows in that round."""
    decision = solve(snapshot, policy)
    blank = tuple(Reason(job=reason.job, kind=ReasonKind.UNDECIDED) for reason in decision.waiting)
    for told in decision.waiting:
        assert why(snapshot, policy, replace(decision, waiting=blank), told.job) == told


def victims_of(plan: Plan, snapshot: Snapshot, record: JobRecord) -> set[JobId]:
    """The plan's victims below the job."""
    levels = {other.id: other.level for other in snapshot.jobs}
    return {act.job for act in plan.preemptions if levels[act.job] < record.level}


def without(snapshot: Snapshot, gone: set[JobId]) -> Snapshot:
    return replace(snapshot, jobs=tuple(record for record in snapshot.jobs if record.id not in gone))
