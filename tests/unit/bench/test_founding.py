"""The founding scenario: its fleet is the one of the mission, its jobs are the seed's, it can be run."""

from phalanx.bench.contest import scheduler
from phalanx.bench.founding import DEMANDS, FLEET, founding
from phalanx.bench.metrics import measure
from phalanx.bench.simulator import Options, simulate
from phalanx.bench.workload import runnable
from phalanx.model.policy import Policy


def test_about_fifty_gpus_on_seven_hosts_and_three_sites() -> None:
    assert len(FLEET) == 7
    assert sum(cards for _, _, _, cards, _ in FLEET) == 52
    assert {kind for _, _, kind, _, _ in FLEET} == {"A100", "H100"}
    world = founding(1, days=1)
    assert len(world.sites) == 3
    assert set(world.owners.values()) == {demand.team for demand in DEMANDS}
    assert {host.id for host in world.hosts} == set(world.owners)


def test_a_seed_is_a_sample_of_jobs() -> None:
    assert founding(1, days=2) == founding(1, days=2)
    assert founding(1, days=2).jobs != founding(2, days=2).jobs


def test_fed_jobs_are_the_same_jobs_with_half_the_work() -> None:
    plain, fed = founding(1, days=2), founding(1, days=2, fed=True)
    assert [each.job.id for each in plain.jobs] == [each.job.id for each in fed.jobs]
    assert sum(each.work_s for each in fed.jobs) < 0.51 * sum(each.work_s for each in plain.jobs)


def test_every_job_fits_the_part_of_its_team() -> None:
    world = founding(3)
    assert runnable(world, Policy()).left_out == 0
    largest = dict.fromkeys(world.owners.values(), 0)
    for each in world.jobs:
        largest[each.job.team] = max(largest[each.job.team], each.job.gpus)
    assert largest == {"language": 16, "vision": 8, "speech": 8, "robotics": 8}


def test_smoke_a_day_shared_beats_a_day_partitioned() -> None:
    world = founding(1, days=1)
    found = {}
    for name in ("phalanx", "fifo_partitioned"):
        run = simulate(world, name, scheduler(name, world), Policy(), Options(interval_s=3_600))
        found[name] = measure(run)
        assert run.rounds.violations == []
        assert found[name].unstarted == 0
        assert 0.2 < found[name].allocation < 1
        assert 0.5 < found[name].fairness <= 1
    assert found["phalanx"].wait.mean < found["fifo_partitioned"].wait.mean
    assert found["phalanx"].goals_open < 0.5


def test_each_team_may_be_guaranteed_what_it_owned() -> None:
    plain, found = founding(1, days=0.5), founding(1, guaranteed=True, days=0.5)
    assert plain.guaranteed_milli == {}
    assert found.guaranteed_milli == {"language": 16_000, "vision": 16_000, "speech": 8_000, "robotics": 12_000}
    assert {quota.gpu_type for team in found.teams for quota in team.guarantee} == {"A100", "H100"}
    assert found.jobs == plain.jobs
