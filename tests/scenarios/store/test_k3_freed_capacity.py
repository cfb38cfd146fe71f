"""K3: capacity that victims free belongs to their beneficiary until all of them are gone; P14: or until it gives up."""

from __future__ import annotations

from store_world import World, cards_held, check_books

from phalanx.model.intent import Want
from phalanx.model.job_state import JobState


def test_a_beneficiary_starts_when_its_last_victim_is_gone(world: World) -> None:
    world.submit("wl-a")
    world.submit("wl-b")
    world.run("wl-a", ["a1"])
    world.run("wl-b", ["b1"])
    world.submit("p", tier=1, workers=2)
    world.plan("p", ["a1", "b1"], victims=["wl-a", "wl-b"])
    world.now += 1
    world.released("wl-a")
    assert world.state("wl-a") is JobState.QUEUED
    for _ in range(3):
        world.now += 1
        world.store.sweep(world.now)
        # The hole is p's in the books, and nothing of p may start in it yet.
        assert [(i.job.id, i.want) for s in "ab" for i in world.store.intents(s)] == [("wl-b", Want.STOP)]
        held = {r.id: r.placement.hosts for r in world.store.snapshot(world.now).jobs if r.placement}
        assert held == {"p": ("a1", "b1"), "wl-b": ("b1",)}
    world.released("wl-b")
    assert [(i.job.id, i.want) for s in "ab" for i in world.store.intents(s)] == [("p", Want.RUN)]
    world.running("p")
    assert world.state("p") is JobState.RUNNING
    assert sum(len(world.store.job(name).evictions) for name in ("wl-a", "wl-b")) == 2
    assert all(owners == ["p"] for owners in cards_held(world.store).values())
    check_books(world.store)


def test_a_victim_of_an_earlier_round_is_waited_for_too(world: World) -> None:
    world.submit("low")
    world.run("low")
    world.store.hold("low", now_s=world.now)
    world.submit("next")
    world.plan("next", after=("low",))
    assert [i.job.id for i in world.store.intents("a")] == ["low"]
    world.released("low")
    assert [i.job.id for i in world.store.intents("a")] == ["next"]


def test_a_job_may_follow_its_own_victims_next_attempt_elsewhere(world: World) -> None:
    """What is waited for is an attempt, not a job: the victim runs again on another host, and holds nobody up."""
    world.submit("low")
    world.run("low", ["a1"])
    world.submit("high", tier=1)
    world.plan("high", ["a1"], victims=["low"])
    world.released("low")
    world.plan("low", ["a2"])
    assert {i.job.id: i.want for i in world.store.intents("a")} == {"high": Want.RUN, "low": Want.RUN}
