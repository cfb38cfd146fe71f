"""K13: a host goes bad between planning and commit; the plan must not be saved, and no GPU may be booked twice."""

from __future__ import annotations

import pytest
from store_world import World, cards_held, check_books

from phalanx.model.event import HostChanged
from phalanx.model.host import HostState


@pytest.mark.parametrize("state", [s for s in HostState if s is not HostState.READY])
def test_the_commit_is_refused_and_the_next_plan_goes_elsewhere(world: World, state: HostState) -> None:
    world.submit("j1", workers=2)
    snapshot = world.store.snapshot(world.now)
    start = world.a_start("j1", ["a1", "a2"])
    world.tell(HostChanged(id="bad", at_s=world.now, host="a1", state=state, cause="xid 79"))
    outcome = world.decide(snapshot, starts=(start,))
    assert (outcome.committed, outcome.conflicts) == (False, ("host a1",))
    assert cards_held(world.store) == {}
    assert world.store.intents("a") == ()
    assert world.store.host("a1").state is state
    world.plan("j1", ["a2", "a3"])
    assert all(len(owners) == 1 for owners in cards_held(world.store).values())
    assert {host for host, _ in cards_held(world.store)} == {"a2", "a3"}
    check_books(world.store)


def test_a_host_that_went_bad_and_came_back_still_refuses(world: World) -> None:
    world.submit("j1")
    snapshot = world.store.snapshot(world.now)
    start = world.a_start("j1", ["a1"])
    world.host_is("a1", HostState.DOWN)
    world.host_is("a1", HostState.READY)
    assert world.decide(snapshot, starts=(start,)).conflicts == ("host a1",)
    assert world.decide(starts=(start,)).committed


def test_a_host_drained_before_the_start_is_left_within_the_timeout(world: World) -> None:
    """K17: the attempt does not stay pinned to a host that will not take it."""
    world.submit("j1", workers=2, start_timeout_s=120)
    world.plan("j1", ["a1", "a2"])
    world.host_is("a2", HostState.CORDONED)
    world.store.sweep(world.now + 120)
    world.now += 121
    world.released("j1")
    assert cards_held(world.store) == {}
    assert world.plan("j1", ["a1", "a3"]).placement.hosts == ("a1", "a3")
