"""Gavel's shares are max-min fair over normalised throughput; its rounds give the fast type to who gains most by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_worlds import NOW_S, POLICY, ask, box, gang, queued, role, running, world

from phalanx.bench.baselines.gavel import Gavel
from phalanx.bench.baselines.gavel_shares import JobClass, shares
from phalanx.model.decision import Decision
from phalanx.model.job import GpuTypeChoice, Job

ONE = 1_000


def runs_at(name: str, gpus: int = 1, workers: int = 1, **speeds: int) -> Job:
    choices = tuple(GpuTypeChoice(gpu_type=kind, throughput_milli=speed) for kind, speed in speeds.items())
    return gang(name, roles=(replace(role("worker", workers, ask(gpus)), gpu_types=choices),))


def where(decision: Decision) -> dict[str, str]:
    return {start.job: start.placement.hosts[0] for start in decision.starts}


def attained(each: JobClass, share: tuple[float, ...], capacity: list[int]) -> float:
    return sum(x * speed for x, speed in zip(share, each.normal(capacity), strict=True)) * each.milli / each.weight


def test_speed_is_normalised_by_an_equal_share_of_every_type() -> None:
    assert JobClass((3_000, 1_000), ONE, 1).normal([2_000, 2_000]) == (1.5, 0.5)
    assert JobClass((3_000, 1_000), ONE, 1).normal([1_000, 3_000]) == (2.0, pytest.approx(2 / 3))
    assert JobClass((0, 0), ONE, 1).normal([1_000, 1_000]) == (0.0, 0.0)


def test_the_papers_example_shares_the_fast_type_by_what_it_is_worth() -> None:
    """One fast and one slow GPU; one job gains tenfold, the other nothing: each has a whole type, none shares."""
    gains, same = JobClass((10_000, 1_000), ONE, 1), JobClass((1_000, 1_000), ONE, 1)
    found = shares({gains: 1, same: 1}, [ONE, ONE])
    assert found[gains] == pytest.approx((1, 0), abs=1e-4)
    assert found[same] == pytest.approx((0, 1), abs=1e-4)


def test_the_least_is_as_large_as_it_can_be() -> None:
    first, second = JobClass((4_000, 1_000), ONE, 1), JobClass((2_000, 1_000), ONE, 1)
    capacity = [ONE, ONE]
    found = shares({first: 3, second: 3}, capacity)
    levels = [attained(each, found[each], capacity) for each in (first, second)]
    # Six equal jobs on two GPUs: nobody is worse off than with a sixth of both types each, a third of its time.
    assert min(levels) >= ONE / 3
    used = [sum(3 * found[each][kind] for each in (first, second)) for kind in range(2)]
    assert used == pytest.approx([1, 1], abs=1e-3)
    assert all(sum(share) <= 1 + 1e-6 for share in found.values())


def test_water_rises_past_small_jobs_that_are_full() -> None:
    small, large = JobClass((1_000,), 100, 1), JobClass((1_000,), 4_000, 1)
    other = JobClass((1_000,), 2_000, 1)
    found = shares({small: 1, large: 1, other: 1}, [4_100])
    assert found[small] == (pytest.approx(1, abs=1e-3),)
    assert found[large][0] * 4_000 == pytest.approx(2_000, rel=1e-3)
    assert found[other][0] * 2_000 == pytest.approx(2_000, rel=1e-3)


def test_weights_divide() -> None:
    light, heavy = JobClass((1_000,), ONE, 1), JobClass((1_000,), ONE, 4)
    found = shares({light: 5, heavy: 5}, [2_500])
    assert found[heavy][0] / found[light][0] == pytest.approx(4, rel=1e-3)


def test_jobs_that_run_on_no_type_get_nothing() -> None:
    lost, sound = JobClass((0,), ONE, 1), JobClass((1_000,), ONE, 1)
    assert shares({lost: 1, sound: 1}, [ONE]) == {lost: (0.0,), sound: (pytest.approx(1, abs=1e-3),)}


def test_the_largest_speed_up_gets_the_fast_type() -> None:
    hosts = [box("fast", 1, "H100"), box("slow", 1, "A100")]
    modest, great = runs_at("modest", H100=1_200, A100=1_000), runs_at("great", H100=5_000, A100=1_000)
    # The modest one came first, and takes the slow card none the less.
    decision = Gavel()(world(hosts, queued(modest, 900), queued(great, 900)), POLICY)
    assert where(decision) == {"modest": "slow", "great": "fast"}


def test_many_of_each_are_sorted_by_speed_up() -> None:
    hosts = [box("fast", 8, "H100"), box("slow", 8, "A100")]
    jobs = [runs_at(f"m{n}", H100=1_500, A100=1_000) for n in range(8)]
    jobs += [runs_at(f"z{n}", H100=6_000, A100=1_000) for n in range(8)]
    decision = Gavel()(world(hosts, *(queued(job, 600) for job in jobs)), POLICY)
    assert len(decision.starts) == 16
    fast = {name[0] for name, host in where(decision).items() if host == "fast"}
    assert fast == {"z"}


def test_of_equal_jobs_the_longest_wait_goes_first() -> None:
    jobs = [queued(gang("new", 1, 8), 60), queued(gang("old", 1, 8), 9_000)]
    assert where(Gavel()(world([box("h")], *jobs), POLICY)) == {"old": "h"}


def test_time_received_lowers_the_priority() -> None:
    scheduler = Gavel()
    job = gang("served", 1, 8)
    scheduler(world([box("h")], running(job, ("h", tuple(range(8))))), POLICY)
    later = replace(world([box("h")], running(job, ("h", tuple(range(8))))), now_s=NOW_S + 7_200)
    scheduler(later, POLICY)
    both = world([box("h")], queued(job, 20_000), queued(gang("fresh", 1, 8), 7_000))
    assert where(scheduler(replace(both, now_s=NOW_S + 7_200), POLICY)) == {"fresh": "h"}


def test_what_is_idle_is_used_even_without_a_share() -> None:
    """Work conserving: the slow card is not left idle while somebody waits who can use it."""
    hosts = [box("fast", 1, "H100"), box("slow", 1, "A100")]
    jobs = [queued(runs_at(name, H100=9_000, A100=1_000), 60) for name in ("a", "b")]
    assert sorted(where(Gavel()(world(hosts, *jobs), POLICY)).values()) == ["fast", "slow"]


def test_a_gang_of_two_roles_and_work_without_gpus_are_placed() -> None:
    two = gang("two", roles=(role("worker", 2, ask(2), ("H100",)), role("server", 1, ask(0, 4))))
    decision = Gavel()(world([box("h")], two, gang("cpu", request=ask(0, 8))), POLICY)
    assert where(decision) == {"two": "h", "cpu": "h"}
