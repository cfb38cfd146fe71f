"""Budgets at work: who stands as preemptible for money, and what teams are told about it (RULES 8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...model.budget import Budgets, cost_gpu_s, dropped
from ...model.ids import TeamId
from ...model.job_state import HOLDING
from ...model.policy import Policy
from ...model.snapshot import JobRecord
from . import usage
from .books import Books, LogEntry
from .changes import log_job, save, to_text


class Purse:
    """What all teams have left now, read once."""

    def __init__(self, books: Books, now_s: int, policy: Policy) -> None:
        rows = books.teams()
        self._now_s, self._policy = now_s, policy
        self._guaranteed = {row.team.id for row in rows if row.team.guarantee}
        # Without a budget nobody needs to know what runs.
        limited = any(row.team.budget_gpu_s is not None for row in rows)
        teams = usage.current(rows, books.jobs_in(HOLDING), now_s, policy) if limited else ()
        self.budgets = Budgets(teams)
        self.teams: tuple[TeamId, ...] = tuple(team.id for team in teams)

    def judged(self, record: JobRecord) -> JobRecord:
        """The record as it stands for money: demoted, or back."""
        if not self.teams and not record.demoted:
            return record
        left_gpu_s = self.budgets.left_gpu_s(record.job.team)
        cost = cost_gpu_s(record, record.job.team in self._guaranteed, self._now_s, self._policy)
        demoted = dropped(record, left_gpu_s, cost)
        if demoted == record.demoted:
            return record
        left_h, cost_h = (left_gpu_s or 0) / 3_600, cost / 3_600
        text = (
            f"preemptible for money: it may cost {cost_h:,.1f} GPU-hours, and {max(0.0, left_h):,.1f} are left of the "
            f"budget of team {record.job.team}"
        )
        return replace(record, demoted=demoted, message=text if demoted else "")


def sweep(books: Books, jobs: Iterable[JobRecord], now_s: int, policy: Policy) -> tuple[str, ...]:
    """Demotes what is not production where a budget is spent, takes it back where there is money again; tells teams."""
    purse = Purse(books, now_s, policy)
    done = []
    for old in jobs:
        new = purse.judged(old)
        if new is not old:
            stored = save(books, old, new, now_s)
            log_job(books, stored, "budget", now_s)
            done.append(f"job {stored.id}: {stored.message or 'its budget covers it again'}")
    _notices(books, purse, now_s, policy)
    return tuple(done)


def _notices(books: Books, purse: Purse, now_s: int, policy: Policy) -> None:
    """Tells once a month when a team has spent the share that is told, and when it has spent all."""
    start_s = usage.month_start_s(now_s)
    for team in purse.teams:
        share = purse.budgets.share_spent(team)
        for percent in (policy.budget.notice_percent, 100):
            mark = f"budget/{team}/{percent}/{start_s}"
            if share is not None and share >= 10 * percent and not books.logged(mark):
                text = to_text({"percent": percent, "spent_milli": share})
                subject = f"team {team}"
                books.log(LogEntry(at_s=now_s, kind="budget_notice", subject=subject, document=text, event_id=mark))
