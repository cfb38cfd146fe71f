"""Encoder: one size a start, one way a return, and who may use what a gang leaves that returns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ortools.sat.python import cp_model

from phalanx.model.ids import JobId
from phalanx.model.job import CheckpointPolicy, Elastic, Preemptible, Role, WorkerRequest
from phalanx.model.policy import EvictionPolicy, Policy
from phalanx.solver.classes import Gang, Instance
from phalanx.solver.constraints import FAMILIES
from phalanx.solver.moved import moved_id
from phalanx.solver.variables import Variables

ONE = Role(count=1, request=WorkerRequest(gpu_milli=1_000, cpu_milli=1_000))
TWO = replace(ONE, count=2)
FOUR = replace(ONE, count=4)
SAVES = CheckpointPolicy(interval_s=600, write_s=5, restart_s=20, grace_s=10)


def _feasible(instance: Instance, *started: str, gone: tuple[str, ...] = ()) -> bool:
    """Whether all families together allow exactly these starts and returns, with these jobs preempted."""
    model = cp_model.CpModel()
    variables = Variables(model, instance)
    for add in FAMILIES.values():
        add(model, instance, variables)
    known = {gang.id for gang in instance.coming}
    assert known.issuperset(started), f"{started} of {sorted(known)}"
    for gang in instance.coming:
        model.add(variables.started(gang) == (gang.id in started))
    for victim in instance.victims:
        model.add(variables.evicted(victim.id) == (victim.id in gone))
    return cp_model.CpSolver().solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def _named(instance: Instance, name: str) -> Gang:
    return next(gang for gang in instance.coming if gang.id == name)


def test_an_elastic_gang_starts_at_one_of_its_sizes(world) -> None:
    job = world.job("e", TWO, elastic=Elastic(role="worker", sizes=(1, 2, 4)))
    instance = world.instance([world.host("h")], [job])
    assert [gang.id for gang in instance.gangs] == ["e@2", "e@1"], "never more than it asks"
    assert _feasible(instance, "e@2")
    assert _feasible(instance, "e@1")
    assert not _feasible(instance, "e@2", "e@1")


def test_a_round_without_elastic_gangs_and_movers_has_no_returns(world) -> None:
    running = world.running("r", ONE, ("h", (0,)), preemptible=Preemptible.ANYTIME)
    instance = world.instance([world.host("h")], [running, world.job("p", ONE)])
    assert not instance.returns
    assert instance.ways == {JobId("r"): (JobId("r"),)}
    assert [gang.id for gang in instance.coming] == ["p"]


@pytest.fixture
def shrinking(world) -> Instance:
    """An elastic gang of level 0 on the four cards of a host, one free card; three wait, one of them of level 1."""
    elastic = Elastic(role="worker", sizes=(1, 2, 4))
    seats = [("h", (index,)) for index in range(4)]
    low = {"preemptible": Preemptible.ANYTIME}
    running = world.running("r", FOUR, *seats, elastic=elastic, checkpoint=SAVES, **low)
    policy = Policy(eviction=EvictionPolicy(moves_per_hour=0))
    waiting = [world.job("p", ONE), world.job("q", ONE, **low), world.job("q2", ONE, **low)]
    return world.instance([world.host("h"), world.host("h2", gpus=1)], [running, *waiting], policy=policy)


def test_a_shrinker_returns_smaller_on_what_it_leaves(shrinking: Instance) -> None:
    assert [gang.id for gang in shrinking.returns] == ["r@again1", "r@again2"]
    assert _feasible(shrinking, "r@again2")
    assert _feasible(shrinking, "p", "r@again2")
    assert not _feasible(shrinking, "r@again2", "r@again1"), "it returns once"
    assert not _feasible(shrinking, "r@again2", gone=("r",)), "it does not leave for good as well"


def test_what_a_shrinker_leaves_is_for_those_that_may_evict_it(shrinking: Instance) -> None:
    assert not _feasible(shrinking, "p", "q"), "there is one free card"
    assert _feasible(shrinking, "p", "q", "r@again2")
    assert not _feasible(shrinking, "q", "q2", "r@again2"), "equals have no right to it"
    assert not _feasible(shrinking, "p", "q", "q2", "r@again1"), "nor to what is left over"


@pytest.fixture
def moving(world) -> Instance:
    """Two hosts of two cards, on each a gang of one GPU; two workers on one host wait of the level of the first gang."""
    low = {"preemptible": Preemptible.ANYTIME}
    first = world.running("a", ONE, ("h0", (0,)), checkpoint=SAVES, movable=True, **low)
    second = world.running("b", ONE, ("h1", (0,)), tier=3, checkpoint=SAVES, movable=False)
    hosts = [world.host("h0", gpus=2), world.host("h1", gpus=2)]
    return world.instance(hosts, [first, second, world.job("p", TWO, **low), world.job("q", ONE, tier=2)])


def test_a_mover_goes_elsewhere_and_its_place_is_for_its_level(moving: Instance) -> None:
    assert [gang.id for gang in moving.returns] == ["a@again"]
    assert {slot.host for slot in _named(moving, "a@again").workers[0].slots} == {"h1"}, "staying moves nobody"
    assert moved_id(JobId("a")) in _named(moving, "p").reach
    assert JobId("a") not in _named(moving, "p").reach
    assert _feasible(moving, "p", "a@again")
    assert not _feasible(moving, "p")
    assert not _feasible(moving, "p", gone=("a",)), "equals evict nobody"


def test_a_mover_uses_what_is_free_and_not_what_victims_leave(moving: Instance) -> None:
    assert _feasible(moving, "q", "a@again"), "q may have the place that it leaves"
    assert not _feasible(moving, "p", "q", "a@again"), "four cards for five workers"
    assert not _feasible(moving, "a@again", gone=("a",))
