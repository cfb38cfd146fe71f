"""Slots in domains that hold too few of a role are left out, for nothing can come of them."""

from phalanx.model.job import GpuTypeChoice, Parallelism, Role, TopologyConstraint, WorkerRequest
from phalanx.model.topology import Layer

RACK = (TopologyConstraint(layer=Layer.RACK),)


def role(count, gpus, tensor=1, types=()):
    choices = tuple(GpuTypeChoice(gpu_type=name) for name in types)
    groups = Parallelism(tensor=tensor, data=count // tensor)
    return Role(
        name="w", count=count, request=WorkerRequest(gpu_milli=gpus * 1000), gpu_types=choices, parallelism=groups
    )


def slots(instance):
    return [(slot.host, slot.most) for gang in instance.gangs for workers in gang.workers for slot in workers.slots]


def test_a_rack_with_room_for_fewer_than_all_workers_is_left_out(world):
    hosts = [world.host("a", rack="r0"), world.host("b", rack="r0"), world.host("c", rack="r1")]
    instance = world.instance(hosts, [world.job("j", role(2, 4), topology=RACK)])
    assert slots(instance) == [("a", 1), ("b", 1)]


def test_a_gang_that_no_rack_holds_is_no_candidate(world):
    hosts = [world.host("a", rack="r0"), world.host("c", rack="r1")]
    assert not world.instance(hosts, [world.job("j", role(2, 4), topology=RACK)]).gangs


def test_types_are_not_added_up_as_a_role_runs_on_one(world):
    hosts = [world.host("a", rack="r0"), world.host("b", rack="r0", kind="A100")]
    jobs = [world.job("j", role(2, 4, types=("A100", "H100")), topology=RACK)]
    assert not world.instance(hosts, jobs).gangs


def test_a_tensor_group_of_workers_that_fill_a_host_each_has_no_place(world):
    hosts = [world.host(name) for name in "abcd"]
    assert not world.instance(hosts, [world.job("j", role(4, 4, tensor=2))]).gangs


def test_a_host_takes_whole_tensor_groups_only(world):
    hosts = [world.host("a", gpus=3), world.host("b", gpus=4), world.host("c", gpus=1)]
    instance = world.instance(hosts, [world.job("j", role(6, 1, tensor=2))])
    assert slots(instance) == [("a", 2), ("b", 4)]


def test_an_nvlink_domain_of_several_hosts_holds_a_tensor_group_that_none_of_them_holds(world):
    hosts = [world.host("a", nvlink="n"), world.host("b", nvlink="n"), world.host("c")]
    instance = world.instance(hosts, [world.job("j", role(2, 4, tensor=2))])
    assert slots(instance) == [("a", 1), ("b", 1)]


def test_groups_that_are_cut_by_nvlink_domains_do_not_count_in_a_rack(world):
    hosts = [world.host(name, gpus=3, rack="r0") for name in "ab"] + [world.host("c", gpus=4, rack="r1")]
    instance = world.instance(hosts, [world.job("j", role(6, 1, tensor=3), topology=RACK)])
    assert slots(instance) == [("a", 3), ("b", 3)]
    assert not world.instance(hosts, [world.job("j", role(6, 1, tensor=2), topology=RACK)]).gangs
