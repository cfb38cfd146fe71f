"""Quota: a team, and all below it together, never come to hold more of a GPU type than the limit says."""

import pytest

from phalanx.model.job import GpuTypeChoice, Preemptible, Role, WorkerRequest
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.constraints import quota

CARD = Role(name="w", request=WorkerRequest(gpu_milli=1_000))
PAIR = Role(name="w", request=WorkerRequest(gpu_milli=2_000))
TENTH = Role(name="w", request=WorkerRequest(gpu_milli=100))


def team(name, parent=None, **limit):
    quotas = tuple(GpuQuota(gpu_type=gpu_type, gpu_milli=milli) for gpu_type, milli in limit.items())
    return Team(id=name, parent=parent, limit=quotas or None)


def test_exactly_the_limit_is_feasible_and_one_more_is_not(world):
    jobs = [world.job("i", PAIR), world.job("j", CARD)]
    for milli, feasible in ((3_000, True), (2_999, False)):
        instance = world.instance([world.host("a")], jobs, teams=[team("t", H100=milli)])
        assert world.feasible(instance, quota.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 1}) is feasible


def test_fractions_count_as_what_they_are(world):
    instance = world.instance([world.host("a")], [world.job("i", TENTH)], teams=[team("t", H100=100)])
    assert world.feasible(instance, quota.add, at={("i", "w", "a"): 1})
    instance = world.instance([world.host("a")], [world.job("i", TENTH)], teams=[team("t", H100=99)])
    assert not world.feasible(instance, quota.add, at={("i", "w", "a"): 1})


def test_a_limit_counts_the_teams_below_and_not_those_beside(world):
    teams = [team("lab", H100=2_000), team("x", "lab"), team("y", "lab"), team("z")]
    jobs = [world.job("i", PAIR, team="x"), world.job("j", CARD, team="y"), world.job("k", CARD, team="z")]
    instance = world.instance([world.host("a")], jobs, teams=teams)
    assert world.feasible(instance, quota.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 0, ("k", "w", "a"): 1})
    assert not world.feasible(instance, quota.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 1})


def test_types_that_the_limit_does_not_list_are_free(world):
    either = Role(
        name="w",
        request=WorkerRequest(gpu_milli=1_000),
        gpu_types=(GpuTypeChoice(gpu_type="H100"), GpuTypeChoice(gpu_type="A100")),
    )
    hosts = [world.host("a"), world.host("b", kind="A100")]
    instance = world.instance(hosts, [world.job("j", either)], teams=[team("t", H100=0)])
    assert world.feasible(instance, quota.add, at={("j", "w", "b"): 1, ("j", "w", "a"): 0})
    assert not world.feasible(instance, quota.add, at={("j", "w", "a"): 1})


@pytest.mark.parametrize(("limit", "feasible"), [(3_000, True), (2_000, False), (1_000, False)])
def test_what_running_work_holds_counts(world, limit, feasible):
    jobs = [world.running("r", PAIR, ("a", (0, 1)), preemptible=Preemptible.NEVER), world.job("j", CARD)]
    instance = world.instance([world.host("a")], jobs, teams=[team("t", H100=limit)])
    assert world.feasible(instance, quota.add, at={("j", "w", "a"): 1}) is feasible
    # A team that is beyond its limit already may stay so, if only it starts nothing.
    assert world.feasible(instance, quota.add, at={("j", "w", "a"): 0})


def test_a_victim_anywhere_makes_way_for_a_higher_level(world):
    victim = world.running("r", PAIR, ("b", (0, 1)), preemptible=Preemptible.ANYTIME)
    jobs = [victim, world.job("j", CARD, tier=1)]
    instance = world.instance([world.host("a"), world.host("b")], jobs, teams=[team("t", H100=2_000)])
    assert world.feasible(instance, quota.add, at={("j", "w", "a"): 1}, evicted={"r": True})
    assert not world.feasible(instance, quota.add, at={("j", "w", "a"): 1}, evicted={"r": False})


def test_it_does_not_for_its_own_level(world):
    victim = world.running("r", PAIR, ("b", (0, 1)), tier=3)
    jobs = [victim, world.job("i", CARD, tier=1), world.job("j", CARD, tier=3)]
    instance = world.instance([world.host("a"), world.host("b")], jobs, teams=[team("t", H100=2_000)])
    assert world.feasible(instance, quota.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 0}, evicted={"r": True})
    assert not world.feasible(instance, quota.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 1}, evicted={"r": True})
