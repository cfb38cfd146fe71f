"""`phalanx solve` and `phalanx verify`: one round on files, without service, database, Ray or torch."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import click

from ...model.codec import document, dumps
from ...model.decision import Decision
from ...model.errors import InvalidInput
from ...model.policy import Policy
from ...model.snapshot import Snapshot
from .exit_codes import Exit, Stop
from .files import read_document, read_policy, write_text
from .options import FILE, json_option, print_json


@click.command()
@click.argument("snapshot_file", metavar="FILE", type=FILE)
@click.option("--policy", "policy_file", type=FILE, help="Policy in TOML or JSON; its defaults without it.")
@click.option("--budget", type=float, help="Seconds of deterministic solver time, in place of the policy's.")
@click.option("--seed", type=int, help="Seed of the solver, in place of the policy's.")
@click.option("--out", type=FILE, help="Write the decision document here, too.")
@json_option
def solve(
    snapshot_file: Path,
    policy_file: Path | None,
    budget: float | None,
    seed: int | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Decides the snapshot in FILE ("-" for stdin) and prints the decision, its goals and every reason to wait.

    The decision is verified against every rule before it is printed. Exit code 1 if a rule is violated.
    """
    snapshot = read_document(snapshot_file, Snapshot)
    policy = _policy(policy_file, budget, seed)
    from ...solver.solve import solve as decide
    from ...solver.verify import verify as check

    begun = time.perf_counter()
    decision = decide(snapshot, policy)
    solved = time.perf_counter()
    violations = check(snapshot, policy, decision)
    checked = time.perf_counter()
    if out:
        write_text(out, dumps(decision) + "\n")
    if as_json:
        print_json(document(decision))
    else:
        from .show_decision import show_decision

        show_decision(snapshot, decision, solve_s=solved - begun, verify_s=checked - solved)
    if violations:
        raise Stop(Exit.NO, f"the decision violates {len(violations)} rules, first: {violations[0].message}")
    return Exit.OK


@click.command()
@click.argument("snapshot_file", metavar="SNAPSHOT", type=FILE)
@click.argument("decision_file", metavar="DECISION", type=FILE)
@click.option("--policy", "policy_file", type=FILE, help="Policy in TOML or JSON; its defaults without it.")
@json_option
def verify(snapshot_file: Path, decision_file: Path, policy_file: Path | None, as_json: bool) -> int:
    """Checks DECISION against SNAPSHOT by every rule and lists all violations, with amounts.

    Exit code 0 without violations, 1 with some.
    """
    snapshot = read_document(snapshot_file, Snapshot)
    decision = read_document(decision_file, Decision)
    policy = read_policy(policy_file)
    from ...solver.verify import verify as check

    violations = check(snapshot, policy, decision)
    rows = [{"family": v.family, "subject": v.subject, "amount": v.amount, "message": v.message} for v in violations]
    if as_json:
        print_json({"valid": not rows, "violations": rows})
    elif rows:
        from .show_decision import show_violations

        show_violations(rows)
    else:
        click.echo(
            f"{decision_file}: no violation; {len(decision.starts)} starts, {len(decision.preemptions)} preemptions."
        )
    return Exit.NO if rows else Exit.OK


def _policy(path: Path | None, budget: float | None, seed: int | None) -> Policy:
    policy = read_policy(path)
    changes: dict[str, int] = {}
    if budget is not None:
        if not 0 <= budget <= 3_600:
            raise InvalidInput("--budget", f"{budget} is out of range", "0 to 3600 seconds")
        changes["budget_ms"] = round(budget * 1_000)
    if seed is not None:
        changes["seed"] = seed
    return dataclasses.replace(policy, solve=dataclasses.replace(policy.solve, **changes)) if changes else policy
