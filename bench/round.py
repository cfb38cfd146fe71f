"""`phalanx-bench round`: how long rounds on saved snapshots take, and how good their decisions are proven to be."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import click

from ..api.cli.files import read_document, read_policy
from ..api.cli.options import FILE, json_option, print_json
from ..api.cli.tables import amount, console, table
from ..model.decision import Decision
from ..model.host import MILLI
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.solve import solve
from ..solver.verify import verify
from .machine import machine_facts


@click.group()
def bench() -> None:
    """Measures Phalanx on this machine."""


@bench.command("round")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@click.option("--policy", "policy_file", type=FILE, help="Policy in TOML or JSON.")
@click.option("--repeat", type=click.IntRange(1, 1_000), default=3, show_default=True, help="Times each is solved.")
@json_option
def round_command(files: tuple[Path, ...], policy_file: Path | None, repeat: int, as_json: bool) -> int:
    """Solves and verifies each snapshot several times: wall time, goals with bound and status, violations.

    Exit code 1 if a decision broke a rule, or two runs over the same snapshot decided differently.
    """
    policy = read_policy(policy_file)
    measured = [measure(str(path), read_document(path, Snapshot), policy, repeat) for path in files]
    facts = machine_facts()
    if as_json:
        print_json({"machine": facts, "rounds": measured})
    else:
        _show(facts, measured)
    return int(any(each["violations"] or not each["deterministic"] for each in measured))


def measure(name: str, snapshot: Snapshot, policy: Policy, repeat: int) -> dict[str, Any]:
    """Sizes, wall times in seconds, and the decision's goals, of one snapshot solved `repeat` times."""
    decisions, solves, checks, violations = [], [], [], 0
    for _ in range(repeat):
        begun = time.perf_counter()
        decision = solve(snapshot, policy)
        solved = time.perf_counter()
        violations += len(verify(snapshot, policy, decision))
        checks.append(time.perf_counter() - solved)
        solves.append(solved - begun)
        decisions.append(decision)
    return {
        "snapshot": name,
        **_sizes(snapshot),
        "solve_s": _spread(solves),
        "verify_s": _spread(checks),
        "violations": violations,
        "deterministic": all(decision == decisions[0] for decision in decisions),
        **_quality(decisions[0]),
    }


def _sizes(snapshot: Snapshot) -> dict[str, int]:
    return {
        "hosts": len(snapshot.hosts),
        "gpus": sum(host.gpu_milli for host in snapshot.hosts) // MILLI,
        "running": sum(record.state.holds_capacity for record in snapshot.jobs),
        "queued": sum(record.state is JobState.QUEUED for record in snapshot.jobs),
    }


def _spread(times: list[float]) -> dict[str, float]:
    return {
        "min": round(min(times), 4),
        "median": round(statistics.median(times), 4),
        "max": round(max(times), 4),
    }


def _quality(decision: Decision) -> dict[str, Any]:
    certificate = decision.certificate
    return {
        "starts": len(decision.starts),
        "waiting": len(decision.waiting),
        "stage": certificate.stage.value,
        "stopped": certificate.stopped,
        "columns": certificate.columns,
        "goals": [
            {"name": g.name, "unit": g.unit, "value": g.value, "bound": g.bound, "status": g.status.value}
            for g in decision.goals
        ],
    }


def _show(facts: dict[str, Any], measured: list[dict[str, Any]]) -> None:
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
