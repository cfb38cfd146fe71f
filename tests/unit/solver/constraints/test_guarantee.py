"""Guarantee: inside starts fit into what is left of it, and may use what outside work of their own level leaves."""

import pytest

from phalanx.model.job import AntiAffinity, GpuTypeChoice, Preemptible, Role, WorkerRequest
from phalanx.model.policy import Policy, ReservedPool
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.constraints import affinity, capacity, guarantee, preemption, quota, reserved

CARD = Role(name="w", request=WorkerRequest(gpu_milli=1_000))
PAIR = Role(name="w", request=WorkerRequest(gpu_milli=2_000))
HALF = Role(name="w", request=WorkerRequest(gpu_milli=500))
EITHER = Role(
    name="w",
    request=WorkerRequest(gpu_milli=1_000),
    gpu_types=(GpuTypeChoice(gpu_type="H100"), GpuTypeChoice(gpu_type="A100")),
)


def team(name, parent=None, limit=None, **milli):
    quotas = tuple(GpuQuota(gpu_type=gpu_type, gpu_milli=amount) for gpu_type, amount in milli.items())
    most = None if limit is None else (GpuQuota(gpu_type="H100", gpu_milli=limit),)
    return Team(id=name, parent=parent, guarantee=quotas, limit=most)


def test_inside_starts_share_what_running_work_leaves(world):
    teams = [team("lab", H100=4_000), team("x", "lab"), team("y", "lab")]
    jobs = [
        world.running("r", CARD, ("a", (0,)), team="x"),
        world.job("i", PAIR, team="x"),
        world.job("j", CARD, team="y"),
        world.job("k", CARD, team="y"),
    ]
    instance = world.instance([world.host("a", gpus=8)], jobs, teams=teams)
    started = dict.fromkeys("ijk", True)
    assert world.feasible(instance, guarantee.add, started=started, inside={"i": True, "j": True, "k": False})
    assert not world.feasible(instance, guarantee.add, started=started, inside={"i": True, "j": True, "k": True})
    assert not world.feasible(instance, guarantee.add, started={"i": False}, inside={"i": True})


def test_only_covered_types_are_inside(world):
    hosts = [world.host("a"), world.host("b", kind="A100")]
    instance = world.instance(hosts, [world.job("j", EITHER)], teams=[team("t", H100=1_000)])

    def both(model, instance, variables):
        guarantee.add(model, instance, variables)
        for workers in instance.gangs[0].workers:
            for kind, host in (("H100", "a"), ("A100", "b")):
                here = sum(variables.workers_at(workers, slot) for slot in workers.slots if slot.host == host)
                model.add(here == variables.uses_type(workers, kind))

    assert world.feasible(instance, both, at={("j", "w", "a"): 1}, started={"j": True}, inside={"j": True})
    assert not world.feasible(instance, both, at={("j", "w", "a"): 0}, started={"j": True}, inside={"j": True})
    assert world.feasible(instance, both, at={("j", "w", "a"): 0}, started={"j": True}, inside={"j": False})


def test_never_starts_inside_or_not_at_all(world):
    jobs = [world.job("j", PAIR, preemptible=Preemptible.NEVER), world.job("p", PAIR, tier=1)]
    instance = world.instance([world.host("a")], jobs, teams=[team("t", H100=2_000)])
    assert [gang.id for gang in instance.gangs if gang.only_inside] == ["j"]
    assert world.feasible(instance, guarantee.add, started={"j": True, "p": True})
    assert not world.feasible(instance, guarantee.add, started={"j": True, "p": True}, inside={"p": True})
    without = world.instance([world.host("a")], jobs, teams=[team("t", H100=1_000)])
    assert [gang.id for gang in without.gangs] == ["p"]


@pytest.mark.parametrize(("inside", "feasible"), [(True, True), (False, False)])
def test_cards_and_cores_of_equals_are_for_inside_starts(world, inside, feasible):
    teams = [team("t", H100=2_000), team("other")]
    for role, seat in ((PAIR, (0, 1)), (HALF, (0,))):
        borrower = world.running("r", role, ("a", seat), team="other")
        host = world.host("a", gpus=len(seat))
        instance = world.instance([host], [borrower, world.job("j", role)], teams=teams)
        at = {("j", "w", "a"): 1}
        assert world.feasible(instance, capacity.add, at=at, evicted={"r": True}, inside={"j": inside}) is feasible
        assert not world.feasible(instance, capacity.add, at=at, evicted={"r": False}, inside={"j": inside})


def test_inside_and_outside_workers_do_not_use_one_victim_twice(world):
    hosts = [world.host("a", cpu_milli=3_000)]
    role = Role(name="w", request=WorkerRequest(gpu_milli=1_000, cpu_milli=1_000))
    teams = [team("t", H100=4_000), team("other")]
    jobs = [world.running("r", role, ("a", (0,)), team="other"), world.job("i", role), world.job("j", role)]
    instance = world.instance(hosts, [*jobs, world.job("k", role)], teams=teams)
    at = {(name, "w", "a"): 1 for name in "ijk"}
    gone = {"r": True}
    one = {"i": True, "j": False, "k": False}
    assert world.feasible(instance, capacity.add, at=at, evicted=gone, inside=one)
    assert not world.feasible(instance, capacity.add, at=at, evicted=gone, inside=dict.fromkeys("ijk", False))
    assert not world.feasible(instance, capacity.add, at=at, evicted={"r": False}, inside=dict.fromkeys("ijk", True))


def test_two_teams_each_reclaim_from_below_and_not_from_each_other(world):
    """Level 2 takes the place of its own team's inside work, and not that of another team's."""
    teams = [team("x", H100=1_000), team("y", H100=1_000)]
    running = [world.running(f"r{name}", CARD, ("a", (i,)), team=name) for i, name in enumerate("xy")]
    jobs = [world.job(f"j{name}", CARD, team=name, tier=2) for name in "xy"]
    instance = world.instance([world.host("a", gpus=2)], [*running, *jobs], teams=teams)
    assert {gang.id: gang.reach for gang in instance.gangs} == {"jx": {"rx"}, "jy": {"ry"}}
    at = {("jx", "w", "a"): 1, ("jy", "w", "a"): 0}
    assert world.feasible(instance, capacity.add, at=at, evicted={"rx": True, "ry": False})
    assert not world.feasible(instance, capacity.add, at=at, evicted={"rx": False, "ry": True})
    both = dict.fromkeys(at, 1)
    assert world.feasible(instance, capacity.add, at=both, evicted={"rx": True, "ry": True})
    assert not world.feasible(instance, preemption.add, started={"jx": False}, evicted={"rx": True})
    assert world.feasible(instance, preemption.add, started={"jx": False, "jy": True}, evicted={"ry": True})


@pytest.mark.parametrize(("inside", "feasible"), [(True, True), (False, False)])
def test_limits_and_domains_that_equals_leave_are_for_inside_starts(world, inside, feasible):
    teams = [team("lab", limit=2_000), team("t", "lab", H100=2_000), team("other", "lab")]
    label = (AntiAffinity(label="x"),)
    borrower = world.running("r", CARD, ("a", (0,)), team="other", anti_affinity=label)
    job = world.job("j", PAIR, anti_affinity=label)
    instance = world.instance([world.host("a")], [borrower, job], teams=teams)
    at, claim = {("j", "w", "a"): 1}, {"j": inside}
    for family in (quota, affinity):
        assert world.feasible(instance, family.add, at=at, evicted={"r": True}, inside=claim) is feasible
        assert not world.feasible(instance, family.add, at=at, evicted={"r": False}, inside=claim)


def pool(milli):
    return Policy(reserved=(ReservedPool(site="s", gpu_type="H100", gpu_milli=milli),))


@pytest.mark.parametrize(("milli", "feasible"), [(4_000, True), (5_000, False)])
def test_level_1_keeps_out_of_the_reserved_pool(world, milli, feasible):
    hosts = [world.host("a"), world.host("b"), world.host("c", spare=True)]
    jobs = [world.running("r", PAIR, ("a", (0, 1))), world.job("j", PAIR), world.job("p", PAIR, tier=2)]
    instance = world.instance(hosts, jobs, policy=pool(milli))
    at = {("j", "w", "a"): 0, ("j", "w", "b"): 1}
    assert world.feasible(instance, reserved.add, at=at) is feasible
    assert world.feasible(instance, reserved.add, at={("p", "w", "b"): 1, ("j", "w", "b"): 0, ("j", "w", "a"): 0})


def test_what_equals_leave_of_the_pool_is_for_inside_starts(world):
    teams = [team("t", H100=4_000), team("other")]
    jobs = [world.running("r", PAIR, ("a", (0, 1)), team="other"), world.job("j", PAIR)]
    instance = world.instance([world.host("a")], jobs, teams=teams, policy=pool(2_000))
    at = {("j", "w", "a"): 1}
    assert world.feasible(instance, reserved.add, at=at, evicted={"r": True}, inside={"j": True})
    assert not world.feasible(instance, reserved.add, at=at, evicted={"r": True}, inside={"j": False})
    assert not world.feasible(instance, reserved.add, at=at, evicted={"r": False}, inside={"j": True})
