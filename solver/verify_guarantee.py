"""The verifier's half about guarantees: what starts inside is covered, and what must start inside does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from ..model.decision import RuleFamily, Start
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import candidates
from .rights import Key, Rights, only_inside, rights_of
from .violation import Violation


def guarantee(snapshot: Snapshot, policy: Policy, starts: Sequence[Start]) -> Iterator[Violation]:
    """Inside starts fit into what their teams' running work leaves of the guarantees; who must be inside is."""
    rights = rights_of(snapshot)
    waiting = {record.id: record for record in candidates(snapshot)}
    claimed: dict[Key, list[tuple[JobId, int]]] = defaultdict(list)
    for start in starts:
        record = waiting.get(start.job)
        if record is None:
            continue
        if not start.inside_guarantee:
            if only_inside(record):
                text = f"job {record.id} of tier {record.job.tier} is preemptible never, and starts outside a guarantee"
                yield _fault(record.id, record.job.gpu_milli, text)
            continue
        if record.level < 1 or not rights.coverable(record.job, start.placement):
            yield _fault(record.id, record.job.gpu_milli, f"job {record.id} starts inside: {_uncovered(record)}")
            continue
        for key, milli in rights.counted(record.job, start.placement).items():
            claimed[key].append((record.id, milli))
    used = _used(snapshot, rights) if claimed else Counter()
    for (team, gpu_type), claims in sorted(claimed.items()):
        promised, in_use = rights.guarantee[team, gpu_type], used[team, gpu_type]
        claim = sum(milli for _, milli in claims)
        over = min(claim, in_use + claim - promised)
        if over > 0:
            text = (
                f"team {team} is guaranteed {promised} milli-GPU of {gpu_type} and uses {in_use}; {claim} more start "
                f"inside, the last with job {claims[-1][0]}"
            )
            yield _fault(team, over, text)


def _uncovered(record: JobRecord) -> str:
    if record.level < 1:
        return "level 0 has no guarantee"
    if not record.job.gpu_milli:
        return "it uses no GPUs"
    return f"no team at or above {record.job.team} is guaranteed a GPU type that it uses"


def _used(snapshot: Snapshot, rights: Rights) -> Counter[Key]:
    """What work of levels >= 1 holds of each guarantee now, victims of this round included."""
    used: Counter[Key] = Counter()
    for record in snapshot.jobs:
        if record.placement is not None and record.level >= 1:
            used.update(rights.counted(record.job, record.placement))
    return used


def _fault(subject: str, amount: int, message: str) -> Violation:
    return Violation(
        family=RuleFamily.GUARANTEE, subject=subject, amount=max(1, amount), unit="milli-GPU", message=message
    )
