"""What-if: the empty change is today, every kind of change does what it says, and nonsense is told where it stands."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_worlds import NOW_S, POLICY, ask, box, gang, queued, running, world

from phalanx.model.change import AddHosts, AddJobs, Change, ChangeHost, ChangePolicy, ChangeTeam, GpuPrice
from phalanx.model.codec import document, dumps, loads
from phalanx.model.errors import InvalidInput
from phalanx.model.host import HostState
from phalanx.model.job_state import JobState
from phalanx.model.policy import ObjectivePolicy, Policy, StandardGang
from phalanx.model.team import Team
from phalanx.model.topology import Layer
from phalanx.solver.apply_change import apply_change
from phalanx.solver.solve import solve
from phalanx.solver.whatif import Verdict, what_if


def busy():
    """Two hosts; one is full for another hour, two gangs wait."""
    held = replace(
        running(gang("r", 1, 8, walltime_estimate_s=3_660, walltime_limit_s=9_000), ("h1", range(8))),
        started_s=NOW_S - 60,
    )
    cordoned = box("h2", state=HostState.CORDONED)
    return world([box("h1"), cordoned], held, gang("a", 1, 8, walltime_estimate_s=600), gang("b", 1, 8))


def verdict(comparison, job):
    return next(entry for entry in comparison.jobs if entry.job == job)


def test_the_empty_change_is_today() -> None:
    seen = what_if(busy(), Change(), POLICY)
    assert seen.today == seen.then
    assert seen.verdicts == {Verdict.SAME: 2}
    assert all(entry.today == entry.then for entry in seen.jobs)


def test_a_host_like_another_lets_a_job_start_now() -> None:
    seen = what_if(busy(), Change(add_hosts=(AddHosts(like="h2", count=1),)), POLICY)
    entry = verdict(seen, "a")
    assert entry.verdict is Verdict.SOONER
    assert (entry.today.start_s, entry.then.start_s) == (NOW_S + 3_600 + 10, NOW_S)
    assert (seen.today.starting, seen.then.starting) == (0, 1)
    assert (seen.today.capacity_milli, seen.then.capacity_milli) == (16_000, 24_000)
    assert (seen.today.held_milli, seen.then.held_milli) == (8_000, 16_000)
    assert (seen.today.allocation_milli, seen.then.allocation_milli) == (500, 666)
    assert seen.then.waits.mean_s < seen.today.waits.mean_s


def test_waits_are_those_of_the_forecast() -> None:
    seen = what_if(busy(), Change(), POLICY).today
    first = 1_000 - 1 + 3_610
    second = 1_000 - 2 + 3_610 + 30 + 600 + 10
    assert (seen.waits.jobs, seen.waits.untold) == (2, 0)
    assert (seen.waits.mean_s, seen.waits.p50_s, seen.waits.p90_s) == ((first + second) // 2, first, second)


def test_removing_a_host_drives_its_jobs_back_into_the_queue() -> None:
    snapshot, change = busy(), Change(remove_hosts=("h1",), hosts=(ChangeHost(host="h2", state=HostState.READY),))
    then, _ = apply_change(snapshot, POLICY, change)
    (record,) = [record for record in then.jobs if record.id == "r"]
    assert (record.state, record.placement) == (JobState.QUEUED, None)
    assert record.submitted_s == snapshot.jobs[0].submitted_s
    assert verdict(what_if(snapshot, change, POLICY), "r").verdict is Verdict.DRIVEN_OUT


@pytest.mark.parametrize(
    ("state", "stays"),
    [("cordoned", True), ("suspect", True), ("down", False), ("maintenance", False), ("evacuating", False)],
)
def test_host_states(state: str, stays: bool) -> None:
    then, _ = apply_change(busy(), POLICY, Change(hosts=(ChangeHost(host="h1", state=HostState(state)),)))
    assert (then.jobs[0].placement is not None) == stays


def test_new_jobs_wait_behind_and_removed_ones_are_gone() -> None:
    change = Change(add_jobs=(AddJobs(job=gang("n", 1, 8), count=2),), remove_jobs=("r", "b"))
    seen = what_if(busy(), change, POLICY)
    assert {entry.job: entry.verdict for entry in seen.jobs} == {
        "a": Verdict.SOONER,
        "b": Verdict.GONE,
        "r": Verdict.GONE,
        "n-1": Verdict.NEW,
        "n-2": Verdict.NEW,
    }
    assert verdict(seen, "a").then.start_s == NOW_S


def test_no_longer_and_newly_told() -> None:
    away = what_if(busy(), Change(hosts=(ChangeHost(host="h1", state=HostState.DOWN),)), POLICY)
    assert verdict(away, "a").verdict is Verdict.NO_LONGER_TOLD
    assert away.then.waits.untold == 3
    only = world([box("h1", state=HostState.CORDONED)], gang("a"))
    back = what_if(only, Change(hosts=(ChangeHost(host="h1", state=HostState.READY),)), POLICY)
    assert verdict(back, "a").verdict is Verdict.NOW_TOLD


def test_a_heavier_team_goes_first() -> None:
    teams = (Team(id="x"), Team(id="y"))
    jobs = [queued(gang(f"{t}{n}", 1, 1, team=t), 100 - n) for t in "xy" for n in range(4)]
    snapshot = world([box("h1", 4)], *jobs, teams=teams)
    change = Change(teams=(ChangeTeam(team="y", weight=900),))
    seen = what_if(snapshot, change, POLICY)
    before = [entry.job for entry in seen.jobs if entry.today.start_s == NOW_S and entry.job.startswith("y")]
    after = [entry.job for entry in seen.jobs if entry.then.start_s == NOW_S and entry.job.startswith("y")]
    assert (len(before), len(after)) == (2, 4)
    then, _ = apply_change(snapshot, POLICY, change)
    assert [team.weight for team in then.teams] == [100, 900]


def test_teams_that_nobody_described_can_be_changed() -> None:
    then, _ = apply_change(busy(), POLICY, Change(teams=(ChangeTeam(team="team", weight=5),)))
    assert then.teams == (Team(id="team", weight=5),)


def test_policy_fields_and_prices() -> None:
    change = Change(
        policy=(
            ChangePolicy(field="objective.horizon_s", value=7_200),
            ChangePolicy(field="cross_site", value=1),
            ChangePolicy(field="eviction.max_loss_s", value=3_600),
        ),
        prices=(GpuPrice(gpu_type="H100", milli_per_hour=2_500),),
    )
    _, policy = apply_change(busy(), POLICY, change)
    assert (policy.objective.horizon_s, policy.cross_site, policy.eviction.max_loss_s) == (7_200, True, 3_600)
    seen = what_if(busy(), change, POLICY)
    assert (seen.today.cost_milli, seen.today.held_cost_milli) == (40_000, 20_000)
    assert what_if(busy(), Change(), POLICY).today.cost_milli is None


def test_idle_cards_and_room_for_standard_gangs() -> None:
    gangs = (StandardGang(workers=2, gpus=4, layer=Layer.RACK), StandardGang(workers=1, gpus=8, layer=Layer.HOST))
    policy = Policy(objective=ObjectivePolicy(standard_gangs=gangs))
    half = gang("f", request=ask(0.5))
    hosts = [box("h1", rack="r"), box("h2", rack="r"), box("h3", 4, "A100", rack="q"), box("sp", spare=True)]
    snapshot = world(hosts, running(half, ("h1", [0])))
    seen = what_if(snapshot, Change(), policy).today
    assert [(use.gpu_type, use.gpu_milli, use.idle_milli) for use in seen.types] == [
        ("A100", 4_000, 4_000),
        ("H100", 24_000, 15_500),
    ]
    assert [(room.gang.workers, room.gpu_type, room.count) for room in seen.room] == [
        (2, "A100", 0),
        (2, "H100", 1),
        (1, "A100", 0),
        (1, "H100", 1),
    ]


def test_room_needs_what_gangs_ask_beside_their_gpus() -> None:
    policy = Policy(objective=ObjectivePolicy(standard_gangs=(StandardGang(workers=1, gpus=4, layer=Layer.HOST),)))
    hosts = [replace(box("h1"), cpu_milli=64_000), replace(box("h2"), cpu_milli=64_000)]
    hungry = gang("f", request=replace(ask(1), cpu_milli=30_000))
    seen = what_if(world(hosts, running(hungry, ("h1", [0]))), Change(), policy).today
    # h1 has 34 cores left for seven cards, one card's worth; h2 has 64, enough for two.
    assert [room.count for room in seen.room] == [0]


def test_solve_compares_as_well() -> None:
    change = Change(add_hosts=(AddHosts(like="h1"),))
    assert what_if(busy(), change, POLICY, decide=solve).verdicts == what_if(busy(), change, POLICY).verdicts


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (Change(add_hosts=(AddHosts(like="h9"),)), "add_hosts[0].like"),
        (Change(add_hosts=(AddHosts(host=box("h1")),)), "add_hosts[0].host.id"),
        (Change(remove_hosts=("h1", "nope")), "remove_hosts[1]"),
        (Change(hosts=(ChangeHost(host="nope"),)), "hosts[0].host"),
        (Change(remove_jobs=("nope",)), "remove_jobs[0]"),
        (Change(add_jobs=(AddJobs(job=gang("a")),)), "add_jobs[0].job.id"),
        (Change(teams=(ChangeTeam(team="nope"),)), "teams[0].team"),
        (Change(policy=(ChangePolicy(field="objective.horizon", value=1),)), "policy[0].field"),
        (Change(policy=(ChangePolicy(field="objective", value=1),)), "policy[0].field"),
        (Change(policy=(ChangePolicy(field="cross_site.x", value=1),)), "policy[0].field"),
        (Change(policy=(ChangePolicy(field="cross_site", value=2),)), "policy[0].value"),
        (Change(policy=(ChangePolicy(field="solve.budget_ms", value=-1),)), "policy[0].budget_ms"),
        (Change(policy=(ChangePolicy(field="objective.standard_gangs", value=1),)), "policy[0].field"),
    ],
)
def test_a_change_of_what_does_not_exist_is_refused(change: Change, path: str) -> None:
    with pytest.raises(InvalidInput) as fault:
        what_if(busy(), change, POLICY)
    assert fault.value.path == path
    assert fault.value.expected


def test_an_unknown_team_of_a_new_job_is_refused() -> None:
    snapshot = world([box("h1")], teams=[Team(id="x")])
    with pytest.raises(InvalidInput, match="there is no team 'z'"):
        what_if(snapshot, Change(add_jobs=(AddJobs(job=gang("n", team="z")),)), POLICY)


def test_copies_are_named_anew_and_are_fresh() -> None:
    old = box(
        "h1", [*box("x", 2).gpus[:1], replace(box("x", 2).gpus[1], healthy=False)], nvlink="nv", rack="r", spare=True
    )
    snapshot = world([old, box("h1-new1")])
    then, _ = apply_change(snapshot, POLICY, Change(add_hosts=(AddHosts(like="h1", count=2), AddHosts(like="h1"))))
    new = then.hosts[2:]
    assert [host.id for host in new] == ["h1-new2", "h1-new3", "h1-new4"]
    assert all(host.gpu_milli == 2_000 and not host.spare and host.state is HostState.READY for host in new)
    assert {(host.path.rack, host.path.nvlink) for host in new} == {("r", "nv-new")}
    given_ = Change(add_hosts=(AddHosts(host=box("g", site="far"), count=2), AddHosts(host=box("one"))))
    then, _ = apply_change(snapshot, POLICY, given_)
    assert [host.id for host in then.hosts[2:]] == ["g-new1", "g-new2", "one"]
    assert [site.id for site in then.sites] == ["s", "far"]


def test_the_document_of_a_change() -> None:
    change = Change(
        add_hosts=(AddHosts(like="h1", count=2),),
        hosts=(ChangeHost(host="h2", state=HostState.DOWN, windows=()),),
        add_jobs=(AddJobs(job=gang("n")),),
        teams=(ChangeTeam(team="t", weight=3),),
        policy=(ChangePolicy(field="cross_site", value=1),),
        prices=(GpuPrice(gpu_type="H100", milli_per_hour=1),),
    )
    assert loads(dumps(change), Change) == change
    assert document(Change()) == {"kind": "phalanx.change", "version": 1}
    with pytest.raises(InvalidInput, match="neither or both"):
        AddHosts()
    with pytest.raises(InvalidInput, match="stands twice"):
        Change(remove_hosts=("h1", "h1"))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from((1, 2, 4, 8)), min_size=1, max_size=5), st.integers(1, 3))
def test_hosts_add_their_capacity_and_nothing_is_lost(sizes: list[int], count: int) -> None:
    snapshot = world([box("h1")], *(gang(f"j{number}", 1, gpus) for number, gpus in enumerate(sizes)))
    seen = what_if(snapshot, Change(add_hosts=(AddHosts(like="h1", count=count),)), POLICY)
    assert seen.then.capacity_milli == seen.today.capacity_milli + 8_000 * count
    for side in (seen.today, seen.then):
        assert 0 <= side.held_milli <= side.capacity_milli
        assert side.held_milli + sum(use.idle_milli for use in side.types) == side.capacity_milli
    assert seen.then.hosts == 1 + count
