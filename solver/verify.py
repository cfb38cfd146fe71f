"""The verifier: every rule stated once more, in plain Python, over the finished decision (docs/rounds.md).

It runs on every decision before it is committed. It knows neither the encoder nor the greedy, nor the books that they
share, and reports all that is wrong, each with a witness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.decision import Decision, Preemption, Resize, Start
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import Snapshot
from .collector import paused_collector
from .goals import values
from .sizes import settled
from .verify_affinity import affinity
from .verify_gang import gang, topology
from .verify_guarantee import guarantee
from .verify_hosts import capacity, eligibility
from .verify_needless import needless
from .verify_preemption import preemption
from .verify_prefetch import prefetch
from .verify_quota import quota
from .verify_reservation import releases, reservation
from .verify_reserved import reserved
from .verify_returning import returns
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
    "prefetch",
    "quota",
    "releases",
    "reservation",
    "reserved",
    "returns",
    "topology",
    "verify",
    "verify_starts",
]


@paused_collector()
def verify(snapshot: Snapshot, policy: Policy, decision: Decision) -> tuple[Violation, ...]:
    """All violations of the decision; none if it may be committed.

    Work that already runs is never at fault: only what the decision adds is judged.
    """
    snapshot = settled(snapshot)
    found = (
        *verify_starts(
            snapshot, policy, decision.starts, decision.preemptions, decision.reservations, decision.resizes
        ),
        *releases(snapshot, decision),
        *prefetch(snapshot, policy, decision),
    )
    # Goals of starts that are no placements at all (unknown hosts, missing workers) have no value to compare with.
    return found or tuple(goals(snapshot, policy, decision))


def verify_starts(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    reservations: Sequence[Reservation] = (),
    resizes: Sequence[Resize] = (),
) -> tuple[Violation, ...]:
    """The rules alone, over starts, preemptions, reservations and returns that are not a decision yet."""
    snapshot = settled(snapshot)
    return (
        *(violation for family in FAMILIES for violation in family(snapshot, policy, starts)),
        *(v for family in JOINT_FAMILIES for v in family(snapshot, policy, starts, preemptions, resizes)),
        *(v for family in PLAN_FAMILIES for v in family(snapshot, policy, starts, preemptions, reservations, resizes)),
    )


def goals(snapshot: Snapshot, policy: Policy, decision: Decision) -> Iterator[Violation]:
    """The stated goals are those of the round, with the values that the placements attain and bounds not below them."""
    attained = {
        goal.name: goal
        for goal in values(
            snapshot, policy, decision.starts, decision.preemptions, decision.reservations, decision.resizes
        )
    }
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

JOINT_FAMILIES = (capacity, preemption, quota, reserved, affinity, returns)
"""The rules about starts, preemptions and returns together."""

PLAN_FAMILIES = (needless, reservation)
"""The rules about starts, preemptions, plans and returns together."""
