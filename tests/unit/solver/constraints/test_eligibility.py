"""Eligibility: one GPU type a role; hosts, sites and cards that may not be used give no slot."""

import pytest

from phalanx.model.host import HostState, Window
from phalanx.model.job import GpuTypeChoice, Preemptible, Role, WorkerRequest
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


def hosts_of(instance):
    return {slot.host for gang in instance.gangs for workers in gang.workers for slot in workers.slots}


@pytest.mark.parametrize(
    ("start_s", "end_s", "open_"),
    # The round is at 10,000 s; launch, grace and cleaning are 70 s, the walltime limit 1,000 s.
    [(11_070, 12_000, True), (11_069, 12_000, False), (50, 10_001, False), (50, 10_000, True), (10_000, 10_001, False)],
)
def test_a_window_closes_the_host_to_whom_it_would_interrupt(world, start_s, end_s, open_):
    windows = (Window(start_s=start_s, end_s=end_s),)
    hosts = [world.host("a", windows=windows), world.host("b")]
    instance = world.instance(hosts, [world.job("j", PAIR, walltime_limit_s=1_000)])
    assert hosts_of(instance) == ({"a", "b"} if open_ else {"b"})


def test_without_a_walltime_limit_the_pool_s_maximum_counts(world):
    hosts = [world.host("a", windows=(Window(start_s=10_000 + 4 * 3_600 + 70, end_s=10**6),)), world.host("b")]
    assert hosts_of(world.instance(hosts, [world.job("j", PAIR)])) == {"b"}
    assert hosts_of(world.instance(hosts, [world.job("j", PAIR, preemptible=Preemptible.ANYTIME)])) == {"a", "b"}
