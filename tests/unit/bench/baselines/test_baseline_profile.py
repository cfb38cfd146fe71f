"""The profile of time: what running work leaves by its limits, cards counted by kind, and times that are not exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_worlds import NOW_S, ask, box, card, gang, queued, role, running, world

from phalanx.bench.baselines import BASELINES
from phalanx.bench.baselines.floor import Floor
from phalanx.bench.baselines.limits import OVERRUN_S, Limits
from phalanx.bench.baselines.profile import Profile
from phalanx.bench.baselines.window import Window
from phalanx.model.host import Host, HostState
from phalanx.model.job import CheckpointPolicy, Preemptible
from phalanx.model.job_state import JobState
from phalanx.model.policy import EvictionPolicy, Policy
from phalanx.model.snapshot import JobRecord

EXACT = Policy(eviction=EvictionPolicy(launch_s=0, clean_s=0))
DEFAULT = Policy()


def profile(hosts: list[Host], *records: JobRecord) -> Profile:
    snapshot = world(hosts, *records)
    return Profile(snapshot, EXACT, Floor(snapshot, EXACT))


def runs(name: str, host: str, cards: tuple[int, ...], left_s: int, gpus: float | None = None) -> JobRecord:
    job = gang(name, 1, len(cards) if gpus is None else gpus, walltime_limit_s=left_s)
    return replace(running(job, (host, cards)), started_s=NOW_S)


def free_cards(found: Profile) -> list[tuple[int, int]]:
    return [(at_s - NOW_S, int(found.free[slot, 0, 0])) for slot, at_s in enumerate(found.times)]


def test_cards_come_back_as_limits_pass() -> None:
    found = profile([box("h", 4)], runs("a", "h", (0, 1), 600), runs("b", "h", (2,), 60))
    assert free_cards(found) == [(0, 1), (60, 2), (600, 4)]


def test_a_shared_card_comes_back_with_the_last_fraction_on_it() -> None:
    records = (runs("a", "h", (0,), 600, 0.3), runs("b", "h", (0,), 900, 0.3), runs("c", "h", (1,), 60, 0.5))
    assert free_cards(profile([box("h", 2)], *records)) == [(0, 0), (60, 1), (600, 1), (900, 2)]


def test_a_broken_card_is_never_free() -> None:
    cards = [card(0), card(1, healthy=False)]
    assert free_cards(profile([box("h", cards)], runs("a", "h", (1,), 60))) == [(0, 1), (60, 1)]


def test_a_start_takes_its_part_until_its_limit_unless_it_is_promised() -> None:
    found = profile([box("h", 4)], runs("a", "h", (0, 1), 600))
    found.reserve({found.floor.hosts[0].id: [4, 0, 0, 0]}, found.split(NOW_S + 600), found.split(NOW_S + 900))
    place = running(gang("x", 1, 2), ("h", (2, 3))).placement
    assert place is not None
    assert not found.start(queued(gang("x", 1, 2, walltime_limit_s=601)), place)
    assert free_cards(found)[0] == (0, 2)
    assert found.start(queued(gang("x", 1, 2, walltime_limit_s=600)), place)
    assert free_cards(found)[0] == (0, 0)


def test_a_window_counts_the_least_of_all_its_slots() -> None:
    found = profile([box("h", 8)], runs("a", "h", (0, 1, 2, 3), 600))
    two = role("worker", 1, ask(2))
    assert list(Window(found, 0, 1).room(two, gang("x").team, "H100")) == [2]
    assert list(Window(found, 1, 2).room(two, gang("x").team, "H100")) == [4]
    window = Window(found, 1, 2)
    window.take(gang("x"), two, "H100", 0, 3)
    assert list(window.room(two, gang("x").team, "H100")) == [1]
    window.undo()
    assert list(window.room(two, gang("x").team, "H100")) == [4]


def test_fractions_that_wait_share_cards_of_their_own() -> None:
    found = profile([box("h", 2)])
    window = Window(found, 0, 1)
    third = role("worker", 5, ask(0.3))
    assert list(window.room(third, gang("x").team, "H100")) == [6]
    window.take(gang("x"), third, "H100", 0, 4)
    assert window.use == {"h": [2, 4_000, 0, 0]}


def test_too_many_different_ends_are_rounded_up_to_a_grid() -> None:
    hosts = [box(f"h{n}", 8) for n in range(25)]
    records = [
        runs(f"r{n}-{index}", f"h{n}", (index,), 100 + 1_001 * (8 * n + index)) for n in range(25) for index in range(8)
    ]
    found = profile(hosts, *records)
    assert len(found.times) < 160
    ends = sorted(Limits(world(hosts, *records), EXACT).end_s(record) for record in records)
    # Nothing is ever expected earlier than its limit says, and all within the step of its distance.
    for slot, at_s in enumerate(found.times):
        assert int(found.free[slot, 0].sum()) <= sum(end_s <= at_s for end_s in ends)
    assert found.times[-1] - ends[-1] < 43_200
    assert int(found.free[-1, 0].sum()) == 200


@pytest.mark.parametrize(
    ("changes", "left_s"),
    [
        ({"walltime_limit_s": 500}, 500),
        ({}, EXACT.time.limit_shared_s),
        ({"preemptible": Preemptible.ANYTIME}, EXACT.time.limit_preemptible_s),
        ({"walltime_limit_s": 500, "checkpoint": CheckpointPolicy(interval_s=60, grace_s=20)}, 520),
    ],
)
def test_limits_hold_for_what_runs_and_for_what_waits(changes: dict[str, object], left_s: int) -> None:
    job = gang("x", **changes)
    snapshot = world([box("h")], job)
    assert Limits(snapshot, EXACT).length_s(snapshot.jobs[0]) == left_s
    runner = replace(running(job, ("h", (0,))), started_s=NOW_S - 100)
    assert Limits(snapshot, EXACT).end_s(runner) == NOW_S - 100 + left_s
    planned = replace(runner, state=JobState.PLANNED, started_s=None, planned_s=NOW_S - 5)
    assert Limits(snapshot, EXACT).end_s(planned) == NOW_S - 5 + left_s
    assert Limits(snapshot, DEFAULT).length_s(snapshot.jobs[0]) == left_s + 40


def test_what_overran_or_stops_is_expected_to_leave_soon() -> None:
    job = gang("x", walltime_limit_s=60)
    snapshot = world([box("h")])
    over = replace(running(job, ("h", (0,))), started_s=NOW_S - 600)
    assert Limits(snapshot, EXACT).end_s(over) == NOW_S + OVERRUN_S
    stopping = replace(over, state=JobState.STOPPING, state_since_s=NOW_S - 3)
    assert Limits(snapshot, DEFAULT).end_s(stopping) == NOW_S + 7


@pytest.mark.parametrize("name", BASELINES)
def test_a_fleet_that_takes_no_work_is_left_alone(name: str) -> None:
    scheduler = BASELINES[name]()
    for hosts in ([], [box("h", state=HostState.CORDONED)], [box("h", 0)]):
        assert scheduler(world(hosts, gang("x"), gang("y", 4, 8), gang("z", 1, 0.5)), EXACT).starts == ()
