"""What preemption cost in a simulation: for each eviction its victim, its beneficiaries, and the GPU time it took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..model.decision import Decision, Preemption
from ..model.event import Event, GangRunning
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.books import Books
from ..solver.placing import Placer
from ..solver.reprieve import reprieve
from ..solver.verify import verify_starts
from .heap import Key


@dataclass(slots=True, kw_only=True)
class Eviction:
    """One preemption, with what it took in GPU-seconds.

    `lost` is work that no checkpoint held; `handover` lasts from the warning until the hosts are clean; `restart` is to
    launch, fetch and read the checkpoint when the job came back. `served`: a beneficiary came to run. `avoidable`: all
    beneficiaries would have fitted with this victim left alone.
    """

    job: JobId
    level: int
    gpu_milli: int
    at_s: int
    served: bool = False
    avoidable: bool = False
    lost_gpu_s: float = 0.0
    handover_gpu_s: float = 0.0
    restart_gpu_s: float = 0.0

    @property
    def needless(self) -> bool:
        """Whether nobody gained by it."""
        return self.avoidable or not self.served


class Evictions:
    """All evictions of a run; the executor adds what each took."""

    def __init__(self, policy: Policy) -> None:
        self.all: list[Eviction] = []
        self._policy = policy
        self._victims: dict[Key, Eviction] = {}
        self._hoped: dict[Key, list[Eviction]] = defaultdict(list)
        self._last: dict[JobId, Eviction] = {}

    def decided(self, snapshot: Snapshot, decision: Decision) -> None:
        """A round was committed."""
        records = {record.id: record for record in snapshot.jobs} if decision.preemptions else {}
        for act in decision.preemptions:
            record = records[act.job]
            found = Eviction(
                job=act.job,
                level=record.level,
                gpu_milli=record.job.gpu_milli,
                at_s=decision.now_s,
                avoidable=avoidable(snapshot, self._policy, decision, act),
            )
            self.all.append(found)
            self._victims[act.job, act.attempt] = self._last[act.job] = found
            for name in act.beneficiaries:
                self._hoped[name, records[name].attempt + 1].append(found)

    def told(self, events: Iterable[Event]) -> None:
        """Beneficiaries that run have been served."""
        for event in events:
            if isinstance(event, GangRunning):
                for eviction in self._hoped.pop((event.job, event.attempt), ()):
                    eviction.served = True

    def of(self, key: Key) -> Eviction | None:
        """The eviction that ends the attempt."""
        return self._victims.get(key)

    def before(self, job: JobId) -> Eviction | None:
        """The eviction that the job now comes back from; told once."""
        return self._last.pop(job, None)


def avoidable(snapshot: Snapshot, policy: Policy, decision: Decision, act: Preemption) -> bool:
    """Whether all for whom the job leaves could start elsewhere with it left alone, and the rest as decided.

    Says yes only where the verifier finds nothing wrong with that; what is freed for higher levels alone is seen late,
    so a few avoidable ones may be missed.
    """
    others = [other.job for other in decision.preemptions if other.job != act.job]
    records = {record.id: record for record in snapshot.jobs}
    books = Books(snapshot, policy.reserved)
    for name in others:
        placed = records[name].placement
        for worker in placed.workers if placed is not None else ():
            books.give(records[name].job, worker)
    hoping = set(act.beneficiaries)
    starts = [start for start in decision.starts if start.job not in hoping]
    for start in starts:
        for worker in start.placement.workers:
            books.take(records[start.job].job, worker)
    placer = Placer(snapshot, policy, books)
    for start in decision.starts:
        if start.job in hoping:
            placement = placer.place(records[start.job])
            if placement is None:
                return False
            starts.append(replace(start, placement=placement))
    plan = reprieve(snapshot, policy, starts, others)
    return not verify_starts(snapshot, policy, plan.starts, plan.preemptions)
