"""Workloads: fleets cut in the same mix, time scaled, the overlay seeded job by job."""

from dataclasses import replace

import pytest

from phalanx.bench.overlay import LIMITS_S, Overlay, laid_over
from phalanx.bench.split import with_split_cost
from phalanx.bench.workload import runnable, scaled, some_hosts
from phalanx.model.errors import InvalidInput
from phalanx.model.job import Preemptible
from phalanx.model.policy import Policy


def crowd(small, count: int = 200):
    jobs = [small.job(f"j{i}", 600 * i, 60 + 331 * (i % 40), team=f"t{i % 3}") for i in range(count)]
    return small.workload(jobs, [small.host(f"h{i}") for i in range(4)])


def test_fewer_hosts_keep_the_mix_of_kinds(small) -> None:
    hosts = [small.host(f"a{i}", 8) for i in range(30)] + [small.host(f"b{i}", 2) for i in range(10)]
    chosen = some_hosts(hosts, 8)
    assert [host.id for host in chosen] == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]
    assert some_hosts(hosts, None) == tuple(hosts)
    assert some_hosts(hosts, 99) == tuple(hosts)


def test_load_squeezes_time(small) -> None:
    jobs = [small.job("a", 0, 10), small.job("b", 1_000, 10)]
    assert [each.submit_s for each in scaled(jobs, 2)] == [0, 500]
    with pytest.raises(InvalidInput, match="load"):
        scaled(jobs, 0)


def test_what_the_fleet_can_never_run_is_left_out_and_counted(small) -> None:
    jobs = [small.job("fits", 0, 10, gpus=8), small.job("never", 1, 10, gpus=8, workers=2)]
    left = runnable(small.workload(jobs, [small.host("h")]), Policy())
    assert [each.job.id for each in left.jobs] == ["fits"]
    assert left.left_out == 1


def test_a_workload_needs_jobs(small) -> None:
    with pytest.raises(InvalidInput, match="no jobs"):
        small.workload([], [small.host("h")])


def test_load_is_work_over_capacity(small) -> None:
    world = small.workload([small.job("a", 0, 400, gpus=8), small.job("b", 800, 400, gpus=8)], [small.host("h")])
    assert world.load == 1.0


def test_the_overlay_is_seeded_and_leaves_other_jobs_alone(small) -> None:
    world = crowd(small)
    whole = laid_over(world, Overlay(), 1)
    assert whole == laid_over(world, Overlay(), 1)
    assert whole != laid_over(world, Overlay(), 2)
    some = laid_over(replace(world, jobs=world.jobs[50:]), Overlay(), 1)
    assert some.jobs == whole.jobs[50:]


def test_limits_are_round_and_never_cut_a_job_short(small) -> None:
    for each in laid_over(crowd(small), Overlay(), 3).jobs:
        limit_s = each.job.walltime_limit_s
        assert limit_s >= each.work_s + 1_800
        assert limit_s in LIMITS_S
        assert each.job.walltime_estimate_s <= limit_s


def test_tiers_are_drawn_only_where_a_trace_has_none(small) -> None:
    world = crowd(small)
    tiers = {each.job.tier for each in laid_over(world, Overlay(), 1).jobs}
    assert tiers == {1, 2, 3, 4}
    first = world.jobs[0]
    told = replace(first, job=replace(first.job, preemptible=Preemptible.ANYTIME))
    kept = laid_over(replace(world, jobs=(told, *world.jobs[1:])), Overlay(), 1)
    assert {each.job.tier for each in kept.jobs} == {3}


def test_outages_lie_inside_the_window_and_do_not_overlap_on_a_host(small) -> None:
    found = laid_over(crowd(small, 2_000), Overlay(host_mtbf_s=86_400), 1).outages
    assert len(found) > 10
    free_from: dict[str, int] = {}
    for outage in found:
        assert free_from.get(outage.host, 0) <= outage.at_s < outage.back_s
        free_from[outage.host] = outage.back_s


def test_everything_made_up_is_told(small) -> None:
    told = " ".join(laid_over(crowd(small), Overlay(), 1).synthetic)
    for word in ("tier", "limits", "checkpoints", "data sets", "failures"):
        assert word in told


def test_the_cost_of_splitting_is_drawn_from_the_measurements_and_told(small, tmp_path) -> None:
    head = "job_type,gpus,steps_per_s_v100,steps_per_s_v100_unconsolidated\n"
    (tmp_path / "gavel_throughputs.csv").write_text(head + "m,1,9,3\nm,2,10,4\nm,4,10,12\n")
    world = small.workload([small.job(f"j{i}", i, 10, workers=1 + i % 2) for i in range(60)], [small.host("h")])
    found = with_split_cost(world, tmp_path, 1)
    assert {each.split_milli for each in found.jobs if each.job.workers == 1} == {1_000}
    assert {each.split_milli for each in found.jobs if each.job.workers == 2} == {400, 1_000}
    assert "slower in several" in found.synthetic[-1]
    assert with_split_cost(world, tmp_path, 1) == found
    with pytest.raises(InvalidInput, match="no such file"):
        with_split_cost(world, tmp_path / "nowhere", 1)
