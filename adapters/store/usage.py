"""What teams have used and spent: charged when an attempt leaves its hosts, and shown up to now.

Use is halved every half-life; what is spent counts for one calendar month (UTC).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from ...model.budget import charged_gpu_s
from ...model.elastic import as_placed
from ...model.policy import Policy
from ...model.snapshot import JobRecord
from ...model.team import Team, Usage
from .books import Books, TeamRow

FIELDS = {
    "gpu_milli_s": "gpu_milli",
    "cpu_milli_s": "cpu_milli",
    "memory_mib_s": "memory_mib",
    "network_mbps_s": "network_mbps",
}
"""Each resource of Usage, and the field of a request that it sums up."""

MILLI = 1000


def charge(books: Books, record: JobRecord, now_s: int, policy: Policy) -> None:
    """Books what the attempt that leaves now has held since it was planned, on its team."""
    row = books.team(record.job.team)
    if row is not None:
        fresh = decayed(row, now_s, policy)
        books.put_team(replace(fresh, team=_charged(fresh.team, record, now_s, policy)))


def new_team(known: TeamRow | None, team: Team) -> TeamRow:
    """The row of a team that is added or replaced; a known one keeps its usage unless the new one brings its own."""
    if known is None or team.usage != Usage() or team.spent_gpu_s:
        return TeamRow(team=team)
    kept = replace(team, usage=known.team.usage, spent_gpu_s=known.team.spent_gpu_s)
    return replace(known, team=kept)


def decayed(row: TeamRow, now_s: int, policy: Policy) -> TeamRow:
    """The row with its usage as of `now_s`: it loses half its weight every half-life; a new month spends anew."""
    passed_s = 0 if row.usage_at_s is None else now_s - row.usage_at_s
    if row.usage_at_s is None or passed_s <= 0:
        return replace(row, usage_at_s=row.usage_at_s or now_s)
    factor = 0.5 ** (passed_s / policy.order.half_life_s)
    usage = Usage(**{field: round(getattr(row.team.usage, field) * factor) for field in FIELDS})
    spent_gpu_s = row.team.spent_gpu_s if month_start_s(now_s) <= row.usage_at_s else 0
    return TeamRow(team=replace(row.team, usage=usage, spent_gpu_s=spent_gpu_s), usage_at_s=now_s)


def current(rows: Iterable[TeamRow], holding: Iterable[JobRecord], now_s: int, policy: Policy) -> tuple[Team, ...]:
    """The teams with usage and spending up to now, running attempts included."""
    teams = {row.team.id: decayed(row, now_s, policy).team for row in rows}
    for record in holding:
        team = teams.get(record.job.team)
        if team is not None and record.planned_s is not None:
            teams[team.id] = _charged(team, record, now_s, policy)
    return tuple(teams.values())


def month_start_s(now_s: int) -> int:
    """When the month of that time began, in seconds since the epoch (UTC)."""
    now = datetime.fromtimestamp(now_s, UTC)
    return int(datetime(now.year, now.month, 1, tzinfo=UTC).timestamp())


def _charged(team: Team, record: JobRecord, now_s: int, policy: Policy) -> Team:
    # An elastic job is charged for what it holds, not for what it asked.
    job = record.job if record.placement is None else as_placed(record.job, record.placement)
    since_s = record.planned_s if record.planned_s is not None else now_s
    held_s = max(0, now_s - since_s)
    held = {
        field: getattr(team.usage, field)
        + held_s * sum(role.count * getattr(role.request, amount) for role in job.roles)
        for field, amount in FIELDS.items()
    }
    held_gpu_s = max(0, now_s - max(since_s, month_start_s(now_s))) * job.gpu_milli // MILLI
    spent_gpu_s = team.spent_gpu_s + charged_gpu_s(held_gpu_s, record.level, policy)
    return replace(team, usage=Usage(**held), spent_gpu_s=spent_gpu_s)
