"""What teams have left of their budgets, and what jobs may come to cost (RULES 8). Nothing is blocked for money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .elastic import as_placed
from .host import MILLI
from .ids import TeamId
from .limits import ran_s, walltime_limit_s
from .policy import Policy
from .snapshot import JobRecord
from .team import Team


class Budgets:
    """The budgets of a tree of teams; what a team spends counts for all teams above it too."""

    def __init__(self, teams: Iterable[Team]) -> None:
        self._teams: Mapping[TeamId, Team] = {team.id: team for team in teams}
        self._spent: dict[TeamId, int] = dict.fromkeys(self._teams, 0)
        for team in self._teams.values():
            for name in self._line(team.id):
                self._spent[name] += team.spent_gpu_s

    @property
    def any(self) -> bool:
        """Whether some team has a budget."""
        return any(team.budget_gpu_s is not None for team in self._teams.values())

    def left_gpu_s(self, team: TeamId) -> int | None:
        """GPU-seconds that the team may still spend, negative where it spent more; None without a budget above it."""
        budgets = ((name, self._teams[name].budget_gpu_s) for name in self._line(team))
        return min((budget - self._spent[name] for name, budget in budgets if budget is not None), default=None)

    def share_spent(self, team: TeamId) -> int | None:
        """Thousandths of the team's own budget that are spent; None without one of its own."""
        budget = self._teams[team].budget_gpu_s
        return None if budget is None else 1_000 * self._spent[team] // max(1, budget)

    def _line(self, team: TeamId) -> list[TeamId]:
        line: list[TeamId] = []
        cursor: TeamId | None = team
        while cursor is not None and cursor in self._teams:
            line.append(cursor)
            cursor = self._teams[cursor].parent
        return line


def cost_gpu_s(record: JobRecord, has_guarantee: bool, now_s: int, policy: Policy) -> int:
    """GPU-seconds that the job holds if it uses up what is left of its walltime limit, at the full price."""
    left_s = max(0, walltime_limit_s(record, has_guarantee, policy) - ran_s(record, now_s))
    job = record.job if record.placement is None else as_placed(record.job, record.placement)
    return job.gpu_milli * left_s // MILLI


def charged_gpu_s(held_gpu_s: int, level: int, policy: Policy) -> int:
    """What GPU-seconds held at that level cost: preemptible ones less."""
    return held_gpu_s * (100 - policy.budget.preemptible_off_percent) // 100 if level == 0 else held_gpu_s


def dropped(record: JobRecord, left_gpu_s: int | None, cost_gpu_s: int) -> bool:
    """Whether the job stands as preemptible for money: it waits and costs more than is left, or runs and all is spent.

    Tiers 1 and 2, production, never drop. A running job that dropped comes back once what it may still cost is left.
    """
    if left_gpu_s is None or record.job.tier <= 2:
        return False
    if record.placement is None or record.demoted:
        return cost_gpu_s > left_gpu_s
    return left_gpu_s <= 0
