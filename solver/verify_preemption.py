"""The verifier's half about preemption: who may be stopped, for whom, and what it frees for them (docs/rounds.md)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.host import MILLI
from ..model.ids import JobId
from ..model.job_state import JobState
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import loss, victims
from .order import value_milli
from .rights import never
from .verify_affinity import Labelled
from .verify_quota import Holdings
from .verify_reserved import Pooled
from .verify_rights import Sides
from .verify_rooms import rooms_left, withheld
from .violation import Violation


def preemption(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption],
    resizes: Sequence[Resize] = (),
) -> Iterator[Violation]:
    """Only legal victims leave, each for the starts that need it; what they free goes to those that may evict them."""
    yield from _victims(snapshot, policy, preemptions)
    yield from _ties(snapshot, policy, starts, preemptions, resizes)
    rooms = rooms_left(snapshot, starts, {act.job for act in preemptions}, resizes)
    for room in rooms.values():
        yield from withheld(room)


def _victims(snapshot: Snapshot, policy: Policy, preemptions: Sequence[Preemption]) -> Iterator[Violation]:
    """Each victim may be evicted now, and is stopped once, as the attempt that runs, at its stated loss."""
    records = {record.id: record for record in snapshot.jobs}
    legal = {record.id for record in victims(snapshot, policy)}
    for name, number in Counter(act.job for act in preemptions).items():
        if number > 1:
            yield _fault(name, number - 1, "preemptions", f"job {name} is preempted {number} times in one round")
    for act in preemptions:
        record = records.get(act.job)
        if record is None:
            yield _fault(act.job, 1, "victims", f"there is no job {act.job}, so it cannot be preempted")
            continue
        if act.job not in legal:
            text = f"job {act.job} may not be preempted: {_standing(record, snapshot.now_s, policy)}"
            yield _fault(act.job, 1, "victims", text)
        if act.attempt != record.attempt:
            text = f"attempt {act.attempt} of job {act.job} is preempted; attempt {record.attempt} runs"
            yield _fault(act.job, abs(act.attempt - record.attempt), "attempts", text)
        milli = value_milli(record, policy)
        lost = -(-loss(record, milli, snapshot.now_s, policy) // MILLI)
        if act.loss_gpu_s != lost:
            text = f"preempting job {act.job} is said to lose {act.loss_gpu_s} GPU-seconds; it loses {lost}"
            yield _fault(act.job, abs(act.loss_gpu_s - lost), "GPU*s", text)


def _standing(record: JobRecord, now_s: int, policy: Policy) -> str:
    limits = policy.eviction
    recent = sum(time > now_s - limits.evictions_window_s for time in record.evictions)
    ran_s = now_s - record.started_s if record.started_s is not None else 0
    if record.state is not JobState.RUNNING:
        return f"it is {record.state}"
    if never(record):
        return "it is preemptible never"
    if ran_s < limits.min_run_s:
        return f"it has run for {ran_s} s of at least {limits.min_run_s} s"
    if recent >= limits.max_evictions:
        return f"it was evicted {recent} times in the last {limits.evictions_window_s} s"
    lost_s = loss(record, 1, now_s, policy)
    if limits.max_loss_s is not None and lost_s > limits.max_loss_s:
        return f"it would lose {lost_s} s of each GPU, of at most {limits.max_loss_s} s"
    return f"no job waits that may evict it at its level {record.level}"


def _ties(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption],
    resizes: Sequence[Resize],
) -> Iterator[Violation]:
    """A start waits for those in its way that leave for it, or return; a victim leaves for exactly these starts."""
    records = {record.id: record for record in snapshot.jobs}
    told = {act.job: act.beneficiaries for act in reversed(preemptions)}
    holdings, labelled, pooled = Holdings(snapshot, (), ()), Labelled(snapshot, (), ()), Pooled(snapshot, policy)
    sides, back = Sides(snapshot, starts, resizes), {each.job for each in resizes}

    def place(record: JobRecord, placement: Placement) -> set[object]:
        return {
            *placement.hosts,
            *holdings.held(record.job, placement),
            *labelled.places(record, placement),
            *(("pool", *pool) for pool in pooled.held(record, placement)),
        }

    coming: dict[object, set[JobId]] = defaultdict(set)
    near: dict[JobId, set[JobId]] = {start.job: set() for start in starts if start.job in records}
    position = {record.id: number for number, record in enumerate(snapshot.jobs)}
    for start in starts:
        for name in place(records[start.job], start.placement) if start.job in records else ():
            coming[name].add(start.job)
    for record in snapshot.jobs:
        if record.id not in told and record.id not in back:
            continue
        beside = {job for name in (place(record, record.placement) if record.placement else ()) for job in coming[name]}
        served = {job for job in beside if sides.may(records[job], record)}
        for job in served:
            near[job].add(record.id)
        if record.id in told:
            yield from _beneficiaries(record.id, told[record.id], _in_order(position, served))
    for start in starts:
        right = _in_order(position, near.get(start.job, set()))
        if start.job in records and start.after != right:
            text = f"job {start.job} is to start after {list(start.after)} have left; {list(right)} leave for it"
            yield _fault(start.job, max(1, len(set(start.after) ^ set(right))), "victims", text)


def _beneficiaries(victim: JobId, told: tuple[JobId, ...], right: tuple[JobId, ...]) -> Iterator[Violation]:
    if not right:
        text = f"job {victim} is preempted, and is in the way of no start that may evict it"
        yield _fault(victim, 1, "beneficiaries", text)
    if told != right:
        text = f"job {victim} is said to leave for {list(told)}; it leaves for {list(right)}"
        yield _fault(victim, max(1, len(set(told) ^ set(right))), "beneficiaries", text)


def _in_order(position: Mapping[JobId, int], jobs: Collection[JobId]) -> tuple[JobId, ...]:
    """The jobs in the order of the snapshot."""
    return tuple(sorted(jobs, key=position.__getitem__))


def _fault(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.PREEMPTION, subject=subject, amount=amount, unit=unit, message=message)
