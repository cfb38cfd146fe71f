"""Capacity: cards, CPU, memory and network of a host are never booked twice; a shared card has one team."""

from phalanx.model.job import Role, WorkerRequest
from phalanx.solver.constraints import capacity


def role(milli: int = 1_000, count: int = 1, **request: int) -> Role:
    return Role(name="w", count=count, request=WorkerRequest(gpu_milli=milli, **request))


def test_exactly_all_cards_is_feasible_and_one_more_is_not(world):
    instance = world.instance([world.host("a", gpus=4)], [world.job("i", role(2_000)), world.job("j", role(1_000, 3))])
    assert world.feasible(instance, capacity.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 2})
    assert not world.feasible(instance, capacity.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 3})


def test_cpu_memory_and_network_bound_too(world):
    host = world.host("a", cpu_milli=10_000, memory_mib=100, network_mbps=10)
    for resource, amount in (("cpu_milli", 4_000), ("memory_mib", 40), ("network_mbps", 4)):
        asked = role(0, 2, **{"cpu_milli": 1, **{resource: amount}})
        instance = world.instance([host], [world.job("i", asked), world.job("j", asked)])
        assert world.feasible(instance, capacity.add, at={("i", "w", "a"): 2, ("j", "w", "a"): 0})
        assert not world.feasible(instance, capacity.add, at={("i", "w", "a"): 2, ("j", "w", "a"): 1})


def test_tenth_and_nine_tenths_fill_a_card_exactly(world):
    instance = world.instance([world.host("a", gpus=1)], [world.job("i", role(100)), world.job("j", role(900))])
    assert world.feasible(instance, capacity.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 1})


def test_fractions_beyond_a_card_are_infeasible(world):
    instance = world.instance([world.host("a", gpus=1)], [world.job("i", role(200)), world.job("j", role(900))])
    assert not world.feasible(instance, capacity.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 1})


def test_card_memory_is_booked_beside_the_card(world):
    heavy = role(100, gpu_memory_mib=50_000)
    instance = world.instance([world.host("a", gpus=1)], [world.job("i", heavy), world.job("j", heavy)])
    assert not world.feasible(instance, capacity.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 1})


def test_a_shared_card_is_no_whole_card(world):
    instance = world.instance([world.host("a", gpus=2)], [world.job("i", role(300)), world.job("j", role(1_000, 2))])
    assert world.feasible(instance, capacity.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 1})
    assert not world.feasible(instance, capacity.add, at={("i", "w", "a"): 1, ("j", "w", "a"): 2})


def test_two_teams_never_share_a_card(world):
    jobs = [world.job("i", role(300), team="x"), world.job("j", role(300), team="y")]
    instance = world.instance([world.host("a", gpus=2)], jobs)
    assert world.feasible(instance, capacity.add, cards={("i", "w", "a", 0): 1, ("j", "w", "a", 1): 1})
    assert not world.feasible(instance, capacity.add, cards={("i", "w", "a", 0): 1, ("j", "w", "a", 0): 1})
