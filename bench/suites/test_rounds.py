"""How long one round takes, by size and by family."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.bench.baselines import BASELINES
from phalanx.bench.suites.worlds import FAMILIES, world
from phalanx.model.policy import Policy
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify

SIZES = ((16, 10), (64, 40), (256, 100), (1_024, 200))


@pytest.mark.parametrize(("hosts", "waiting"), SIZES)
@pytest.mark.benchmark(group="round by size")
def test_solve_by_size(benchmark: Any, hosts: int, waiting: int) -> None:
    """A whole round as fleet and queue grow."""
    snapshot = world(hosts, waiting)
    decision = benchmark.pedantic(solve, args=(snapshot, Policy()), rounds=1 if hosts > 64 else 3)
    assert verify(snapshot, Policy(), decision) == ()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.benchmark(group="round by family, 64 hosts, 40 waiting")
def test_solve_by_family(benchmark: Any, family: str) -> None:
    """A whole round in which one family of rules matters."""
    snapshot = world(64, 40, family)
    decision = benchmark.pedantic(solve, args=(snapshot, Policy()), rounds=3)
    assert verify(snapshot, Policy(), decision) == ()


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.benchmark(group="rivals, 64 hosts, 40 waiting")
def test_rivals(benchmark: Any, name: str) -> None:
    """The same round under each baseline."""
    snapshot = world(64, 40)
    scheduler = BASELINES[name]()
    decision = benchmark.pedantic(scheduler, args=(snapshot, Policy()), rounds=3)
    assert verify(snapshot, Policy(), decision) == ()


@pytest.mark.benchmark(group="verify, 256 hosts, 100 waiting")
def test_verify(benchmark: Any) -> None:
    """The verifier alone."""
    snapshot = world(256, 100)
    decision = solve(snapshot, Policy())
    assert benchmark(verify, snapshot, Policy(), decision) == ()
