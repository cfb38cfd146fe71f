"""Starts and the preemptions that make room for them, tied together as a decision states them (docs/rounds.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..model.decision import Preemption, Start
from ..model.host import MILLI
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import loss
from .order import value_milli
from .ties import Ties


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round would do: gangs that start, and running gangs that leave for them."""

    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preemption, ...] = ()


def assemble(snapshot: Snapshot, policy: Policy, starts: Sequence[Start], victims: Iterable[JobId]) -> Plan:
    """The plan of these starts and victims: who waits for whom, for whom each victim leaves, and what that costs."""
    chosen = set(victims)
    leaving = [record for record in snapshot.jobs if record.id in chosen]
    ties = Ties(snapshot, policy, leaving)
    position = {record.id: number for number, record in enumerate(snapshot.jobs)}
    tied = []
    beneficiaries: dict[JobId, list[JobId]] = defaultdict(list)
    for start in sorted(starts, key=lambda start: position[start.job]):
        after = ties.before(start)
        tied.append(replace(start, after=after))
        for victim in after:
            beneficiaries[victim].append(start.job)
    preemptions = tuple(
        Preemption(
            job=record.id,
            attempt=record.attempt,
            beneficiaries=tuple(beneficiaries[record.id]),
            loss_gpu_s=loss_gpu_s(record, snapshot.now_s, policy),
        )
        for record in leaving
    )
    return Plan(tuple(tied), preemptions)


def loss_gpu_s(record: JobRecord, now_s: int, policy: Policy) -> int:
    """The loss of preempting the job, in GPU-seconds, rounded up."""
    return -(-loss(record, value_milli(record, policy), now_s, policy) // MILLI)
