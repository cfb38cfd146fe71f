"""Topology: one domain of the required layer, tensor groups inside one NVLink domain, the default confinement."""

from phalanx.model.job import Parallelism, Role, Strictness, TopologyConstraint, WorkerRequest
from phalanx.model.topology import Layer
from phalanx.solver.constraints import topology

PAIR = Role(name="w", count=2, request=WorkerRequest(gpu_milli=4_000))
RACK = (TopologyConstraint(layer=Layer.RACK),)


def test_two_hosts_of_one_rack_are_feasible(world):
    hosts = [world.host("a", rack="r0"), world.host("b", rack="r0"), world.host("c", rack="r1")]
    instance = world.instance(hosts, [world.job("j", PAIR, topology=RACK)])
    assert world.feasible(instance, topology.add, started={"j": True}, at={("j", "w", "a"): 1, ("j", "w", "b"): 1})


def test_two_racks_are_infeasible_where_one_is_required(world):
    hosts = [world.host(name, rack=rack) for name, rack in (("a", "r0"), ("b", "r0"), ("c", "r1"), ("d", "r1"))]
    instance = world.instance(hosts, [world.job("j", PAIR, topology=RACK)])
    assert not world.feasible(instance, topology.add, at={("j", "w", "a"): 1, ("j", "w", "c"): 1})


def test_two_racks_are_feasible_where_one_is_preferred(world):
    hosts = [world.host("a", rack="r0"), world.host("c", rack="r1")]
    preferred = (TopologyConstraint(layer=Layer.RACK, strictness=Strictness.PREFERRED),)
    instance = world.instance(hosts, [world.job("j", PAIR, topology=preferred)])
    assert world.feasible(instance, topology.add, started={"j": True}, at={("j", "w", "a"): 1, ("j", "w", "c"): 1})


def test_a_gang_that_fits_on_one_host_stays_on_one(world):
    small = Role(name="w", count=2, request=WorkerRequest(gpu_milli=1_000))
    instance = world.instance([world.host("a"), world.host("b")], [world.job("j", small)])
    assert world.feasible(instance, topology.add, started={"j": True}, at={("j", "w", "a"): 2})
    assert not world.feasible(instance, topology.add, at={("j", "w", "a"): 1, ("j", "w", "b"): 1})


def test_sites_are_never_mixed_by_default(world):
    hosts = [world.host(name, site=site) for name, site in (("a", "n"), ("c", "n"), ("b", "s"), ("d", "s"))]
    instance = world.instance(hosts, [world.job("j", PAIR)])
    assert not world.feasible(instance, topology.add, at={("j", "w", "a"): 1, ("j", "w", "b"): 1})


def test_all_roles_share_the_domain(world):
    hosts = [world.host("a", rack="r0"), world.host("b", rack="r0"), world.host("c", rack="r1")]
    helper = Role(name="e", request=WorkerRequest(gpu_milli=4_000))
    instance = world.instance(hosts, [world.job("j", PAIR, helper, topology=RACK)])
    counts = {("j", "w", "a"): 1, ("j", "w", "b"): 1, ("j", "e", "c"): 1}
    assert not world.feasible(instance, topology.add, at=counts)


def test_tensor_groups_are_never_cut(world):
    grouped = Role(name="w", count=4, request=WorkerRequest(gpu_milli=2_000), parallelism=Parallelism(tensor=2, data=2))
    free = (TopologyConstraint(layer=Layer.SITE),)
    instance = world.instance([world.host("a"), world.host("b")], [world.job("j", grouped, topology=free)])
    instance_counts = {("j", "w", "a"): 2, ("j", "w", "b"): 2}
    assert world.feasible(instance, topology.add, started={"j": True}, at=instance_counts)
    assert not world.feasible(instance, topology.add, at={("j", "w", "a"): 1, ("j", "w", "b"): 1})


def test_an_nvlink_domain_of_several_hosts_holds_a_tensor_group(world):
    grouped = Role(name="w", count=2, request=WorkerRequest(gpu_milli=4_000), parallelism=Parallelism(tensor=2))
    hosts = [world.host(name, nvlink=name_of) for name, name_of in (("a", "n"), ("b", "n"), ("c", "m"), ("d", "m"))]
    instance = world.instance(hosts, [world.job("j", grouped)])
    assert world.feasible(instance, topology.add, started={"j": True}, at={("j", "w", "a"): 1, ("j", "w", "b"): 1})
    assert not world.feasible(instance, topology.add, at={("j", "w", "a"): 1, ("j", "w", "c"): 1})
