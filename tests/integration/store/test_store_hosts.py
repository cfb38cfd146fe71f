"""Hosts: inventory, states, reports, strikes, on every backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_world import World, a_host

from phalanx.model.errors import InvalidInput
from phalanx.model.event import AgentReport
from phalanx.model.host import CachedDataset, HostState, Window
from phalanx.model.job_state import JobState, StopCause

CACHE = (CachedDataset(dataset="web", digest="d1", shards=3, shards_total=9, size_mib=300),)


def report(world: World, host: str, at_s: int, cached=CACHE, disk=500) -> int:
    event = AgentReport(id=f"{host}/{at_s}", at_s=at_s, host=host, site="a", disk_free_mib=disk, cached=cached)
    return world.tell(event)


def test_a_host_is_stored_whole(world: World) -> None:
    window = Window(start_s=5000, end_s=6000, cause="firmware")
    host = a_host("a9", spare=True, windows=(window,), network_mbps=400_000)
    world.store.put_host(host, now_s=77)
    assert world.store.host("a9") == replace(host, version=1, state_since_s=77)
    assert [h.id for h in world.store.hosts()] == ["a1", "a2", "a3", "a9", "b1"]


def test_a_new_inventory_keeps_what_was_learned(world: World) -> None:
    world.host_is("a1", HostState.CORDONED, "disk")
    report(world, "a1", 1001)
    before = world.store.host("a1")
    world.store.put_host(a_host("a1"), now_s=2000)
    assert world.store.host("a1") == before
    world.store.put_host(replace(a_host("a1"), cpu_milli=1), now_s=2000)
    assert world.store.host("a1") == replace(before, cpu_milli=1, version=before.version + 1)


def test_an_inventory_that_cannot_be_says_why(world: World) -> None:
    with pytest.raises(InvalidInput, match=r"path.site: there is no site 'c'; expected one of \['a', 'b'\]"):
        world.store.put_host(a_host("c1"), now_s=1)
    world.submit("j1")
    world.run("j1")
    with pytest.raises(InvalidInput, match="GPU 4 is gone but job j1 holds it"):
        world.store.put_host(replace(a_host("a1"), gpus=a_host("a1").gpus[:4]), now_s=1)


def test_reports_move_no_version_and_write_no_log(world: World) -> None:
    before, number = world.store.host("a1"), world.store.snapshot(1).version
    assert report(world, "a1", 1001) == 1
    assert report(world, "a1", 1002) == 0
    after = world.store.host("a1")
    assert (after.cached, after.disk_free_mib, after.version) == (CACHE, 500, before.version)
    assert world.store.snapshot(1).version == number
    assert report(world, "a1", 900, cached=()) == 0
    assert world.store.host("a1").cached == CACHE
    assert report(world, "nowhere", 1003) == 0


def test_a_change_of_state_moves_the_version_once(world: World) -> None:
    before = world.store.host("a1")
    world.now += 5
    world.host_is("a1", HostState.MAINTENANCE, "fan")
    changed = world.store.host("a1")
    assert (changed.state, changed.state_cause, changed.state_since_s) == (HostState.MAINTENANCE, "fan", world.now)
    assert changed.version == before.version + 1
    world.host_is("a1", HostState.MAINTENANCE, "fan")
    assert world.store.host("a1") == changed


def test_a_cordoned_host_that_was_down_comes_back_cordoned(world: World) -> None:
    world.host_is("a1", HostState.CORDONED, "operator")
    world.host_is("a1", HostState.DOWN, "no heartbeat")
    world.host_is("a1", HostState.SUSPECT, "leaked")
    world.host_is("a1", HostState.READY)
    host = world.store.host("a1")
    assert (host.state, host.state_cause) == (HostState.CORDONED, "operator")
    world.host_is("a1", HostState.READY)
    assert world.store.host("a1").state is HostState.READY


def test_an_order_given_while_a_host_is_down_stands_when_it_returns(world: World) -> None:
    world.host_is("a1", HostState.DOWN)
    world.host_is("a1", HostState.CORDONED, "operator")
    world.host_is("a1", HostState.DOWN)
    world.host_is("a1", HostState.READY)
    assert world.store.host("a1").state is HostState.CORDONED


def test_a_short_blip_moves_nothing_and_a_long_one_requeues_once(world: World) -> None:
    world.submit("j1", workers=2)
    record = world.run("j1", ["a1", "a2"])
    world.host_is("a2", HostState.DOWN)
    assert world.store.sweep(world.now + 599) == ()
    assert world.store.job("j1") == record
    world.host_is("a2", HostState.READY)
    assert world.store.sweep(world.now + 5000) == ()
    world.host_is("a2", HostState.DOWN)
    world.store.sweep(world.now + 600)
    assert world.store.sweep(world.now + 601) == ()
    assert world.store.job("j1").stop_cause is StopCause.HOST_LOST
    world.released("j1")
    assert (world.state("j1"), world.store.job("j1").restarts) == (JobState.QUEUED, 1)


def test_three_jobs_failing_fast_evacuate_a_host(world: World) -> None:
    for number in range(3):
        assert world.store.host("a1").state is HostState.READY
        name = f"j{number}"
        world.submit(name)
        world.run(name)
        world.now += 5
        world.finish(name, code=1)
    host = world.store.host("a1")
    assert host.state is HostState.EVACUATING
    assert host.state_cause == "3 different jobs failed fast here: j0, j1, j2"
    world.host_is("a1", HostState.READY)
    assert world.store.host("a1").strikes == ()


def test_one_job_failing_often_does_not_evacuate(world: World) -> None:
    world.submit("j1")
    for _ in range(4):
        world.plan("j1")
        world.start_failed("j1", host="a1")
        world.released("j1")
    host = world.store.host("a1")
    assert (host.state, [strike.job for strike in host.strikes]) == (HostState.READY, ["j1"])


def test_only_the_hosts_of_failing_ranks_are_blamed(world: World) -> None:
    world.submit("j1", workers=2)
    world.run("j1", ["a1", "a2"])
    world.exited("j1", [-15, -11])
    assert [len(world.store.host(h).strikes) for h in ("a1", "a2")] == [0, 1]


@pytest.mark.parametrize(("ran_s", "code"), [(61, 1), (5, 0)])
def test_a_slow_failure_is_no_strike_and_a_good_run_forgives(world: World, ran_s: int, code: int) -> None:
    world.submit("j1")
    world.plan("j1")
    world.start_failed("j1", host="a1")
    world.released("j1")
    world.submit("j2")
    world.run("j2")
    assert len(world.store.host("a1").strikes) == 1
    world.now += ran_s
    world.finish("j2", code=code)
    assert world.store.host("a1").strikes == ()
