"""The same round gives the same decision, plans included: asked twice, from JSON, and in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from moving import moving
from test_brute_plans import drained, next_round

from phalanx.model.codec import dumps, loads
from phalanx.model.decision import Decision
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.solve import solve

SEEDS = 30

DECIDES = """
import sys
from pathlib import Path
from phalanx.model.codec import dumps, loads
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.solve import solve
for line in Path(sys.argv[1]).read_text().splitlines():
    snapshot, policy = line.split("\\t")
    print(dumps(solve(loads(snapshot, Snapshot), loads(policy, Policy))))
"""


def greedy_only(numbers: Policy) -> Policy:
    """The same policy without the exact stage."""
    return replace(numbers, solve=replace(numbers.solve, exact_columns=0))


@pytest.fixture(scope="module")
def rounds() -> list[tuple[Snapshot, Policy, Decision]]:
    """Rounds that plan, have promises or returns, and what was decided: with the exact stage and without it."""
    found = []
    for seed in range(10):
        snapshot, numbers = moving(seed)
        found.append((snapshot, numbers, solve(snapshot, numbers)))
        found.append((snapshot, greedy_only(numbers), solve(snapshot, greedy_only(numbers))))
    assert any(decision.resizes for *_, decision in found)
    for seed in range(SEEDS):
        snapshot, numbers = drained(seed)
        first = solve(snapshot, numbers)
        if not first.reservations:
            continue
        later = next_round(seed, snapshot, first.reservations)
        found.append((snapshot, numbers, first))
        found.append((later, numbers, solve(later, numbers)))
        found.append((later, greedy_only(numbers), solve(later, greedy_only(numbers))))
    assert len(found) >= 32, "some rounds must plan"
    assert any(decision.reservations for snapshot, _, decision in found if snapshot.reservations)
    return found


def test_asked_twice(rounds: list[tuple[Snapshot, Policy, Decision]]) -> None:
    for snapshot, numbers, decision in rounds:
        assert solve(snapshot, numbers) == decision


def test_from_json(rounds: list[tuple[Snapshot, Policy, Decision]]) -> None:
    for snapshot, numbers, decision in rounds:
        read, told = loads(dumps(snapshot), Snapshot), loads(dumps(numbers), Policy)
        assert (read, told) == (snapshot, numbers)
        assert solve(read, told) == decision
        assert loads(dumps(decision), Decision) == decision


def test_in_another_process(rounds: list[tuple[Snapshot, Policy, Decision]], tmp_path: Path) -> None:
    # Sets of names are walked in another order there.
    asked = tmp_path / "rounds"
    asked.write_text("\n".join(f"{dumps(snapshot)}\t{dumps(numbers)}" for snapshot, numbers, _ in rounds))
    told = subprocess.run(
        [sys.executable, "-c", DECIDES, str(asked)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [loads(line, Decision) for line in told.stdout.splitlines()] == [decision for *_, decision in rounds]
