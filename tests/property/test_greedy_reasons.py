"""Whatever the world: one reason for each waiting job, and what it blames is to blame."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from strategies import policies, snapshots

from phalanx.model.decision import ReasonKind, Start
from phalanx.model.job_state import WAITING, JobState
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.books import Books
from phalanx.solver.empty_fleet import well
from phalanx.solver.explain import Explainer, reasons
from phalanx.solver.greedy import greedy
from phalanx.solver.placing import Placer

STANDING = {ReasonKind.NEVER_FITS, ReasonKind.HELD, ReasonKind.BLOCKED, ReasonKind.BACK_OFF}


@settings(deadline=None, max_examples=80)
@given(snapshot=snapshots(max_hosts=5, max_jobs=6), policy=policies())
def test_every_waiting_job_has_one_true_reason(snapshot: Snapshot, policy: Policy) -> None:
    starts = greedy(snapshot, policy)
    started = {start.job for start in starts}
    found = reasons(snapshot, policy, starts)
    waiting = [record for record in snapshot.jobs if record.state in WAITING and record.id not in started]
    assert [reason.job for reason in found] == [record.id for record in waiting]
    for record, reason in zip(waiting, found, strict=True):
        assert reason.sentence.endswith(".")
        assert (reason.kind in STANDING - {ReasonKind.NEVER_FITS}) <= (not reason.families)
        if reason.kind is ReasonKind.OUTRANKED and not reason.besides:
            assert reason.subject
            assert Placer(snapshot, policy, Books(snapshot)).place(record) is not None
        elif reason.kind is ReasonKind.UNDECIDED:
            assert len(record.job.roles) > 1, "a gang of one role is placed wherever it fits"


def round_after(snapshot: Snapshot, starts: tuple[Start, ...], job: JobRecord) -> Snapshot:
    """The world in which those starts run already and only this job waits."""
    placed = {start.job: start.placement for start in starts}
    jobs = [
        replace(record, state=JobState.RUNNING, placement=placed[record.id]) if record.id in placed else record
        for record in snapshot.jobs
        if record.id in placed or record.state not in WAITING
    ]
    return replace(snapshot, jobs=(*jobs, job))


@settings(deadline=None, max_examples=80)
@given(snapshot=snapshots(max_hosts=5, max_jobs=6), policy=policies())
def test_what_is_blamed_is_to_blame_and_what_is_advised_works(snapshot: Snapshot, policy: Policy) -> None:
    starts = greedy(snapshot, policy)
    started = {start.job for start in starts}
    explainer = Explainer(snapshot, policy, starts)
    whole = all(gpu.healthy for host in snapshot.hosts for gpu in host.gpus)
    for record, reason in zip(snapshot.jobs, [explainer.reason(r) for r in snapshot.jobs], strict=True):
        if record.state is not JobState.QUEUED or record.id in started or reason.kind in STANDING:
            continue
        for tip in explainer.tips(record):
            assert greedy(round_after(snapshot, starts, replace(record, job=tip.job)), policy), tip.text
        lifts = explainer.blame(record)
        if not lifts or any(lift.anywhere for lift in lifts):
            continue
        assert not greedy(round_after(snapshot, starts, record), policy)
        job, after = record.job, starts
        for lift in lifts:
            job = lift.change(job) if lift.change else job
            after = () if lift.world.no_starts else after
        lifted = round_after(snapshot, after, replace(record, job=job))
        if any(lift.world.no_running for lift in lifts):
            lifted = replace(lifted, jobs=lifted.jobs[-1:])
        if any(lift.world.all_hosts for lift in lifts):
            lifted = replace(lifted, hosts=tuple(well(host) for host in lifted.hosts))
        # Whole cards that were broken may make one host enough, which confines the gang to it.
        if whole or not any(lift.world.all_hosts for lift in lifts):
            assert greedy(lifted, policy), [lift.name for lift in lifts]
