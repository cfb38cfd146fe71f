"""A decision for people: goals with bounds, starts, preemptions, and a reason for each job that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...model.decision import Decision, Reason, Start
from ...model.ids import HostId, JobId
from ...model.placement import Placement
from ...model.snapshot import Snapshot
from ...solver.wording import sentence
from .dataplane import size
from .tables import amount, console, gpus, seconds, table

MOST_ROWS = 40
"""Rows of one table; the rest is counted, and complete with --json."""
MOST_HOSTS = 8
"""Hosts of one placement that are named."""


def show_decision(snapshot: Snapshot, decision: Decision, *, solve_s: float, verify_s: float) -> None:
    """Prints the whole decision as tables."""
    out = console()
    out.print(
        table(
            "Goals, most important first",
            ("goal", "value", "bound", "status"),
            [
                (goal.name, amount(goal.value, goal.unit), amount(goal.bound, goal.unit), goal.status.replace("_", " "))
                for goal in decision.goals
            ],
            right=("value", "bound"),
        )
    )
    jobs = {record.id: record for record in snapshot.jobs}
    _section("Starts", ("job", "team", "GPUs", "where"), [_start(start, jobs) for start in decision.starts])
    _section(
        "Preemptions",
        ("job", "for", "loss"),
        [(p.job, ", ".join(p.beneficiaries), f"{p.loss_gpu_s:,} GPU-s") for p in decision.preemptions],
    )
    _section(
        "Drain reservations",
        ("job", "hosts", "planned start in"),
        [
            (r.job, ", ".join(r.placement.hosts), seconds(r.planned_start_s - snapshot.now_s))
            for r in decision.reservations
        ],
    )
    _section(
        "Loaded ahead",
        ("host", "data set", "for", "amount"),
        [(o.host, o.dataset.name, o.job, size(o.mib * 2**20)) for o in decision.prefetches],
    )
    _section("Rejected", ("job", "reason"), [(r.job, _said(r.reason)) for r in decision.rejections])
    _section("Waiting", ("job", "GPUs", "waits for", "why"), [_waiting(r, jobs, snapshot) for r in decision.waiting])
    out.print(_summary(decision, solve_s, verify_s))


def show_violations(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints all violations as one table."""
    lines = [(str(r["family"]), str(r["subject"]), str(r["amount"]), str(r["message"])) for r in rows]
    console().print(table(f"{len(rows)} violations", ("rule", "of", "amount", "what"), lines, right=("amount",)))


def where(placement: Placement) -> str:
    """Hosts with GPU indices: "n01[0-7] n02[0-3,5]"; of a long list only the first ones."""
    cards: dict[HostId, list[int]] = {}
    for worker in placement.workers:
        cards.setdefault(worker.host, []).extend(worker.gpus)
    named = [f"{host}[{_ranges(sorted(set(used)))}]" if used else str(host) for host, used in cards.items()]
    if len(named) <= MOST_HOSTS:
        return " ".join(named)
    return f"{' '.join(named[: MOST_HOSTS - 1])} ... {len(named)} hosts"


def _start(start: Start, jobs: Mapping[JobId, Any]) -> tuple[str, ...]:
    job = jobs[start.job].job
    return (start.job, job.team, gpus(job.gpu_milli), where(start.placement))


def _waiting(reason: Reason, jobs: Mapping[JobId, Any], snapshot: Snapshot) -> tuple[str, ...]:
    record = jobs[reason.job]
    return (reason.job, gpus(record.job.gpu_milli), seconds(snapshot.now_s - record.submitted_s), _said(reason))


def _said(reason: Reason) -> str:
    return reason.sentence or sentence(reason)


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    out = console()
    out.print(table(f"{title} ({len(rows)})", columns, rows[:MOST_ROWS], right=("GPUs", "loss")))
    if len(rows) > MOST_ROWS:
        out.print(f"... and {len(rows) - MOST_ROWS} more; --json lists all.\n")


def _summary(decision: Decision, solve_s: float, verify_s: float) -> str:
    certificate = decision.certificate
    stopped = f", stopped by its {certificate.stopped}" if certificate.stopped else ""
    return (
        f"{len(decision.starts)} start, {len(decision.waiting)} wait, {len(decision.rejections)} can never run. "
        f"Stage: {certificate.stage.replace('_', ' ')}{stopped}; {certificate.columns:,} columns; "
        f"solved in {solve_s:.2f} s, verified in {verify_s:.2f} s."
    )


def _ranges(indices: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
