"""The verifier: every rule stated once more, in plain Python, over the finished decision (docs/rounds.md).

It runs on every decision before it is committed. It knows neither the encoder nor the greedy, nor the books that they
share, and reports all that is wrong, each with a witness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..model.decision import Decision, Preemption, RuleFamily, Start
from ..model.host import Host
from ..model.ids import HostId
from ..model.job import Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .confinements import Confinements
from .demand import candidates
from .goals import values
from .verify_affinity import affinity
from .verify_guarantee import guarantee
from .verify_hosts import capacity, eligibility
from .verify_preemption import preemption
from .verify_quota import quota
from .verify_reserved import reserved
from .violation import Violation

__all__ = [
    "Violation",
    "affinity",
    "capacity",
    "eligibility",
    "gang",
    "goals",
    "guarantee",
    "preemption",
    "quota",
    "reserved",
    "topology",
    "unsupported",
    "verify",
    "verify_starts",
]


def verify(snapshot: Snapshot, policy: Policy, decision: Decision) -> tuple[Violation, ...]:
    """All violations of the decision; none if it may be committed.

    Work that already runs is never at fault: only what the decision adds is judged.
    """
    found = verify_starts(snapshot, policy, decision.starts, decision.preemptions) + tuple(unsupported(decision))
    # Goals of starts that are no placements at all (unknown hosts, missing workers) have no value to compare with.
    return found or tuple(goals(snapshot, policy, decision))


def verify_starts(
    snapshot: Snapshot, policy: Policy, starts: Sequence[Start], preemptions: Sequence[Preemption] = ()
) -> tuple[Violation, ...]:
    """The rules alone, over starts and preemptions that are not a decision yet."""
    return (
        *(violation for family in FAMILIES for violation in family(snapshot, policy, starts)),
        *(violation for family in JOINT_FAMILIES for violation in family(snapshot, policy, starts, preemptions)),
    )


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
        yield from _complete(record, start)


def _standing(snapshot: Snapshot, start: Start) -> str:
    record = next((record for record in snapshot.jobs if record.id == start.job), None)
    if record is None:
        return f"there is no job {start.job}"
    if record.not_before_s > snapshot.now_s:
        return f"job {start.job} is in a back-off for {record.not_before_s - snapshot.now_s} s more"
    return f"job {start.job} is {record.state}"


def _complete(record: JobRecord, start: Start) -> Iterator[Violation]:
    asked = [(role.name, index) for role in record.job.roles for index in range(role.count)]
    given = [(worker.role, worker.index) for worker in start.placement.workers]
    missing = Counter(asked) - Counter(given)
    extra = Counter(given) - Counter(asked)
    for what, workers in (("lacks", missing), ("has too many of", extra)):
        if workers:
            number = workers.total()
            role, index = min(workers)
            text = f"job {record.id} {what} {number} of its {len(asked)} workers, first {role}[{index}]"
            yield _gang(record.id, number, "workers", text)
    if not missing and not extra and asked != given:
        wrong = sum(a != b for a, b in zip(asked, given, strict=True))
        yield _gang(record.id, wrong, "workers", f"{wrong} workers of job {record.id} are not in rank order")


def _gang(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=RuleFamily.GANG, subject=subject, amount=amount, unit=unit, message=message)


def topology(snapshot: Snapshot, policy: Policy, starts: Sequence[Start]) -> Iterator[Violation]:
    """A gang stays in one domain of its required layer, and each tensor group in one NVLink domain."""
    hosts = {host.id: host for host in snapshot.hosts}
    records = {record.id: record for record in snapshot.jobs}
    confinement = Confinements(snapshot, policy)
    for start in starts:
        record = records.get(start.job)
        if record is None:
            continue
        layer = confinement(record.job).required
        if layer is not None:
            domains = _domains(start, layer, hosts)
            if len(domains) > 1:
                text = f"job {start.job} must stay in one {layer}, but is in {len(domains)}: {', '.join(domains[:3])}"
                yield _topology(start.job, len(domains) - 1, f"{layer} domains", text)
        for role in record.job.roles:
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


def unsupported(decision: Decision) -> Iterator[Violation]:
    """A round starts waiting gangs and stops running ones for them, and does nothing else."""
    acts = [
        *((RuleFamily.RESERVATION, act.job, f"hosts are reserved for job {act.job}") for act in decision.reservations),
        *((RuleFamily.RESERVATION, name, f"reservation {name} is released") for name in decision.releases),
        *((RuleFamily.ELASTIC, act.job, f"job {act.job} is resized") for act in decision.resizes),
    ]
    for family, subject, text in acts:
        message = f"{text}, which no rule of this version allows"
        yield Violation(family=family, subject=subject, amount=1, unit="acts", message=message)


def goals(snapshot: Snapshot, policy: Policy, decision: Decision) -> Iterator[Violation]:
    """The stated goals are those of the round, with the values that the placements attain and bounds not below them."""
    attained = {goal.name: goal for goal in values(snapshot, policy, decision.starts, decision.preemptions)}
    names = [goal.name for goal in decision.goals]
    if names != list(attained):
        wrong = max(1, len(set(names) ^ set(attained)))
        yield _goal("goals", wrong, "goals", f"the decision states the goals {names}; the round has {list(attained)}")
    for goal in decision.goals:
        right = attained.get(goal.name)
        if right is None:
            continue
        if goal.value != right.value:
            text = f"goal {goal.name} is stated as {goal.value} {goal.unit}; the placements attain {right.value}"
            yield _goal(goal.name, abs(goal.value - right.value), right.unit, text)
        if goal.unit != right.unit:
            yield _goal(goal.name, 1, "units", f"goal {goal.name} is stated in {goal.unit!r}, not in {right.unit!r}")
        if goal.parts and goal.parts != right.parts:
            stated = {part.name: part.value for part in goal.parts}
            text = f"goal {goal.name} is stated to consist of {stated}; it consists of " + str(
                {part.name: part.value for part in right.parts}
            )
            yield _goal(goal.name, 1, "parts", text)
        if goal.value > goal.bound:
            text = f"goal {goal.name} has the value {goal.value}, above its bound {goal.bound}"
            yield _goal(goal.name, goal.value - goal.bound, right.unit, text)


def _goal(subject: str, amount: int, unit: str, message: str) -> Violation:
    return Violation(family=None, subject=subject, amount=amount, unit=unit, message=message)


FAMILIES = (gang, eligibility, topology, guarantee)
"""The rules about starts alone."""

JOINT_FAMILIES = (capacity, preemption, quota, reserved, affinity)
"""The rules about starts and preemptions together."""
