"""Teams and all teams above them, whose limits count for them too."""

from __future__ import annotations

from ..model.ids import TeamId
from ..model.snapshot import Snapshot

Limit = tuple[TeamId, str]
"""Whose limit, and of which GPU type."""


class Lineage:
    """Gives for each team itself and all teams above it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._parents = {team.id: team.parent for team in snapshot.teams}

    def __call__(self, team: TeamId) -> list[TeamId]:
        line: list[TeamId] = []
        cursor: TeamId | None = team
        while cursor is not None:
            line.append(cursor)
            cursor = self._parents.get(cursor)
        return line


def limited(snapshot: Snapshot) -> dict[TeamId, tuple[Limit, ...]]:
    """For each team the limits that it counts in."""
    above, own = Lineage(snapshot), {team.id: team.limit or () for team in snapshot.teams}
    return {
        team.id: tuple((one, quota.gpu_type) for one in above(team.id) for quota in own.get(one, ()))
        for team in snapshot.teams
    }
