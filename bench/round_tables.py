"""The tables of `phalanx-bench round` on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..api.cli.tables import amount, console, table


def show_rows(facts: dict[str, Any], measured: list[dict[str, Any]]) -> None:
    """Stages and goals of rounds on large fleets, a table a row."""
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in facts.items()), markup=False)
    for row in measured:
        title = f"{row['hosts']} hosts, {row['state']}: {row['rounds']} rounds, about {row['pending']} wait and "
        title += f"{row['running']} run; peak {row['peak_mib']} MiB; {row['undecided']} reasons undecided"
        times = {**row["stages_cpu_s"], "whole round": row["cpu_s"], "whole round (wall)": row["wall_s"]}
        cells = [(name, *(f"{times[name][key]:.3f}" for key in ("min", "median", "p95"))) for name in times]
        columns = ("stage", "min s", "median s", "p95 s")
        out.print(table(title, columns, cells, right=columns[1:]))
        goals = [(name, *map(str, shares.values())) for name, shares in row["goals"].items()]
        out.print(
            table("", ("goal", "proven", "within a gang", "open"), goals, right=("proven", "within a gang", "open"))
        )
        if row["violations"]:
            out.print(f"{row['violations']} broken rules", style="bold red", markup=False)


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
