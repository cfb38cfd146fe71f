"""The verifier's half about the gang itself: complete, in rank order, and together where it must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..model.decision import RuleFamily, Start
from ..model.host import Host
from ..model.ids import HostId
from ..model.job import Job, Role
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..model.topology import Layer
from .confinements import confinements
from .demand import candidates
from .sizes import as_started
from .violation import Violation


def gang(snapshot: Snapshot, policy: Policy, starts: Sequence[Start]) -> Iterator[Violation]:
    """Only candidates start, each once, as its next attempt, with every worker exactly once in rank order."""
    waiting = {record.id: record for record in candidates(snapshot)}
    for name, number in Counter(start.job for start in starts).items():
        if number > 1:
            yield _gang(name, number - 1, "starts", f"job {name} is started {number} times in one round")
    for start in starts:
        record = waiting.get(start.job)
        if record is None:
            yield _gang(start.job, 1, "starts", f"{_standing(snapshot, start)}, so it cannot be started")
            continue
        if start.attempt != record.attempt + 1:
            yield _gang(
                start.job,
                abs(start.attempt - record.attempt - 1),
                "attempts",
                f"job {start.job} is started as attempt {start.attempt}; its next attempt is {record.attempt + 1}",
            )
        yield from complete(as_started(record, start.placement), start.placement)


def _standing(snapshot: Snapshot, start: Start) -> str:
    record = next((record for record in snapshot.jobs if record.id == start.job), None)
    if record is None:
        return f"there is no job {start.job}"
    if record.not_before_s > snapshot.now_s:
        return f"job {start.job} is in a back-off for {record.not_before_s - snapshot.now_s} s more"
    return f"job {start.job} is {record.state}"


def complete(job: Job, placement: Placement) -> Iterator[Violation]:
    """Workers of the job that are missing there, or too many, or not in rank order."""
    asked = [(role.name, index) for role in job.roles for index in range(role.count)]
    given = [(worker.role, worker.index) for worker in placement.workers]
    missing = Counter(asked) - Counter(given)
    extra = Counter(given) - Counter(asked)
    for what, workers in (("lacks", missing), ("has too many of", extra)):
        if workers:
            number = workers.total()
            role, index = min(workers)
            text = f"job {job.id} {what} {number} of its {len(asked)} workers, first {role}[{index}]"
            yield _gang(job.id, number, "workers", text)
    if not missing and not extra and asked != given:
        wrong = sum(a != b for a, b in zip(asked, given, strict=True))
        yield _gang(job.id, wrong, "workers", f"{wrong} workers of job {job.id} are not in rank order")


def _gang(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.GANG, subject=subject, amount=amount, unit=unit, message=message)


def topology(snapshot: Snapshot, policy: Policy, starts: Sequence[Start]) -> Iterator[Violation]:
    """A gang stays in one domain of its required layer, and each tensor group in one NVLink domain."""
    hosts = {host.id: host for host in snapshot.hosts}
    records = {record.id: record for record in snapshot.jobs}
    confinement = confinements(snapshot, policy)
    for start in starts:
        record = records.get(start.job)
        if record is None:
            continue
        job = as_started(record, start.placement)
        layer = confinement(job).required
        if layer is not None:
            domains = _domains(start, layer, hosts)
            if len(domains) > 1:
                text = f"job {start.job} must stay in one {layer}, but is in {len(domains)}: {', '.join(domains[:3])}"
                yield _topology(start.job, len(domains) - 1, f"{layer} domains", text)
        for role in job.roles:
            if role.parallelism is not None and role.parallelism.tensor > 1:
                yield from _tensor_groups(start, role, role.parallelism.tensor, hosts)


def _tensor_groups(start: Start, role: Role, tensor: int, hosts: dict[HostId, Host]) -> Iterator[Violation]:
    groups: dict[int, set[str]] = {}
    for worker in start.placement.workers:
        if worker.role == role.name and worker.host in hosts:
            domain = hosts[worker.host].path.domain(Layer.NVLINK, worker.host)
            groups.setdefault(worker.index // tensor, set()).add(domain)
    for number, domains in sorted(groups.items()):
        if len(domains) > 1:
            text = (
                f"tensor group {number} of job {start.job} ({role.name}[{number * tensor}] to "
                f"[{number * tensor + tensor - 1}]) is in {len(domains)} NVLink domains"
            )
            yield _topology(start.job, len(domains) - 1, "nvlink domains", text)


def _domains(start: Start, layer: Layer, hosts: dict[HostId, Host]) -> list[str]:
    return sorted({hosts[name].path.domain(layer, name) for name in start.placement.hosts if name in hosts})


def _topology(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.TOPOLOGY, subject=subject, amount=amount, unit=unit, message=message)
