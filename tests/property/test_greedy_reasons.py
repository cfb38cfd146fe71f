"""Whatever the world: one reason for each waiting job, and what it blames is to blame."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis.strategies import one_of
from one_more import accepted, could_start
from strategies import contested, policies, snapshots

from phalanx.model.decision import ReasonKind, RuleFamily
from phalanx.model.ids import JobId
from phalanx.model.job import Preemptible
from phalanx.model.job_state import WAITING, JobState
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.books import Books
from phalanx.solver.empty_fleet import unheld, well
from phalanx.solver.evict import greedy_plan
from phalanx.solver.explain import Explainer, reasons
from phalanx.solver.greedy import greedy
from phalanx.solver.placing import Placer
from phalanx.solver.plan import Plan

STANDING = {ReasonKind.NEVER_FITS, ReasonKind.HELD, ReasonKind.BLOCKED, ReasonKind.BACK_OFF}


@settings(deadline=None, max_examples=100)
@given(snapshot=one_of(snapshots(4, 3, 6, 3), contested(3, 3, 5)), policy=policies())
def test_what_waits_could_start_nowhere_and_what_is_advised_keeps_every_rule(
    snapshot: Snapshot, policy: Policy
) -> None:
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


def unguaranteed(snapshot: Snapshot) -> Snapshot:
    """The world without guarantees: what a reason blames where there are some is told, but not proven to be minimal."""
    return replace(snapshot, teams=tuple(replace(team, guarantee=()) for team in snapshot.teams))


def unreserved(policy: Policy) -> Policy:
    """The policy without reserved pools."""
    return replace(policy, reserved=())


@settings(deadline=None, max_examples=80)
@given(snapshot=snapshots(max_hosts=5, max_jobs=6), policy=policies())
def test_every_waiting_job_has_one_true_reason(snapshot: Snapshot, policy: Policy) -> None:
    plan = greedy_plan(snapshot, policy)
    started = {start.job for start in plan.starts}
    guaranteed = policy.reserved or any(team.guarantee for team in snapshot.teams)
    found = reasons(snapshot, policy, plan.starts, plan.preemptions, plan.reservations)
    waiting = [record for record in snapshot.jobs if record.state in WAITING and record.id not in started]
    assert [reason.job for reason in found] == [record.id for record in waiting]
    for record, reason in zip(waiting, found, strict=True):
        assert reason.sentence.endswith(".")
        assert (reason.kind in STANDING - {ReasonKind.NEVER_FITS}) <= (not reason.families)
        if reason.kind is ReasonKind.OUTRANKED and not reason.besides:
            assert reason.subject
            assert guaranteed or Placer(
                snapshot, policy, Books(without(snapshot, victims_of(plan, snapshot, record)))
            ).place(record)
        elif reason.families == (RuleFamily.PREEMPTION,):
            lower = {other.id for other in snapshot.jobs if other.level < record.level}
            assert reason.subject
            assert any(f"{job} " in reason.subject for job in lower)
        elif reason.kind is ReasonKind.UNDECIDED:
            # Beside plans the greedy may pass over a place that would leave their room.
            several = len(record.job.roles) > 1
            assert several or plan.reservations or guaranteed, "a gang of one role is placed wherever it fits"


def victims_of(plan: Plan, snapshot: Snapshot, record: JobRecord) -> set[JobId]:
    """The plan's victims below the job."""
    levels = {other.id: other.level for other in snapshot.jobs}
    return {act.job for act in plan.preemptions if levels[act.job] < record.level}


def without(snapshot: Snapshot, gone: set[JobId]) -> Snapshot:
    return replace(snapshot, jobs=tuple(record for record in snapshot.jobs if record.id not in gone))


def round_after(snapshot: Snapshot, plan: Plan, job: JobRecord, *, started: bool = True) -> Snapshot:
    """The world in which that plan is carried out, or all but its starts, and only this job waits."""
    placed = {start.job: start.placement for start in plan.starts} if started else {}
    gone = {act.job for act in plan.preemptions}
    jobs = []
    for record in snapshot.jobs:
        if record.id in placed:
            jobs.append(replace(record, state=JobState.RUNNING, placement=placed[record.id]))
        elif record.id != job.id:
            # Who is gone or waits still names layers with its labels, and holds hosts for its next attempt.
            if record.replacing and record.state is JobState.QUEUED:
                record = replace(record, not_before_s=snapshot.now_s + 1)
            elif record.state in WAITING or record.id in gone:
                record = replace(record, state=JobState.HELD, placement=None)
            jobs.append(record)
    return replace(snapshot, jobs=(*jobs, job))


@settings(deadline=None, max_examples=80)
@given(snapshot=snapshots(max_hosts=5, max_jobs=6).map(unguaranteed), policy=policies().map(unreserved))
def test_what_is_blamed_is_to_blame_and_what_is_advised_works(snapshot: Snapshot, policy: Policy) -> None:
    plan = greedy_plan(snapshot, policy)
    started = {start.job for start in plan.starts}
    holders = {record.id for record in snapshot.jobs if record.replacing}
    if plan.reservations or snapshot.reservations or holders & started:
        # What is held for others is not for all either.
        return
    explainer = Explainer(snapshot, policy, plan.starts, plan.preemptions, reservations=plan.reservations)
    whole = all(gpu.healthy for host in snapshot.hosts for gpu in host.gpus)
    for record, reason in zip(snapshot.jobs, [explainer.reason(r) for r in snapshot.jobs], strict=True):
        if record.state is not JobState.QUEUED or record.id in started or reason.kind in STANDING:
            continue
        if record.job.preemptible is Preemptible.NEVER:
            # Without a guarantee it starts nowhere, whatever is lifted beside.
            continue
        # What victims leave over is not for all; `round_after` cannot say so.
        if len(victims_of(plan, snapshot, record)) < len(plan.preemptions):
            continue
        for tip in explainer.tips(record):
            assert greedy(round_after(snapshot, plan, replace(record, job=tip.job)), policy), tip.text
        lifts = explainer.blame(record)
        if not lifts or any(lift.anywhere for lift in lifts):
            continue
        assert not greedy(round_after(snapshot, plan, record), policy)
        job = record.job
        for lift in lifts:
            job = lift.change(job) if lift.change else job
        there = not any(lift.world.no_starts for lift in lifts)
        lifted = round_after(snapshot, plan, replace(record, job=job), started=there)
        if any(lift.world.no_running for lift in lifts):
            lifted = replace(lifted, jobs=tuple(other for other in lifted.jobs if other.placement is None))
        if any(lift.world.no_lower for lift in lifts):
            ran = {other.id for other in snapshot.jobs if other.placement and other.level < record.level}
            lifted = without(lifted, ran)
        if any(lift.world.no_limits for lift in lifts):
            lifted = replace(lifted, teams=tuple(replace(team, limit=None) for team in lifted.teams))
        numbers = replace(policy, reserved=()) if any(lift.world.no_reserve for lift in lifts) else policy
        if any(lift.world.no_windows for lift in lifts):
            lifted = replace(lifted, hosts=tuple(replace(host, windows=()) for host in lifted.hosts))
        if any(lift.world.all_hosts for lift in lifts):
            lifted = unheld(replace(lifted, hosts=tuple(well(host) for host in lifted.hosts)))
        # Whole cards that were broken may make one host enough, which confines the gang to it.
        if whole or not any(lift.world.all_hosts for lift in lifts):
            assert greedy(lifted, numbers), [lift.name for lift in lifts]
