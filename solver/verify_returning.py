"""The verifier's half about returns: who may come back elsewhere or at another size, and with what (docs/rounds.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.ids import JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .order import value_milli
from .returning import HOUR_S, moves_left, return_loss, returners, saves_its_work, unwanted
from .sizes import as_started
from .verify_gang import complete, topology
from .verify_hosts import eligibility
from .verify_rights import returning
from .violation import Violation


def returns(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption],
    resizes: Sequence[Resize],
) -> Iterator[Violation]:
    """Only named jobs return, once, as the next attempt, at a size they may have, where a start of theirs might be."""
    if not resizes:
        return
    records = {record.id: record for record in snapshot.jobs}
    stopped = {act.job for act in preemptions}
    for name, number in Counter(act.job for act in resizes).items():
        if number > 1:
            yield _fault(name, number - 1, "returns", f"job {name} returns {number} times in one round")
    for act in resizes:
        record = records.get(act.job)
        if record is None or record.placement is None:
            yield _fault(act.job, 1, "returns", f"job {act.job} does not run, so it cannot return")
            continue
        if act.job in stopped:
            yield _fault(act.job, 1, "returns", f"job {act.job} is preempted, so it cannot return in the same round")
        if act.attempt != record.attempt + 1:
            text = f"job {act.job} returns as attempt {act.attempt}; its next attempt is {record.attempt + 1}"
            yield _fault(act.job, abs(act.attempt - record.attempt - 1), "attempts", text)
        yield from complete(as_started(record, act.placement), act.placement)
        yield from _stays_on_types(record, act, snapshot)
    yield from _named(snapshot, policy, resizes, records)
    places = returning([act for act in resizes if act.job in records])
    for family in (eligibility, topology):
        yield from family(snapshot, policy, places)


def _named(
    snapshot: Snapshot,
    policy: Policy,
    resizes: Sequence[Resize],
    records: Mapping[JobId, JobRecord],
) -> Iterator[Violation]:
    """Each returns smaller as a named shrinker, as it is as a named mover, or larger on hosts nobody waits for."""
    named = returners(snapshot, policy)
    shrinkers, movers = ({record.id for record in who} for who in (named.shrinkers, named.movers))
    moved = 0
    for act in resizes:
        record = records.get(act.job)
        if record is None or record.placement is None:
            continue
        before, after = len(record.placement.workers), len(act.placement.workers)
        moved += after >= before
        if after < before and act.job not in shrinkers:
            yield _fault(
                act.job, before - after, "workers", f"job {act.job} returns smaller, and may not be shrunk now"
            )
        if after == before and act.job not in movers:
            yield _fault(act.job, 1, "moves", f"job {act.job} is moved, and may not be moved now")
        if after > before:
            yield from _grows(record, act, snapshot, policy)
    over = moved - moves_left(snapshot, policy)
    if over > 0:
        text = f"{moved} jobs are moved or grow; {policy.eviction.moves_per_hour} may in an hour"
        yield _fault(resizes[0].job, over, "moves", text)


def _grows(record: JobRecord, act: Resize, snapshot: Snapshot, policy: Policy) -> Iterator[Violation]:
    """It ran long enough, nobody who waits could use its hosts, and it is worth its restart."""
    ran_s = snapshot.now_s - (record.started_s or snapshot.now_s)
    wanted = [name for name in act.placement.hosts if name not in unwanted(snapshot, policy)]
    if wanted:
        yield _fault(act.job, len(wanted), "hosts", f"job {act.job} grows on {wanted}, which others wait for")
    if not saves_its_work(record, snapshot.now_s, policy) or ran_s < policy.time.grow_after_s:
        text = f"job {act.job} grows after {ran_s} s; it may after {policy.time.grow_after_s} s, if it saves its work"
        yield _fault(act.job, 1, "s", text)
    if any(at > snapshot.now_s - HOUR_S for at in record.moves):
        yield _fault(act.job, 1, "moves", f"job {act.job} grows, and was moved or grew within the last hour")
    larger = replace(record, job=as_started(record, act.placement))
    gained = policy.objective.horizon_s * (value_milli(larger, policy) - value_milli(record, policy))
    lost = return_loss(record, snapshot, policy)
    if gained <= lost:
        text = f"job {act.job} gains {gained} mGPU*s by growing and loses {lost}"
        yield _fault(act.job, lost - gained + 1, "mGPU*s", text)


def _stays_on_types(record: JobRecord, act: Resize, snapshot: Snapshot) -> Iterator[Violation]:
    """Each role on the GPU type on which it is."""
    types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}

    def used(placement: Placement | None) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for worker in placement.workers if placement is not None else ():
            for index in worker.gpus:
                found.setdefault(worker.role, set()).add(types.get((worker.host, index), "?"))
        return found

    before, after = used(record.placement), used(act.placement)
    for role, names in after.items():
        other = names - before.get(role, set())
        if other:
            text = f"role {role} of job {act.job} returns on {sorted(other)}; it runs on {sorted(before.get(role, ()))}"
            yield _fault(act.job, len(other), "GPU types", text)


def _fault(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.ELASTIC, subject=subject, amount=amount, unit=unit, message=message)
