"""Greedy, EASY and Slurm with preemption: who leaves, for whom, and what they never do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from small_worlds import NOW_S, POLICY, box, gang, queued, running, world

from phalanx.bench.baselines.backfill import easy_preempt
from phalanx.bench.baselines.fifo import best_fit_preempt
from phalanx.bench.baselines.slurm import Slurm
from phalanx.model.decision import Decision
from phalanx.model.job import CheckpointPolicy, Preemptible
from phalanx.model.policy import EvictionPolicy, Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.verify import verify

EXACT = Policy(eviction=EvictionPolicy(launch_s=0, clean_s=0))
Scheduler = Callable[[Snapshot, Policy], Decision]
EVERY = pytest.mark.parametrize("scheduler", [best_fit_preempt, easy_preempt, Slurm(preempt=True)])


def busy(name: str, host: str, cards: range, ran_s: int = 3_600, **more: object) -> JobRecord:
    job = gang(name, 1, len(cards), **{"tier": 3, "walltime_limit_s": 90_000, **more})
    return running(job, (host, tuple(cards)), ran_s=ran_s)


def urgent(name: str, gpus: int, workers: int = 1, tier: int = 1, **more: object) -> JobRecord:
    return queued(gang(name, workers, gpus, **{"tier": tier, "walltime_limit_s": 3_600, **more}), 60)


def acts(scheduler: Scheduler, snapshot: Snapshot, policy: Policy = POLICY) -> tuple[list[str], list[str]]:
    """Who starts and who is stopped; the decision passes the verifier."""
    decision = scheduler(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    return sorted(start.job for start in decision.starts), sorted(act.job for act in decision.preemptions)


@EVERY
def test_nobody_leaves_for_a_gang_that_fits(scheduler: Scheduler) -> None:
    snapshot = world([box("h"), box("g")], busy("r", "h", range(8)), urgent("a", 8))
    assert acts(scheduler, snapshot) == (["a"], [])


@EVERY
@pytest.mark.parametrize(
    "facts",
    [
        {"ran_s": 599},
        {"tier": 1},
        {"preemptible": Preemptible.NEVER},
    ],
)
def test_who_may_not_be_stopped_stays(scheduler: Scheduler, facts: dict[str, object]) -> None:
    snapshot = world([box("h")], busy("r", "h", range(8), **facts), urgent("a", 8))  # type: ignore[arg-type]
    assert acts(scheduler, snapshot) == ([], [])


@EVERY
def test_a_job_evicted_three_times_today_stays(scheduler: Scheduler) -> None:
    churned = replace(busy("r", "h", range(8)), evictions=(NOW_S - 9_000, NOW_S - 6_000, NOW_S - 5_000))
    assert acts(scheduler, world([box("h")], churned, urgent("a", 8))) == ([], [])
    earlier = replace(churned, evictions=(NOW_S - 90_000, NOW_S - 6_000, NOW_S - 5_000))
    assert acts(scheduler, world([box("h")], earlier, urgent("a", 8))) == (["a"], ["r"])


@EVERY
def test_nobody_leaves_where_even_that_would_not_do(scheduler: Scheduler) -> None:
    snapshot = world([box("h")], busy("r", "h", range(4)), busy("s", "h", range(4, 8), tier=1), urgent("a", 8))
    assert acts(scheduler, snapshot) == ([], [])


@EVERY
def test_the_lower_level_leaves_however_dear(scheduler: Scheduler) -> None:
    cheap = busy("cheap", "h", range(8), ran_s=700)
    dear = busy("dear", "g", range(8), ran_s=80_000, preemptible=Preemptible.ANYTIME)
    assert acts(scheduler, world([box("h"), box("g")], cheap, dear, urgent("a", 8))) == (["a"], ["dear"])


@EVERY
def test_only_those_in_the_way_leave(scheduler: Scheduler) -> None:
    small = [busy(f"s{n}", "h", range(n, n + 1), ran_s=700 + n) for n in range(8)]
    large = busy("large", "g", range(8), ran_s=700)
    started, stopped = acts(scheduler, world([box("h"), box("g")], *small, large, urgent("a", 4)))
    assert started == ["a"]
    assert stopped == ["large"] or len(stopped) == 4


@EVERY
def test_what_a_victim_leaves_over_is_for_higher_levels_alone(scheduler: Scheduler) -> None:
    waiting = [urgent("a", 4), urgent("b", 2, tier=2), urgent("c", 2, tier=3)]
    snapshot = world([box("h")], busy("r", "h", range(8)), *waiting)
    # r is of level 1: b, of level 2, may use what is left over, and c, of level 1, may not.
    assert acts(scheduler, snapshot) == (["a", "b"], ["r"])


@EVERY
def test_a_gang_of_several_hosts_takes_those_that_cost_least(scheduler: Scheduler) -> None:
    hosts = [box(name) for name in ("h", "g", "k")]
    held = [busy("dear", "g", range(8), ran_s=50_000, tier=2)]
    held += [busy("x", "h", range(8), ran_s=700), busy("y", "k", range(8), ran_s=900)]
    assert acts(scheduler, world(hosts, *held, urgent("a", 8, workers=2))) == (["a"], ["x", "y"])


@EVERY
def test_a_limit_that_only_a_victim_of_the_team_relieves(scheduler: Scheduler) -> None:
    teams = (Team(id="t", limit=(GpuQuota(gpu_type="H100", gpu_milli=8_000),)), Team(id="u"))
    held = [busy("own", "h", range(8), team="t"), busy("other", "g", range(8), ran_s=700, team="u")]
    snapshot = world([box("h"), box("g")], *held, urgent("a", 8, team="t"), teams=teams)
    assert acts(scheduler, snapshot) == (["a"], ["own"])


def test_greedy_stops_the_cheaper_one_and_slurm_the_one_on_fewer_nodes() -> None:
    saves = CheckpointPolicy(interval_s=600, write_s=10, restart_s=0, grace_s=60)
    wide = running(gang("wide", 2, 8, tier=3, checkpoint=saves), ("h", range(8)), ("g", range(8)), ran_s=40_000)
    narrow = busy("narrow", "k", range(8), ran_s=40_000)
    snapshot = world([box("h"), box("g"), box("k")], wide, narrow, urgent("a", 8))
    assert acts(best_fit_preempt, snapshot) == (["a"], ["wide"])
    assert acts(easy_preempt, snapshot) == (["a"], ["wide"])
    assert acts(Slurm(preempt=True), snapshot) == (["a"], ["narrow"])


@pytest.mark.parametrize("scheduler", [easy_preempt, Slurm(preempt=True)])
def test_preemption_harms_no_reservation(scheduler: Scheduler) -> None:
    fixed = busy("fixed", "h", range(8), ran_s=0, tier=1, walltime_limit_s=3_600)
    low = busy("low", "g", range(8), walltime_limit_s=7_200)
    head = urgent("head", 8, workers=2)
    long = urgent("long", 8, tier=2, walltime_limit_s=7_200)
    hosts = [box("h"), box("g")]
    # The head is promised both hosts in an hour; a gang that runs for two would be in its way on g.
    assert acts(scheduler, world(hosts, fixed, low, head, long), EXACT) == ([], [])
    short = urgent("short", 8, tier=2, walltime_limit_s=1_800)
    assert acts(scheduler, world(hosts, fixed, low, head, short), EXACT) == (["short"], ["low"])
    assert acts(best_fit_preempt, world(hosts, fixed, low, head, long), EXACT) == (["long"], ["low"])
