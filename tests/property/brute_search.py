"""The best decision among all: groups of decisions alike in who acts, the most promising group first.

What goals of levels attain does not depend on where gangs sit, so that groups that cannot reach what was found already
need not be tried place by place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from brute_force import Option, TooLarge, options, return_options, together
from brute_plans import Leaves, Planner

from phalanx.model.decision import Resize, Start
from phalanx.model.ids import JobId
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.demand import candidates, victims
from phalanx.solver.goals import values
from phalanx.solver.plan import assemble
from phalanx.solver.sizes import settled
from phalanx.solver.verify import verify_starts

MOST_GROUPS = 20_000
"""Groups of decisions that are looked at in one round."""

Acts = tuple[tuple[Start, ...], tuple[Resize, ...]]


@dataclass(frozen=True)
class Group:
    """All decisions in which just these victims leave, and just these gangs start or return, at these sizes.

    `choices` are the places of each gang. No decision of the group attains more than `ceiling` of the goals before
    `economy`.
    """

    leaving: tuple[JobId, ...]
    choices: tuple[list[Option], ...]
    ceiling: tuple[int, ...]


def best_values(snapshot: Snapshot, policy: Policy, limit: int = 4_000) -> tuple[int, ...]:
    """The lexicographically largest values of the goals over all decisions that the verifier accepts.

    Raises TooLarge beyond `limit` combinations of places.
    """
    return _Search(settled(snapshot), policy, limit).best()


class _Search:
    """One round: what is tried, and the best so far."""

    def __init__(self, snapshot: Snapshot, policy: Policy, limit: int) -> None:
        self._snapshot, self._policy, self._limit = snapshot, policy, limit
        self._tried = 0
        self._planner = Planner(snapshot, policy, self._planned)
        self._best: tuple[int, ...] | None = None

    def best(self) -> tuple[int, ...]:
        """The best values of all groups."""
        for group in sorted(self._groups(), key=lambda group: group.ceiling, reverse=True):
            if self._best is not None and group.ceiling < self._best[: len(group.ceiling)]:
                break
            for starts, resizes in self._decisions(group):
                self._judge(starts, group.leaving, resizes)
        assert self._best is not None
        return self._best

    def _planned(self, more: int) -> None:
        self._count(more, "plans")

    def _count(self, more: int, what: str) -> None:
        self._tried += more
        if self._tried > self._limit:
            raise TooLarge(what)

    def _groups(self) -> list[Group]:
        able = [record.id for record in victims(self._snapshot, self._policy)]
        everywhere = {record.id: self._kinds(record, able) for record in candidates(self._snapshot)}
        back = return_options(self._snapshot, self._policy, self._limit)
        found = []
        for size in range(len(able) + 1):
            for leaving in combinations(able, size):
                kinds: list[list[list[Option]]] = [list(kinds.values()) for kinds in everywhere.values()]
                for job, ways in back.items():
                    if job not in leaving:
                        kinds.append(list(_by_kind(ways).values()))
                for chosen in product(*([None, *of_job] for of_job in kinds)):
                    choices = tuple(choice for choice in chosen if choice is not None)
                    found.append(Group(leaving, choices, self._ceiling(leaving, choices)))
                    if len(found) > MOST_GROUPS:
                        raise TooLarge("groups")
        return found

    def _kinds(self, record: JobRecord, able: Sequence[JobId]) -> dict[object, list[Option]]:
        return _by_kind(options(record, self._snapshot, self._policy, tuple(able), self._limit))

    def _ceiling(self, leaving: tuple[JobId, ...], choices: tuple[list[Option], ...]) -> tuple[int, ...]:
        acts = [choice[0].act for choice in choices]
        starts = [act for act in acts if isinstance(act, Start)]
        returns = [act for act in acts if isinstance(act, Resize)]
        gone = [Leaves(job) for job in leaving]
        reached = values(self._snapshot, self._policy, starts, gone, (), returns)
        ideal = self._planner.ideal([start.job for start in starts])
        found = []
        for goal in reached:
            if goal.name == "economy":
                break
            found.append(ideal.get(goal.name, goal.value))
        return tuple(found)

    def _decisions(self, group: Group) -> Iterator[Acts]:
        """Every way to seat the gangs of the group side by side; those that return first, as they make room."""
        choices = sorted(group.choices, key=lambda choice: choice[0].back is None)

        def seat(chosen: tuple[Option, ...]) -> Iterator[Acts]:
            self._count(1, "places")
            acts = together(chosen, self._snapshot, group.leaving)
            if acts is None:
                return
            if len(chosen) == len(choices):
                yield acts
                return
            for option in choices[len(chosen)]:
                yield from seat((*chosen, option))

        yield from seat(())

    def _judge(self, starts: tuple[Start, ...], leaving: tuple[JobId, ...], resizes: tuple[Resize, ...]) -> None:
        if self._planner:
            with_plans = self._planner.best(starts, leaving, resizes, self._best)
            if with_plans is not None:
                self._best = with_plans
            return
        snapshot, policy = self._snapshot, self._policy
        gone = [Leaves(job) for job in leaving]
        reached = tuple(goal.value for goal in values(snapshot, policy, starts, gone, (), resizes))
        if self._best is not None and reached <= self._best:
            return
        plan = assemble(snapshot, policy, starts, leaving, (), resizes)
        if not verify_starts(snapshot, policy, plan.starts, plan.preemptions, (), plan.resizes):
            self._best = reached


def _by_kind(ways: Iterator[Option] | list[Option]) -> dict[object, list[Option]]:
    """The options of one gang by what levels count of them: its size, and whether it is inside its guarantee."""
    found: dict[object, list[Option]] = defaultdict(list)
    for option in ways:
        found[option.record.job.workers, option.inside].append(option)
    return found
