"""Affinity: of the jobs that carry one label, at most one has workers in a domain."""

import pytest

from phalanx.model.job import AntiAffinity, Preemptible, Role, WorkerRequest
from phalanx.model.topology import Layer
from phalanx.solver.constraints import affinity

CARD = Role(name="w", request=WorkerRequest(gpu_milli=1_000))
READER = Role(name="w", request=WorkerRequest(cpu_milli=1_000))


def label(layer=Layer.HOST, name="web"):
    return (AntiAffinity(label=name, layer=layer),)


def rack(world):
    return [world.host("a", rack="r0"), world.host("b", rack="r0"), world.host("c", rack="r1")]


@pytest.mark.parametrize(
    ("layer", "feasible"),
    [
        (Layer.HOST, {"a": False, "b": True, "c": True}),
        (Layer.RACK, {"a": False, "b": False, "c": True}),
        (Layer.SITE, {"a": False, "b": False, "c": False}),
    ],
)
@pytest.mark.parametrize("role", [CARD, READER])
def test_two_starts_keep_apart(world, role, layer, feasible):
    jobs = [world.job(name, role, anti_affinity=label(layer)) for name in "ij"]
    instance = world.instance(rack(world), jobs)
    for host, expected in feasible.items():
        assert world.feasible(instance, affinity.add, at={("i", "w", "a"): 1, ("j", "w", host): 1}) is expected


def test_one_gang_may_have_all_its_workers_together(world):
    pair = Role(name="w", count=2, request=WorkerRequest(gpu_milli=1_000))
    instance = world.instance(rack(world), [world.job("i", pair, anti_affinity=label())])
    assert world.feasible(instance, affinity.add, at={("i", "w", "a"): 2})


def test_other_labels_and_none_do_not_matter(world):
    jobs = [world.job("i", CARD, anti_affinity=label()), world.job("j", CARD, anti_affinity=label(name="db"))]
    instance = world.instance(rack(world), [*jobs, world.job("k", CARD)])
    counts = {("i", "w", "a"): 1, ("j", "w", "a"): 1, ("k", "w", "a"): 1}
    assert world.feasible(instance, affinity.add, at=counts)


def test_the_layer_that_either_names_counts_for_both(world):
    jobs = [world.job("i", CARD, anti_affinity=label()), world.job("j", CARD, anti_affinity=label(Layer.RACK))]
    instance = world.instance(rack(world), jobs)
    assert not world.feasible(instance, affinity.add, at={("i", "w", "a"): 1, ("j", "w", "b"): 1})


def test_a_running_job_that_stays_closes_its_domain(world):
    stays = world.running("r", CARD, ("a", (0,)), preemptible=Preemptible.NEVER, anti_affinity=label(Layer.RACK))
    instance = world.instance(rack(world), [stays, world.job("j", CARD, tier=1, anti_affinity=label())])
    assert not world.feasible(instance, affinity.add, at={("j", "w", "b"): 1})
    assert world.feasible(instance, affinity.add, at={("j", "w", "c"): 1})


def test_a_victim_makes_way_for_a_higher_level_only(world):
    for tier, feasible in ((1, True), (3, False)):
        victim = world.running("r", CARD, ("a", (0,)), tier=3, anti_affinity=label(Layer.RACK))
        jobs = [victim, world.job("j", CARD, tier=tier, anti_affinity=label()), world.job("k", CARD, tier=1)]
        instance = world.instance(rack(world), jobs)
        assert world.feasible(instance, affinity.add, at={("j", "w", "b"): 1}, evicted={"r": True}) is feasible
        assert not world.feasible(instance, affinity.add, at={("j", "w", "b"): 1}, evicted={"r": False})
