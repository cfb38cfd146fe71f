"""Eligibility: one GPU type a role; hosts, sites and cards that may not be used give no slot."""

import pytest

from phalanx.model.host import HostState
from phalanx.model.job import GpuTypeChoice, Role, WorkerRequest
from phalanx.solver.constraints import eligibility

PAIR = Role(name="w", count=2, request=WorkerRequest(gpu_milli=1_000))


def test_all_workers_on_one_type_is_feasible(world):
    hosts = [world.host("h", kind="H100"), world.host("a", kind="A100")]
    instance = world.instance(hosts, [world.job("j", PAIR)])
    assert world.feasible(instance, eligibility.add, at={("j", "w", "h"): 2, ("j", "w", "a"): 0})


def test_two_types_in_one_role_is_infeasible(world):
    hosts = [world.host("h", kind="H100"), world.host("a", kind="A100")]
    instance = world.instance(hosts, [world.job("j", PAIR)])
    assert not world.feasible(instance, eligibility.add, at={("j", "w", "h"): 1, ("j", "w", "a"): 1})


def test_each_role_chooses_its_own_type(world):
    hosts = [world.host("h", kind="H100"), world.host("t", kind="T4")]
    evaluator = Role(name="e", request=WorkerRequest(gpu_milli=1_000), gpu_types=(GpuTypeChoice(gpu_type="T4"),))
    instance = world.instance(hosts, [world.job("j", PAIR, evaluator)])
    assert world.feasible(instance, eligibility.add, at={("j", "w", "h"): 2, ("j", "w", "t"): 0, ("j", "e", "t"): 1})


@pytest.mark.parametrize("field", [{"state": HostState.CORDONED}, {"state": HostState.SUSPECT}, {"spare": True}])
def test_hosts_that_take_no_work_give_no_slot(world, field):
    instance = world.instance([world.host("a", **field), world.host("b")], [world.job("j", PAIR)])
    assert {slot.host for gang in instance.gangs for w in gang.workers for slot in w.slots} == {"b"}


def test_cards_with_too_little_memory_give_no_slot(world):
    big = Role(name="w", request=WorkerRequest(gpu_milli=1_000, gpu_memory_mib=60_000))
    instance = world.instance([world.host("a", memory=40_000), world.host("b")], [world.job("j", big)])
    assert {slot.host for gang in instance.gangs for w in gang.workers for slot in w.slots} == {"b"}


def test_site_pins_leave_other_sites_out(world):
    hosts = [world.host("a", site="north"), world.host("b", site="south")]
    instance = world.instance(hosts, [world.job("j", PAIR, sites=("south",))])
    assert {slot.host for gang in instance.gangs for w in gang.workers for slot in w.slots} == {"b"}
