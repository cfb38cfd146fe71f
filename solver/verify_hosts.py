"""The verifier's half about hosts and cards: who may be where (eligibility), and how much of what (capacity)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.host import MILLI, Gpu, Host, HostState
from ..model.ids import HostId, TeamId
from ..model.job import Job, Role, WorkerRequest
from ..model.job_state import JobState, StopCause
from ..model.placement import Placement, WorkerPlacement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import CardKind, allowed_sites, card_memory, surely_over_s
from .verify_rights import returning
from .violation import Violation


def eligibility(snapshot: Snapshot, policy: Policy, starts: Sequence[Start]) -> Iterator[Violation]:
    """Each worker on a host that takes work, at an allowed site, on healthy cards of one kind that serve its role."""
    hosts = {host.id: host for host in snapshot.hosts}
    records = {record.id: record for record in snapshot.jobs}
    for start in starts:
        record = records.get(start.job)
        if record is None:
            continue
        job = record.job
        sites = allowed_sites(job, snapshot, policy)
        for name in start.placement.hosts:
            host = hosts.get(name)
            if host is None:
                yield _eligibility(
                    start.job, 1, "hosts", f"job {job.id} is placed on {name}, which is not in the fleet"
                )
            else:
                yield from _host_takes(record, host, snapshot)
            if host is not None and host.path.site not in sites:
                text = f"job {job.id} is placed on {name} of site {host.path.site}; it may run on {sorted(sites)}"
                yield _eligibility(start.job, 1, "hosts", text)
            if host is not None and host.windows:
                yield from _ends_in_time(record, host, snapshot, policy)
        for role in job.roles:
            types: set[str] = set()
            for worker in start.placement.workers:
                if worker.role == role.name and worker.host in hosts:
                    yield from _cards_serve(job, role, worker, hosts[worker.host], types)
            if len(types) > 1:
                text = f"role {role.name} of job {job.id} is spread over the GPU types {sorted(types)}"
                yield _eligibility(start.job, len(types) - 1, "GPU types", text)


def _host_takes(record: JobRecord, host: Host, snapshot: Snapshot) -> Iterator[Violation]:
    """The host is ready; a spare only replaces lost hosts; one that is held is for its gang, or for higher levels."""
    if host.state is not HostState.READY:
        text = f"job {record.id} is placed on {host.id}, which is {host.state.value}"
        yield _eligibility(record.id, 1, "hosts", text)
        return
    if host.spare and (record.replacing_until_s <= snapshot.now_s or record.resized_to is not None):
        yield _eligibility(record.id, 1, "hosts", f"job {record.id} is placed on {host.id}, which is a spare")
    owners = [
        other
        for other in snapshot.jobs
        if host.id in other.replacing and other.replacing_until_s > snapshot.now_s and _comes_back(other)
    ]
    top = max((other.level for other in owners), default=-1)
    if owners and record.level <= top and record.id not in {other.id for other in owners if other.level == top}:
        text = f"job {record.id} is placed on {host.id}, which is held for job {owners[0].id} that comes back to it"
        yield _eligibility(record.id, 1, "hosts", text)


def _comes_back(record: JobRecord) -> bool:
    """Whether the job waits to start again, or is stopping to do so."""
    return record.state is JobState.QUEUED or record.stop_cause is StopCause.REQUEUED


def _ends_in_time(record: JobRecord, host: Host, snapshot: Snapshot, policy: Policy) -> Iterator[Violation]:
    """The host is clean again before the next of its maintenance windows starts."""
    over_s = surely_over_s(record, snapshot, policy)
    ahead = [window.start_s for window in host.windows if window.end_s > snapshot.now_s]
    if ahead and over_s > min(ahead):
        first = min(ahead)
        begins = f"begins in {first - snapshot.now_s} s" if first > snapshot.now_s else "has begun"
        text = (
            f"job {record.id} may hold {host.id} for {over_s - snapshot.now_s} s; a maintenance window of the host "
            f"{begins}"
        )
        yield _eligibility(record.id, over_s - first, "s", text)


def _cards_serve(job: Job, role: Role, worker: WorkerPlacement, host: Host, types: set[str]) -> Iterator[Violation]:
    """Judges the cards of one worker, and adds their types to `types`."""
    who = f"{role.name}[{worker.index}] of job {job.id}"
    if not role.request.gpu_milli:
        if worker.gpus:
            text = f"{who} asks for no GPU and is given {list(worker.gpus)} of {host.id}"
            yield _eligibility(job.id, len(worker.gpus), "GPUs", text)
        return
    cards: list[Gpu] = []
    for index in worker.gpus:
        card = host.gpu(index)
        if card is None:
            yield _eligibility(job.id, 1, "GPUs", f"{who} is given GPU {index}, which {host.id} does not have")
        else:
            cards.append(card)
    types.update(card.gpu_type for card in cards)
    kinds = {CardKind.of(card) for card in cards}
    if len(kinds) > 1:
        text = f"{who} is given GPUs of {len(kinds)} kinds on {host.id}: {sorted(kinds)}"
        yield _eligibility(job.id, len(kinds) - 1, "kinds", text)
    for card in cards:
        where = f"GPU {card.index} of {host.id}"
        if not card.healthy:
            yield _eligibility(job.id, 1, "GPUs", f"{who} is given {where}, which is broken")
        if role.throughput_milli(card.gpu_type) is None:
            accepted = [choice.gpu_type for choice in role.gpu_types]
            yield _eligibility(job.id, 1, "GPUs", f"{who} is given {where}, an {card.gpu_type}; it accepts {accepted}")
        short = role.request.gpu_memory_mib - card.memory_mib
        if short > 0:
            asked = role.request.gpu_memory_mib
            text = f"{who} asks {asked} MiB per GPU and is given {where}, which has {card.memory_mib} MiB"
            yield _eligibility(job.id, short, "MiB", text)


def _eligibility(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.ELIGIBILITY, subject=subject, amount=amount, unit=unit, message=message)


@dataclass(frozen=True, slots=True)
class Part:
    """One worker's part of a host: whose it is, what it asks, and the cards it holds."""

    record: JobRecord
    request: WorkerRequest
    gpus: tuple[int, ...]


@dataclass(slots=True)
class _Card:
    """What lies on one card: workers that hold it whole, and fractions in milli-GPU and MiB."""

    whole: int = 0
    fractions: int = 0
    milli: int = 0
    memory_mib: int = 0
    teams: set[TeamId] = field(default_factory=set)


@dataclass(slots=True)
class _Load:
    """What lies on one host."""

    amounts: list[int] = field(default_factory=lambda: [0, 0, 0])
    cards: dict[int, _Card] = field(default_factory=dict)

    def add(self, host: Host, part: Part) -> None:
        request = part.request
        for number, amount in enumerate((request.cpu_milli, request.memory_mib, request.network_mbps)):
            self.amounts[number] += amount
        for index in part.gpus:
            card = host.gpu(index)
            if card is None:
                continue
            load = self.cards.setdefault(index, _Card())
            load.teams.add(part.record.job.team)
            if request.fractional:
                load.fractions += 1
                load.milli += request.gpu_milli
                load.memory_mib += card_memory(request, card.memory_mib)
            else:
                load.whole += 1


def _load(host: Host, parts: Iterable[Part]) -> _Load:
    load = _Load()
    for part in parts:
        load.add(host, part)
    return load


def parts_by_host(
    placed: Iterable[tuple[JobRecord, Placement | None]], hosts: Collection[HostId]
) -> dict[HostId, list[Part]]:
    """The parts of the given hosts that these placements take."""
    parts: dict[HostId, list[Part]] = {name: [] for name in hosts}
    for record, placement in placed if parts else ():
        requests = {role.name: role.request for role in record.job.roles}
        for worker in placement.workers if placement else ():
            if worker.host in parts and worker.role in requests:
                parts[worker.host].append(Part(record, requests[worker.role], worker.gpus))
    return parts


def capacity(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    resizes: Sequence[Resize] = (),
) -> Iterator[Violation]:
    """No host or card that the decision touches carries more than it has; each worker holds the cards it asks for.

    Judged on the state in which the preempted jobs have left, and those that return are where they return to.
    """
    hosts = {host.id: host for host in snapshot.hosts}
    records = {record.id: record for record in snapshot.jobs}
    gone = {*(act.job for act in preemptions), *(act.job for act in resizes)}
    acts = (*starts, *returning(resizes))
    placed = [(records[act.job], act.placement) for act in acts if act.job in records]
    touched = {worker.host for _, placement in placed for worker in placement.workers if worker.host in hosts}
    for record, placement in placed:
        yield from card_counts(record.job, placement)
    held = parts_by_host(((r, r.placement) for r in snapshot.jobs if r.id not in gone), touched)
    added = parts_by_host(placed, touched)
    for name in sorted(touched):
        yield from host_within(hosts[name], held[name], added[name])


def card_counts(job: Job, placement: Placement) -> Iterator[Violation]:
    """Workers that are given more or fewer cards than they ask for."""
    requests = {role.name: role.request for role in job.roles}
    for worker in placement.workers:
        request = requests.get(worker.role)
        if request is None or not request.gpu_milli:
            continue
        asked, given = 1 if request.fractional else request.whole_gpus, len(worker.gpus)
        if asked != given:
            text = f"{worker.role}[{worker.index}] of job {job.id} needs {asked} cards and is given {given}"
            yield _capacity(job.id, abs(asked - given), "GPUs", text)


def host_within(host: Host, held: Sequence[Part], added: Sequence[Part]) -> Iterator[Violation]:
    """What the added parts make the host, or a card of it, carry beyond what it has."""
    before, after = _load(host, held), _load(host, (*held, *added))
    limits = (host.cpu_milli, host.memory_mib, host.network_mbps)
    units = (("CPU", "milli-cores"), ("memory", "MiB"), ("network", "Mbit/s"))
    for (what, unit), limit, old, new in zip(units, limits, before.amounts, after.amounts, strict=True):
        over = new - max(limit, old)
        if over > 0:
            text = f"host {host.id} would carry {new} {unit} of {what} and has {limit}"
            yield _capacity(host.id, over, unit, text)
    for index, new_card in sorted(after.cards.items()):
        old_card = before.cards.get(index, _Card())
        if (old_card.whole, old_card.fractions) != (new_card.whole, new_card.fractions):
            yield from _card_within(host, index, old_card, new_card)


def _card_within(host: Host, index: int, old: _Card, new: _Card) -> Iterator[Violation]:
    card = host.gpu(index)
    where = f"GPU {index} of {host.id}"
    workers = new.whole + new.fractions
    if card is None:
        return
    if new.whole and workers > 1:
        text = f"{where} would carry {workers} workers, of which {new.whole} hold it whole"
        yield _capacity(f"{host.id}/{index}", workers - 1, "workers", text)
        return
    if new.milli > max(MILLI, old.milli):
        text = f"{where} would carry {new.milli} milli-GPU of fractions"
        yield _capacity(f"{host.id}/{index}", new.milli - max(MILLI, old.milli), "milli-GPU", text)
    if new.memory_mib > max(card.memory_mib, old.memory_mib):
        over = new.memory_mib - max(card.memory_mib, old.memory_mib)
        text = f"{where} would have {new.memory_mib} MiB booked and has {card.memory_mib}"
        yield _capacity(f"{host.id}/{index}", over, "MiB", text)
    if len(new.teams) > 1:
        text = f"{where} would be shared by the teams {sorted(new.teams)}; time-slicing isolates nothing"
        yield _capacity(f"{host.id}/{index}", len(new.teams) - 1, "teams", text)


def _capacity(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.CAPACITY, subject=subject, amount=amount, unit=unit, message=message)
