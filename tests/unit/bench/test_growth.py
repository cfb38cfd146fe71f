"""Growth along one thing alone: worlds that differ in that and nothing else, exponents that a power law has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench import growth
from phalanx.bench.growth import DIMENSIONS, exponent, grow, growth_command
from phalanx.bench.growth_rules import DATA, DRAINS, GUARANTEES, LIMITS, RACKS, RULES, SHARES, TIERS, TYPES, ruled
from phalanx.bench.large import Size
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot

TINY = Size(name="tiny", hosts=16, pending=12)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth around a fleet that takes a moment."""
    monkeypatch.setattr(growth, "BASE", TINY)


def rules_in(snapshot: Snapshot, policy: Policy) -> set[int]:
    """The kinds of rules that anything in the world can touch."""
    jobs = [record.job for record in snapshot.jobs]
    roles = [role for job in jobs for role in job.roles]
    signs = {
        TYPES: any(role.gpu_types for role in roles),
        RACKS: any(job.topology for job in jobs),
        TIERS: len({job.tier for job in jobs}) > 1,
        LIMITS: any(team.limit is not None for team in snapshot.teams),
        SHARES: any(role.request.fractional for role in roles),
        GUARANTEES: any(team.guarantee for team in snapshot.teams),
        DATA: any(host.cached for host in snapshot.hosts),
        DRAINS: bool(policy.reserved) and policy.time == Policy().time,
    }
    return {rule for rule, there in signs.items() if there}


def test_rules_come_into_use_one_after_another() -> None:
    size = Size(name="rules", hosts=32, pending=120, full=True)
    worlds = [ruled(size, 0, count) for count in range(len(RULES) + 1)]
    found = [rules_in(world.start, world.policy) for world in worlds]
    shown = {TYPES, RACKS, TIERS, LIMITS, SHARES, GUARANTEES, DATA, DRAINS}
    assert found == [{rule for rule in shown if rule <= count} for count in range(len(RULES) + 1)]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", DIMENSIONS)
def test_what_grows_is_counted(name: str) -> None:
    dimension = DIMENSIONS[name]
    steps = dimension.steps[:3]
    sizes = [dimension.size_of(step, dimension.make(step, 0).start) for step in steps]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


@pytest.mark.usefixtures("tiny")
def test_growth_is_a_table_a_document_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "growth.html"
    argv = ["--of", "racks", "--steps", "2", "--rounds", "1", "--seed", "0"]
    assert guarded(growth_command, [*argv, "--json", "--html", str(page)], "growth") == 0
    (told,) = json.loads(capsys.readouterr().out)["growth"]
    assert (told["of"], told["sizes"], told["violations"]) == ("racks", [1, 1], 0)
    assert all(len(times) == 2 for times in told["cpu_s"].values())
    assert "<svg" in page.read_text()
    assert guarded(growth_command, argv, "growth") == 0
    assert "whole round" in capsys.readouterr().out


def test_the_exponent_is_that_of_a_power_law() -> None:
    sizes = (50, 100, 200, 800)
    assert exponent(sizes, [0.01 * size**1.5 for size in sizes]) == 1.5
    assert exponent(sizes, [0.3] * 4) == 0.0
    assert exponent((0, 1, 2), (1.0, 1.0, 1.0)) is None
    assert exponent((3, 3), (1.0, 2.0)) is None


@pytest.mark.usefixtures("tiny")
def test_a_broken_rule_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.bench.stages.verify", lambda *_: ("broken",))
    dimension = replace(DIMENSIONS["jobs"], steps=(4,))
    assert grow(dimension, None, 2, (0,))["violations"] == 2
