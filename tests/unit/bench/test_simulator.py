"""The simulator on worlds small enough to follow by hand; times are launch 30 s, cleaning 10 s, rounds 60 s apart."""

from dataclasses import asdict, replace
from itertools import pairwise

import pytest

from phalanx.bench.baselines import BASELINES
from phalanx.bench.metrics import measure
from phalanx.bench.simulator import Options, simulate
from phalanx.bench.timing import Timing
from phalanx.bench.workload import Outage
from phalanx.model.job import CheckpointPolicy, DatasetRef
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy, TimePolicy
from phalanx.solver.solve import solve

OPTIONS = Options(timing=Timing(launch_s=30, launch_jitter_s=0, clean_s=10, stop_s=5))


def run(world, scheduler=solve, options=OPTIONS):
    return simulate(world, "test", scheduler, Policy(), options)


def by_name(found):
    return {outcome.job: outcome for outcome in found.outcomes}


def no_card_is_held_twice(found) -> bool:
    """Whole cards only; shares of one card may overlap."""
    whole = {outcome.job for outcome in found.outcomes if outcome.gpu_milli >= 1_000}
    held: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for span in found.spans:
        for card in span.cards if span.job in whole else ():
            held.setdefault((span.host, card), []).append((span.start_s, span.end_s))
    return all(a[1] <= b[0] for spans in held.values() for a, b in pairwise(sorted(spans)))


def test_the_second_gang_waits_until_the_first_is_gone_and_its_host_clean(small) -> None:
    world = small.workload([small.job("a", 0, 1_000, gpus=8), small.job("b", 100, 500, gpus=8)], [small.host("h")])
    found = by_name(run(world))
    assert (found["a"].start_s, found["a"].end_s) == (0, 1_030)
    assert found["b"].start_s == 1_040
    assert found["b"].end_s == 1_040 + 30 + 500
    assert [each.state for each in found.values()] == [JobState.SUCCEEDED] * 2
    assert (found["b"].wait_s, found["b"].queued_s, found["b"].completion_s) == (940, 940, 1_470)


def test_rounds_are_an_interval_apart(small) -> None:
    world = small.workload([small.job("a", 0, 100), small.job("b", 7, 100)], [small.host("h")])
    assert by_name(run(world))["b"].start_s == 60
    assert by_name(run(world, options=replace(OPTIONS, interval_s=5)))["b"].start_s == 7


def test_a_faster_type_shortens_the_work(small) -> None:
    job = small.job("a", 0, 1_000, types={"A100": 1_000, "H100": 2_000})
    world = small.workload([job], [small.host("h", gpu_type="H100")])
    assert by_name(run(world))["a"].end_s == 30 + 500


def test_a_gang_in_two_racks_runs_slower_where_splitting_costs(small) -> None:
    def racked(name: str, rack: str):
        each = small.host(name)
        return replace(each, path=replace(each.path, rack=rack))

    hosts = [racked("h", "r0"), racked("i", "r1"), racked("j", "r1")]
    gang = replace(small.job("gang", 0, 1_000, gpus=8, workers=2), split_milli=500)
    lasts = {}
    for name, fleet, outages in (
        ("one rack", hosts, ()),
        ("no rack is large enough", hosts[:2], ()),
        ("one host is down", hosts, (Outage(host="j", at_s=0, back_s=90_000),)),
    ):
        found = by_name(run(small.workload([gang], fleet, outages=outages)))["gang"]
        lasts[name] = found.end_s - found.start_s
    assert lasts == {"one rack": 1_030, "no rack is large enough": 1_030, "one host is down": 2_030}


def test_a_lost_host_costs_what_no_checkpoint_holds_and_the_job_resumes(small) -> None:
    saves = CheckpointPolicy(interval_s=100, write_s=1, restart_s=20, grace_s=30)
    world = small.workload(
        [small.job("a", 0, 1_000, checkpoint=saves)],
        [small.host("h"), small.host("i")],
        outages=(Outage(host="h", at_s=380, back_s=90_000), Outage(host="i", at_s=380, back_s=900)),
    )
    found = run(world)
    outcome = by_name(found)["a"]
    # Up at 30, 350 s of work by 380, 300 of them saved; host i is back at 900, the start takes 30 s, the restart 20.
    assert (outcome.state, outcome.attempts) == (JobState.SUCCEEDED, 2)
    assert outcome.end_s == 900 + 30 + 20 + 700
    assert (found.lost_gpu_s, found.setup_gpu_s, found.useful_gpu_s) == (50, 20, 1_000)


def test_without_checkpoints_all_work_of_the_attempt_is_lost(small) -> None:
    world = small.workload(
        [small.job("a", 0, 1_000)], [small.host("h")], outages=(Outage(host="h", at_s=380, back_s=900),)
    )
    found = run(world)
    assert by_name(found)["a"].end_s == 900 + 30 + 1_000
    assert found.lost_gpu_s == 350


def test_a_failing_start_is_tried_again(small) -> None:
    world = small.workload([small.job(f"j{i}", 0, 100) for i in range(8)], [small.host("h")], failing_starts_milli=300)
    found = run(world)
    assert {each.state for each in found.outcomes} == {JobState.SUCCEEDED}
    assert max(each.attempts for each in found.outcomes) > 1


def test_the_walltime_limit_is_enforced(small) -> None:
    world = small.workload([small.job("a", 0, 10_000, walltime_limit_s=600)], [small.host("h")])
    outcome = by_name(run(world))["a"]
    assert outcome.state is JobState.FAILED
    # Up at 30, over its limit at 630, where a round notices; it leaves within 5 s.
    assert outcome.end_s == 635


def test_shards_are_fetched_once_a_host(small) -> None:
    data = DatasetRef(name="d", digest="x", size_mib=100_000)
    jobs = [small.job("a", 0, 100, gpus=8, dataset=data), small.job("b", 1, 100, gpus=8, dataset=data)]
    found = by_name(run(small.workload(jobs, [small.host("h")])))
    assert found["a"].end_s == 30 + 100 + 100
    assert found["b"].end_s == found["b"].start_s + 30 + 100


def waits_for_reserved_hosts(small, walltime_s=2_000):
    """`big` starves for both hosts, which `a` and `b` hold for a while; it reads 500 GB."""
    data = DatasetRef(name="d", digest="x", size_mib=500_000)
    limits = {"walltime_limit_s": walltime_s}
    jobs = [
        small.job("a", 0, walltime_s - 10, gpus=8, **limits),
        small.job("b", 0, walltime_s - 10, gpus=8, **limits),
        small.job("big", 5, 1_000, gpus=8, workers=2, dataset=data),
    ]
    return small.workload(jobs, [small.host("h"), small.host("i")])


def test_a_gang_that_was_planned_starts_with_its_data_set_there(small) -> None:
    world = waits_for_reserved_hosts(small)
    hungry = Policy(time=TimePolicy(starve_after_s=1_100))  # by then it has waited longer than it has still to wait
    told = {}
    for name, policy in (("planned", hungry), ("never planned", Policy())):
        outcome = by_name(simulate(world, name, solve, policy, OPTIONS))["big"]
        told[name] = outcome.end_s - outcome.start_s
    # 500,000 MiB at 8,000 Mbit/s are 525 s; a gang that comes unannounced loads at 1,000 MiB/s.
    assert told == {"planned": 30 + 1_000, "never planned": 30 + 500 + 1_000}


def test_a_round_looks_again_when_a_gang_has_waited_as_long_as_its_plan_is_ahead(small) -> None:
    found = simulate(waits_for_reserved_hosts(small, walltime_s=20_000), "planned", solve, Policy(), OPTIONS)
    outcome = by_name(found)["big"]
    # Nothing happens between its starving after 2 h and the end of `a` and `b`; planned before, it finds its data there.
    assert found.slips.planned == 1
    assert outcome.end_s - outcome.start_s == 30 + 1_000


def test_a_gang_loads_what_could_not_be_loaded_ahead(small) -> None:
    world = waits_for_reserved_hosts(small, walltime_s=600)
    outcome = by_name(simulate(world, "test", solve, Policy(time=TimePolicy(starve_after_s=345)), OPTIONS))["big"]
    assert 30 + 1_000 < outcome.end_s - outcome.start_s < 30 + 500 + 1_000


def test_a_job_that_expires_in_the_queue_ends_the_run_too(small) -> None:
    jobs = [small.job("a", 0, 5_000, gpus=8), small.job("b", 10, 10, gpus=8, queue_deadline_s=100)]
    jobs.append(small.job("c", 2_000, 10))
    found = by_name(run(small.workload(jobs, [small.host("h")])))
    assert found["b"].state is JobState.EXPIRED
    assert found["b"].start_s is None


def test_a_run_can_end_early_with_work_in_progress_counted(small) -> None:
    world = small.workload([small.job("a", 0, 1_000), small.job("b", 10, 10_000)], [small.host("h")])
    found = run(world, options=replace(OPTIONS, until_s=2_000))
    states = {outcome.job: outcome.state for outcome in found.outcomes}
    assert states == {"a": JobState.SUCCEEDED, "b": JobState.RUNNING}
    assert 1_000 < found.useful_gpu_s <= 3_000


@pytest.mark.parametrize("name", ["phalanx", "best_fit", "easy", "fifo"])
def test_a_crowd_is_served_whole_by_every_scheduler_and_twice_the_same(small, name: str) -> None:
    jobs = [
        small.job(
            f"j{i}",
            97 * i,
            300 + 701 * (i % 5),
            gpus=(1, 2, 4, 8, 0.5)[i % 5],
            workers=1 + (i % 5 == 2),
            team=f"t{i % 3}",
        )
        for i in range(12)
    ]
    hosts = [small.host("h"), small.host("i", 4), small.host("j", site="r")]
    world = small.workload(jobs, hosts, failing_starts_milli=50, outages=(Outage(host="h", at_s=2_000, back_s=3_000),))
    first, second = (run(world, solve if name == "phalanx" else BASELINES[name]()) for _ in range(2))
    assert first.rounds.violations == []
    assert {each.state for each in first.outcomes} == {JobState.SUCCEEDED}
    assert no_card_is_held_twice(first)
    assert [asdict(each) for each in first.outcomes] == [asdict(each) for each in second.outcomes]
    numbers = measure(first)
    assert 0.2 < numbers.allocation <= 1
    assert numbers.goodput <= numbers.allocation
    assert 0 < numbers.fairness <= 1
    work = sum(each.work_s * each.gpu_milli / 1000 for each in first.outcomes)
    assert first.useful_gpu_s == pytest.approx(work, rel=0.01)
    held = sum(each.held_gpu_s for each in first.outcomes)
    assert held == pytest.approx(_held(first), rel=1e-9)
    assert held >= first.useful_gpu_s + first.lost_gpu_s + first.setup_gpu_s


def _held(found) -> float:
    return sum(a.held_milli * (b.at_s - a.at_s) / 1000 for a, b in zip(found.samples, found.samples[1:], strict=False))
