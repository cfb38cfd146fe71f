"""How long a snapshot takes to and from JSON."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.bench.suites.worlds import world
from phalanx.model import codec
from phalanx.model.snapshot import Snapshot

SIZES = ((64, 40), (512, 300))


@pytest.mark.parametrize(("hosts", "waiting"), SIZES)
@pytest.mark.benchmark(group="snapshot to JSON")
def test_dumps(benchmark: Any, hosts: int, waiting: int) -> None:
    """Writing a snapshot."""
    assert benchmark(codec.dumps, world(hosts, waiting))


@pytest.mark.parametrize(("hosts", "waiting"), SIZES)
@pytest.mark.benchmark(group="snapshot from JSON")
def test_loads(benchmark: Any, hosts: int, waiting: int) -> None:
    """Reading it back, with all checks."""
    snapshot = world(hosts, waiting)
    assert benchmark(codec.loads, codec.dumps(snapshot), Snapshot) == snapshot
