"""EASY never delays the head's reservation; conservative backfill delays nobody's; both let short work go ahead."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from small_worlds import NOW_S, ask, box, gang, queued, role, running, world

from phalanx.bench.baselines.backfill import Conservative, backfill, easy
from phalanx.bench.baselines.fifo import by_level
from phalanx.bench.baselines.planner import Planner
from phalanx.model.decision import Decision, Start
from phalanx.model.host import Host
from phalanx.model.job import CheckpointPolicy
from phalanx.model.job_state import JobState
from phalanx.model.policy import EvictionPolicy, Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.verify import verify

EXACT = Policy(eviction=EvictionPolicy(launch_s=0, clean_s=0))
"""Without launch and cleaning, a job holds its hosts exactly until its limit."""


def asks(name: str, gpus: float, limit_s: int, waited_s: int = 0, workers: int = 1, **more: object) -> JobRecord:
    return queued(gang(name, workers, gpus, walltime_limit_s=limit_s, **more), waited_s)


def runs(name: str, host: str, cards: range, left_s: int, **more: object) -> JobRecord:
    job = gang(name, 1, len(cards), walltime_limit_s=left_s, **more)
    return replace(running(job, (host, tuple(cards))), started_s=NOW_S)


def started(decision: Decision) -> list[str]:
    return sorted(start.job for start in decision.starts)


# One host of 8: 6 cards are busy for an hour, the head wants all 8.
BLOCKED = (runs("r", "h", range(6), 3_600), asks("head", 8, 7_200, waited_s=900))


@pytest.mark.parametrize("scheduler", [easy, Conservative()])
def test_a_short_job_backfills_and_a_long_one_does_not(scheduler: object) -> None:
    snapshot = world([box("h")], *BLOCKED, asks("long", 1, 3_601, 600), asks("short", 1, 3_600, 300))
    assert started(scheduler(snapshot, EXACT)) == ["short"]  # type: ignore[operator]


def test_launch_and_cleaning_count_towards_the_limit() -> None:
    snapshot = world([box("h")], *BLOCKED, asks("short", 1, 3_600, 300))
    policy = Policy(eviction=EvictionPolicy(launch_s=30, clean_s=10))
    # The running job leaves 10 s after its limit; the short one would need 40 s beside its own.
    assert started(easy(snapshot, policy)) == []
    fitting = world([box("h")], *BLOCKED, asks("short", 1, 3_570, 300))
    assert started(easy(fitting, policy)) == ["short"]


def test_a_long_job_may_take_what_the_head_leaves_over() -> None:
    head = asks("head", 7, 7_200, waited_s=900)
    snapshot = world([box("h")], BLOCKED[0], head, asks("long", 1, 90_000, 600), asks("second", 1, 90_000, 300))
    assert started(easy(snapshot, EXACT)) == ["long"]


def test_a_long_job_goes_where_the_head_will_not() -> None:
    # The tightest host for one card is h, where the head is promised 8 cards in an hour; g has room for ever.
    hosts = [box("h"), box("g", 4)]
    snapshot = world(hosts, BLOCKED[0], asks("head", 8, 7_200, 900), asks("long", 2, 90_000, 600))
    (start,) = easy(snapshot, EXACT).starts
    assert (start.job, start.placement.hosts) == ("long", ("g",))


def test_easy_promises_the_head_alone_and_conservative_everybody() -> None:
    # Cards: r holds 4 of 4 of g for 2 h. The head waits for h (1 h), the second for g (2 h).
    hosts = [box("h"), box("g", 4, "A100")]
    records = (
        *BLOCKED,
        runs("s", "g", range(3), 7_200),
        asks("second", 4, 3_600, 600, types=("A100",)),
        asks("filler", 1, 9_000, 300, types=("A100",)),
    )
    snapshot = world(hosts, *records)
    assert started(easy(snapshot, EXACT)) == ["filler"]
    assert started(Conservative()(snapshot, EXACT)) == []


def test_a_job_that_fits_no_empty_fleet_blocks_nobody() -> None:
    snapshot = world([box("h")], asks("giant", 8, 60, 900, workers=2), asks("next", 8, 90_000, 600))
    assert started(easy(snapshot, EXACT)) == ["next"]
    assert started(Conservative()(snapshot, EXACT)) == ["next"]


def test_the_head_is_the_oldest_of_the_highest_level() -> None:
    snapshot = world([box("h")], BLOCKED[0], asks("old", 2, 60, 900), asks("new", 8, 60, 60, tier=1))
    assert [record.id for record in by_level(snapshot, EXACT)] == ["new", "old"]
    assert started(easy(snapshot, EXACT)) == ["old"]


def test_a_checkpointed_job_counts_what_is_left_of_its_limit() -> None:
    saves = CheckpointPolicy(interval_s=600, grace_s=0)
    record = asks("resumed", 1, 7_200, 300, checkpoint=saves)
    resumed = replace(record, progress=replace(record.progress, saved_work_s=3_600))
    snapshot = world([box("h")], *BLOCKED, resumed)
    assert started(easy(snapshot, EXACT)) == ["resumed"]


def test_fractions_share_a_card_without_harming_a_promise() -> None:
    # The head wants the 7 cards beside the shared one; fractions on that card are free, however long.
    half = role("worker", 1, ask(0.5))
    shared = gang("shared", roles=(half,), walltime_limit_s=100_000)
    records = (
        running(shared, ("h", (7,))),
        runs("r", "h", range(5), 3_600),
        asks("head", 7, 7_200, 900),
        queued(gang("half", roles=(half,), walltime_limit_s=90_000), 600),
        queued(gang("other", roles=(half,), walltime_limit_s=90_000), 300),
    )
    decision = easy(world([box("h")], *records), EXACT)
    assert started(decision) == ["half"]
    assert decision.starts[0].placement.workers[0].gpus == (7,)


def test_compression_brings_promises_forward_and_never_back() -> None:
    scheduler = Conservative()
    first = runs("r", "h", range(6), 3_600)
    snapshot = world([box("h")], first, asks("a", 8, 600, 900), asks("b", 8, 600, 600), asks("c", 2, 5_000, 300))
    assert started(scheduler(snapshot, EXACT)) == []
    assert scheduler.promises == {"a": NOW_S + 3_600, "b": NOW_S + 4_200, "c": NOW_S + 4_800}
    ended = replace(snapshot, now_s=NOW_S + 60, jobs=snapshot.jobs[1:])
    assert started(scheduler(ended, EXACT)) == ["a"]
    assert scheduler.promises == {"b": NOW_S + 660, "c": NOW_S + 1_260}


def test_later_arrivals_of_the_level_delay_no_promise_and_a_higher_level_may() -> None:
    scheduler = Conservative()
    snapshot = world([box("h")], BLOCKED[0], asks("a", 8, 600, 900))
    scheduler(snapshot, EXACT)
    more = replace(snapshot, jobs=(*snapshot.jobs, asks("older", 8, 600, 5_000)))
    scheduler(more, EXACT)
    assert scheduler.promises == {"a": NOW_S + 3_600, "older": NOW_S + 4_200}
    higher = replace(more, jobs=(*more.jobs, asks("prod", 8, 600, 10, tier=1)))
    scheduler(higher, EXACT)
    assert scheduler.promises == {"prod": NOW_S + 3_600, "older": NOW_S + 4_200, "a": NOW_S + 4_800}


def test_depth_is_how_many_are_promised() -> None:
    snapshot = world([box("h")], *BLOCKED, asks("second", 8, 600, 600), asks("third", 1, 3_600, 300))
    planner = Planner(snapshot, EXACT)
    assert [start.job for start in backfill(planner, by_level(snapshot, EXACT), 2)] == ["third"]
    assert planner.profile.times == [NOW_S, NOW_S + 3_600, NOW_S + 10_800, NOW_S + 11_400]


def _live(seed: int, hosts: list[Host]) -> tuple[Snapshot, random.Random]:
    draw = random.Random(seed)
    jobs = [
        asks(f"j{n}", draw.choice((1, 2, 4, 8)), draw.randrange(60, 5_000), 1_000 - n, draw.choice((1, 1, 2)))
        for n in range(20)
    ]
    return world(hosts, *jobs), draw


@pytest.mark.parametrize("seed", range(4))
def test_no_promise_ever_slips_over_a_life(seed: int) -> None:
    """Jobs end early at random; conservative keeps or betters every promise, and starts nobody after it."""
    hosts = [box("h1", rack="a"), box("h2", rack="a"), box("g", 4, rack="b")]
    snapshot, draw = _live(seed, hosts)
    scheduler, promised = Conservative(), dict[str, int]()
    for _ in range(40):
        decision = scheduler(snapshot, EXACT)
        assert verify(snapshot, EXACT, decision) == ()
        for name, at_s in scheduler.promises.items():
            assert at_s <= promised.get(name, at_s)
        for start in decision.starts:
            assert snapshot.now_s <= promised.get(start.job, snapshot.now_s)
        promised.update(scheduler.promises)
        snapshot = _next(snapshot, decision.starts, draw)
    assert all(record.state is JobState.SUCCEEDED for record in snapshot.jobs)


@pytest.mark.parametrize("seed", range(4))
def test_easy_starts_its_head_by_the_first_shadow_time(seed: int) -> None:
    hosts = [box("h1"), box("h2"), box("g", 4)]
    snapshot, draw = _live(seed + 10, hosts)
    shadow: dict[str, int] = {}
    for _ in range(60):
        decision = easy(snapshot, EXACT)
        for start in decision.starts:
            assert snapshot.now_s <= shadow.get(start.job, snapshot.now_s)
        left = [r for r in by_level(snapshot, EXACT) if r.id not in {start.job for start in decision.starts}]
        if left:
            head = left[0]
            promise = Planner(_with(snapshot, decision.starts), EXACT).earliest(head)
            assert promise is not None
            shadow[head.id] = min(promise.start_s, shadow.get(head.id, promise.start_s))
            assert promise.start_s <= shadow[head.id]
        snapshot = _next(snapshot, decision.starts, draw)
    assert all(record.state is JobState.SUCCEEDED for record in snapshot.jobs)


def _with(snapshot: Snapshot, starts: tuple[Start, ...]) -> Snapshot:
    places = {start.job: start.placement for start in starts}
    jobs = tuple(
        replace(r, state=JobState.RUNNING, attempt=1, placement=places[r.id], started_s=snapshot.now_s)
        if r.id in places
        else r
        for r in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs)


def _next(snapshot: Snapshot, starts: tuple[Start, ...], draw: random.Random) -> Snapshot:
    """What was started runs; time goes on to the next end by a limit, or to an early one drawn at random."""
    snapshot = _with(snapshot, starts)
    ends = {r.id: (r.started_s or 0) + (r.job.walltime_limit_s or 0) for r in snapshot.jobs if r.placement}
    if not ends:
        return snapshot
    now_s = min(ends.values())
    early = draw.choice(sorted(ends))
    if draw.random() < 0.5:
        now_s = min(now_s, snapshot.now_s + draw.randrange(1, 500))
        ends[early] = now_s
    jobs = tuple(
        replace(r, state=JobState.SUCCEEDED, placement=None) if ends.get(r.id, now_s + 1) <= now_s else r
        for r in snapshot.jobs
    )
    return replace(snapshot, now_s=now_s, jobs=jobs)
