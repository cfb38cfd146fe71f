"""The families are what they say, and the joint decision is never behind a greedy one."""

import json
import random

import click
import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench.families import JOINT, METHODS, OWN, RIVAL, families_command, solve_all, tables_of
from phalanx.bench.family import FAMILIES
from phalanx.model.policy import Policy
from phalanx.solver.books import Books
from phalanx.solver.demand import candidates, victims


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_gives_one_round_in_which_all_that_runs_fits(name: str) -> None:
    one, two = (FAMILIES[name](random.Random("1"), 16) for _ in range(2))
    assert one == two
    assert one != FAMILIES[name](random.Random("2"), 16)
    assert candidates(one)
    cards = [card for book in Books(one).hosts.values() for card in book.cards.values()]
    assert all(card.milli >= 0 and len(card.teams) <= 1 for card in cards)
    assert bool(victims(one, Policy())) is (
        name in ("uniform", "dear single victims", "staggered victims", "guarantees")
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_joint_is_never_worse_and_no_rule_is_broken(name: str) -> None:
    found = {each.method: each for each in solve_all([name], 1, 16, Policy())}
    assert list(found) == list(METHODS)
    assert all(each.violations == 0 for each in found.values())
    assert found[JOINT].goals >= max(found[OWN].goals, found[RIVAL].goals)


def test_dear_single_victims_are_spared_by_the_joint_decision_alone() -> None:
    found = {each.method: each for each in solve_all(["dear single victims"], 1, 16, Policy())}
    assert found[JOINT].gpus == found[RIVAL].gpus == (32, 0, 0, 0)
    assert (found[JOINT].victims, found[RIVAL].victims) == (1, 4)
    assert found[JOINT].lost_gpu_min < 0.1 * found[RIVAL].lost_gpu_min


def test_drains_plan_earlier_than_what_greedy_packing_leaves_room_for() -> None:
    found = {each.method: each for each in solve_all(["drains"], 2, 16, Policy()) if each.seed == 2}
    assert [len(each.planned_h) for each in found.values()] == [2, 2, 2]
    assert found[JOINT].gpus == found[RIVAL].gpus
    assert sum(found[JOINT].planned_h) < sum(found[RIVAL].planned_h)
    attained, _ = tables_of(list(found.values()), 16)
    assert all(row[attained.columns.index("plans")].startswith("2.0 in ") for row in attained.rows)


def test_tables_name_the_families_where_greedy_is_as_good() -> None:
    found = solve_all(["rack gangs", "dear single victims"], 1, 16, Policy())
    attained, compared = tables_of(found, 16)
    assert len(attained.rows) == 2 * len(METHODS)
    assert {row[0]: row[-1] for row in compared.rows}["dear single victims against best_fit_preempt"] == "not as good"
    assert all(len(row) == len(table.columns) for table in (attained, compared) for row in table.rows)


def test_the_command_prints_json_and_refuses_unknown_families(capsys: pytest.CaptureFixture[str]) -> None:
    group = click.Group("bench", commands=[families_command])
    argv = ["families", "--seeds", "1", "--hosts", "8", "--only", "rack gangs", "--json"]
    assert guarded(group, argv, "phalanx-bench") == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["method"] for each in told["rounds"]] == list(METHODS)
    assert guarded(group, ["families", "--only", "nothing"], "phalanx-bench") != 0
    assert "dear single victims" in capsys.readouterr().err
