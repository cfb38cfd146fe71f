"""K18: after a restart finished jobs stay finished, hold nothing and are not started again; P4: running ones run on."""

from __future__ import annotations

from store_world import World, cards_held, check_books, fields

from phalanx.model.job_state import JobState


def test_finished_jobs_stay_finished_after_a_restart(database) -> None:
    world = World(database.open())
    for name, code in (("good", 0), ("bad", 3)):
        world.submit(name)
        world.run(name)
        world.finish(name, code)
    world.submit("gone")
    world.store.cancel("gone", now_s=world.now)
    ends = {name: fields(world.store.job(name)) for name in ("good", "bad", "gone")}
    world.store.close()

    again = World(database.open(), fresh=False)
    assert [again.state(n) for n in ("good", "bad", "gone")] == ["succeeded", "failed", "cancelled"]
    assert {name: fields(again.store.job(name)) for name in ends} == ends
    assert again.store.intents("a") == again.store.intents("b") == ()
    assert cards_held(again.store) == {}
    assert again.store.snapshot(again.now).jobs == ()
    # What the executor repeats after the restart changes nothing, and a sweep starts nothing.
    assert [again.running("good"), again.exited("bad", [3]), again.released("good")] == [0, 0, 0]
    assert again.store.sweep(10**9) == ()


def test_running_jobs_run_on_over_a_restart(database) -> None:
    world = World(database.open())
    for number in range(40):
        world.submit(f"j{number}", gpus=1)
        world.run(f"j{number}", ["a1", "a2", "a3", "b1"][number % 4 : number % 4 + 1], gpus=1)
    before = world.store.snapshot(world.now)
    intents = world.store.intents("a")
    again = World(database.open(), fresh=False)
    assert again.store.snapshot(world.now) == before
    assert again.store.intents("a") == intents
    assert {record.state for record in before.jobs} == {JobState.RUNNING}
    check_books(again.store)
