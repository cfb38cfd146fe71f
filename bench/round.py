"""`phalanx-bench round`: how long rounds take, on saved snapshots or large made-up fleets, and how good they prove."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import click

from ..api.cli.files import read_document, read_policy
from ..api.cli.options import FILE, json_option, print_json
from ..model.decision import Decision
from ..model.host import MILLI
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.solve import solve
from ..solver.verify import verify
from .machine import machine_facts
from .round_tables import show_rounds, show_rows
from .rows import HELD_OUT, ROWS, SEEDS, measure_row
from .simulate import FOLDER


@click.group()
def bench() -> None:
    """Measures Phalanx on this machine."""


@bench.command("round")
@click.argument("files", metavar="[FILE...]", nargs=-1, type=FILE)
@click.option("--policy", "policy_file", type=FILE, help="Policy in TOML or JSON.")
@click.option("--repeat", type=click.IntRange(1, 1_000), default=3, show_default=True, help="Times each is solved.")
@click.option(
    "--row", "rows", multiple=True, type=click.Choice(tuple(ROWS)), help="A made-up fleet of so many hosts, or a trace."
)
@click.option("--rounds", type=click.IntRange(1, 1_000), default=20, show_default=True, help="Rounds a seed of a row.")
@click.option("--seed", "seeds", multiple=True, type=click.IntRange(0), default=SEEDS, show_default=True, help="Seeds.")
@click.option("--held-out", is_flag=True, help=f"The seeds on which nothing was tuned: {HELD_OUT}.")
@click.option(
    "--traces", "folder", type=FOLDER, envvar="PHALANX_TRACES", default=Path("../shared/traces"), show_default=True,
    help="Folder of the public traces, for rows that need one. [PHALANX_TRACES]",
)  # fmt: skip
@json_option
def round_command(
    files: tuple[Path, ...],
    policy_file: Path | None,
    repeat: int,
    rows: tuple[str, ...],
    rounds: int,
    seeds: tuple[int, ...],
    held_out: bool,
    folder: Path,
    as_json: bool,
) -> int:
    """Solves and verifies each snapshot several times: wall time, goals with bound and status, violations.

    With --row: whole rounds over a store, stage by stage, as a fleet goes on from minute to minute; a real one
    (lingjun, openb, philly) from its trace, where a seed is a busy day or an order of arrival.
    Exit code 1 if a decision broke a rule, or two runs over the same snapshot decided differently.
    """
    if bool(files) == bool(rows):
        raise click.UsageError("name snapshots, or rows with --row; one of both")
    policy = read_policy(policy_file)
    if rows:
        return _rows(rows, HELD_OUT if held_out else seeds, rounds, policy, folder, as_json)
    measured = [measure(str(path), read_document(path, Snapshot), policy, repeat) for path in files]
    facts = machine_facts()
    if as_json:
        print_json({"machine": facts, "rounds": measured})
    else:
        show_rounds(facts, measured)
    return int(any(each["violations"] or not each["deterministic"] for each in measured))


def _rows(
    rows: tuple[str, ...], seeds: tuple[int, ...], rounds: int, policy: Policy, folder: Path, as_json: bool
) -> int:
    def tell(text: str) -> None:
        click.echo(text, err=True)

    measured = [measure_row(name, seeds, rounds, policy, tell, traces=folder) for name in rows]
    facts = machine_facts()
    if as_json:
        print_json({"machine": facts, "rows": measured})
    else:
        show_rows(facts, measured)
    return int(any(each["violations"] for each in measured))


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
