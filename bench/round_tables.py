"""The tables of `phalanx-bench round` on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from ..api.cli.tables import amount, console, table
from .rows import QUARTER

STATUSES = ("proven", "within a gang", "open")


def show_rows(facts: dict[str, Any], measured: list[dict[str, Any]]) -> None:
    """Stages, levels and goals of rounds on large fleets, row after row."""
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in facts.items()), markup=False)
    for row in measured:
        _stages(out, row)
        _levels(out, row)
        goals = [(name, *map(str, shares.values())) for name, shares in row["goals"].items()]
        out.print(table("Goals, in rounds", ("goal", *STATUSES), goals, right=STATUSES))
        if row["violations"]:
            out.print(f"{row['violations']} broken rules", style="bold red", markup=False)


def _stages(out: Console, row: dict[str, Any]) -> None:
    seeds = ("held-out seeds " if row["held_out"] else "seeds ") + ", ".join(map(str, row["seeds"]))
    title = f"{row['row']}: {row['hosts']} hosts, {row['state']}; {row['rounds']} rounds, {seeds}; about "
    title += f"{row['pending']} wait and {row['running']} run; peak {row['peak_mib']} MiB; "
    title += f"{row['undecided']} reasons undecided"
    times = {**row["stages_cpu_s"], "whole round": row["cpu_s"], "whole round (wall)": row["wall_s"]}
    shares = {stage: f"{share} %" for stage, share in row["shares"].items()}
    cells = [
        (name, *(f"{times[name][key]:.3f}" for key in ("min", "median", "p95")), shares.get(name, "")) for name in times
    ]
    columns = ("stage", "min s", "median s", "p95 s", "share")
    out.print(table(title, columns, cells, right=columns[1:]))
    by_seed = ", ".join(f"{seed}: {p95:.3f} s" for seed, p95 in row["cpu_p95_by_seed"].items())
    out.print(f"p95 by seed: {by_seed}", markup=False)
    if row["must_s"] is not None:
        p95 = row["cpu_s"]["p95"]
        met = "kept" if p95 <= row["must_s"] else f"missed by a factor of {p95 / row['must_s']:.1f}"
        out.print(f"asked: {row['must_s']} s (best: {row['moonshot_s']} s): {met}", markup=False)
    over = [f"{stage} {share} %" for stage, share in row["shares"].items() if share > 25]
    bad = [stage for stage, share in row["shares"].items() if share > 25 and stage in QUARTER]
    told = f"over a quarter of the round: {', '.join(over) or 'none'}"
    out.print(told + (f"; of those that must not: {', '.join(bad)}" if bad else ""), markup=False)


def _levels(out: Console, row: dict[str, Any]) -> None:
    cells = []
    for level, its in row["levels"].items():
        for which, told in (("start", "start"), ("all", "the worst of its goals")):
            rounds = sum(its[which].values())
            percent = (f"{100 * count / rounds:.0f} %" if rounds else "" for count in its[which].values())
            cells.append((level, told, str(rounds), *percent))
    out.print(table("By level, share of rounds", ("level", "goal", "rounds", *STATUSES), cells, right=STATUSES))


def show_rounds(facts: dict[str, Any], measured: list[dict[str, Any]]) -> None:
    """Times and goals of rounds on saved snapshots."""
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in facts.items()), markup=False)
    columns = ("snapshot", "hosts", "GPUs", "queued", "solve s", "verify s", "stage", "start", "wait", "broken rules")
    rows = [
        (
            *(Path(each["snapshot"]).name, str(each["hosts"]), str(each["gpus"]), str(each["queued"])),
            *(f"{each['solve_s']['median']:.3f}", f"{each['verify_s']['median']:.3f}"),
            each["stage"] + (f" ({each['stopped']})" if each["stopped"] else ""),
            *(str(each["starts"]), str(each["waiting"]), str(each["violations"])),
        )
        for each in measured
    ]
    out.print(table("", columns, rows, right=columns[1:6] + columns[7:]))
    goals = [
        (
            Path(each["snapshot"]).name,
            goal["name"],
            *(amount(goal[key], goal["unit"]) for key in ("value", "bound")),
            goal["status"],
        )
        for each in measured
        for goal in each["goals"]
    ]
    out.print(table("Goals", ("snapshot", "goal", "value", "bound", "status"), goals, right=("value", "bound")))
    for each in measured:
        if not each["deterministic"]:
            out.print(f"{each['snapshot']}: two runs decided differently", style="bold red", markup=False)
