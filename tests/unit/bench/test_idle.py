"""Idle GPUs by cause: each cause in a fleet made for it, and the sums over a run."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from phalanx.bench.idle import CAUSES, Idle, causes, table_of
from phalanx.bench.metrics import measure
from phalanx.bench.simulator import Options, simulate
from phalanx.model.host import Host
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Site
from phalanx.solver.solve import solve


def runs(job, host: str, cards: Sequence[int]) -> JobRecord:
    worker = WorkerPlacement(role="worker", index=0, host=host, gpus=tuple(cards))
    times = {"submitted_s": 0, "planned_s": 0, "started_s": 0}
    return JobRecord(job=job, state=JobState.RUNNING, attempt=1, placement=Placement(workers=(worker,)), **times)


def world(hosts: Sequence[Host], *jobs: JobRecord) -> Snapshot:
    return Snapshot(now_s=100, sites=tuple(Site(id=s) for s in {h.path.site for h in hosts}), hosts=hosts, jobs=jobs)


@pytest.fixture
def waits(small):
    return lambda name, **facts: JobRecord(job=small.job(name, 0, 60, **facts).job, submitted_s=0)


def test_what_nobody_asks_for_counts_by_type(small, waits) -> None:
    hosts = [small.host("h"), small.host("i", gpu_type="H100")]
    full = runs(small.job("r", 0, 60, gpus=6).job, "i", range(6))
    snapshot = world(hosts, full, waits("w", gpus=4, types={"H100": 1000}), waits("v", gpus=3))
    # Of the H100s two are free and wanted by four; of the A100s three of eight are wanted.
    assert causes(snapshot, Policy()) == {"no demand": 5_000, "too few": 2_000, "held": 3_000}


def test_gangs_that_fit_a_pool_and_no_host_are_scattered(small, waits) -> None:
    hosts = [small.host("h"), small.host("i")]
    busy = [runs(small.job(f"r{name}", 0, 60, gpus=6).job, name, range(6)) for name in "hi"]
    assert causes(world(hosts, *busy, waits("w", gpus=4)), Policy()) == {"scattered": 4_000}


def test_hosts_that_take_nobody_are_closed(small, waits) -> None:
    hosts = [small.host("h"), replace(small.host("i"), spare=True)]
    full = runs(small.job("r", 0, 60, gpus=8).job, "h", range(8))
    assert causes(world(hosts, full, waits("w", gpus=4)), Policy()) == {"closed": 8_000}


def test_time_is_added_up_only_while_gpus_are_asked_for(small, waits) -> None:
    idle, hosts = Idle(Policy(), told=True), [small.host("h"), small.host("i")]
    idle.passed(16_000, 60)
    idle.decided(lambda: world(hosts, waits("w", gpus=4)))
    idle.passed(16_000, 10)
    idle.passed(20_000, 1)
    assert idle.total == {"no demand": 12_000 * 11, "held": 4_000 * 11, "next round": 4_000}
    idle.decided(lambda: world(hosts))
    idle.passed(16_000, 60)
    assert idle.total.total() == 16_000 * 11 + 4_000


def test_a_run_tells_what_its_samples_say(small) -> None:
    jobs = [small.job(f"j{n}", 10 * n, 300, gpus=5) for n in range(6)] + [small.job("last", 2_000, 60)]
    run = simulate(
        small.workload(jobs, [small.host("h")]), "phalanx", solve, Policy(), Options(interval_s=30, idle=True)
    )
    assert set(run.idle) <= set(CAUSES)
    assert sum(run.idle.values()) == sum(
        (one.capacity_milli - one.held_milli) * (two.at_s - one.at_s)
        for one, two in zip(run.samples, run.samples[1:], strict=False)
        if one.waiting_milli and one.at_s < run.window_s
    )
    table = table_of({"phalanx": [measure(run)]})
    assert table is not None
    shown = dict(zip(table.columns, table.rows[0], strict=True))
    assert float(shown["in all"]) == round(sum(run.idle.values()) / 3_600_000)
    untold = simulate(small.workload(jobs, [small.host("h")]), "phalanx", solve, Policy())
    assert table_of({"phalanx": [measure(untold)]}) is None
