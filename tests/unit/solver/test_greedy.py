"""The greedy: order, whole gangs, tight hosts, cheap types, shared cards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from small_worlds import POLICY, ask, box, gang, queued, role, running, world

from phalanx.model.decision import Start
from phalanx.model.job import GpuTypeChoice, Parallelism, Preemptible, TopologyConstraint
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.model.team import Team
from phalanx.model.topology import Layer
from phalanx.solver.greedy import greedy
from phalanx.solver.verify import verify_starts


def start(snapshot: Snapshot, policy: Policy = POLICY) -> dict[str, Start]:
    found = greedy(snapshot, policy)
    assert verify_starts(snapshot, policy, found) == ()
    return {begun.job: begun for begun in found}


def hosts(found: dict[str, Start], job: str) -> list[str]:
    return [worker.host for worker in found[job].placement.workers]


def test_nothing_waits_nothing_starts() -> None:
    assert greedy(world([box("h1")]), POLICY) == ()
    assert greedy(world([], gang("a")), POLICY) == ()


def test_a_higher_level_goes_first_however_long_the_other_waited() -> None:
    low, high = gang("low", 1, 8, tier=3), gang("high", 1, 8, tier=1)
    assert set(start(world([box("h1")], queued(low, 900_000), queued(high, 0)))) == {"high"}


def test_preemptible_and_demoted_work_comes_last() -> None:
    cheap = gang("cheap", 1, 8, preemptible=Preemptible.ANYTIME)
    demoted, plain = gang("demoted", 1, 8, tier=1), gang("plain", 1, 8, tier=4)
    snapshot = world([box("h1")], queued(cheap, 900), queued(demoted, 900, demoted=True), queued(plain))
    assert set(start(snapshot)) == {"plain"}


def test_among_equals_the_head_of_the_queue() -> None:
    jobs = [queued(gang(name, 1, 8), waited) for name, waited in (("young", 1), ("old", 90), ("middle", 50))]
    assert set(start(world([box("h1")], *jobs))) == {"old"}


def test_teams_take_turns_as_their_credit_falls() -> None:
    teams = [Team(id="x"), Team(id="y")]
    first = [queued(gang(f"x{n}", 1, 4, team="x"), 500) for n in range(4)]
    later = [queued(gang(f"y{n}", 1, 4, team="y"), 100) for n in range(4)]
    found = start(world([box("h1"), box("h2")], *first, *later, teams=teams))
    assert sorted(name[0] for name in found) == ["x", "x", "y", "y"]


def test_what_does_not_fit_is_passed_over() -> None:
    big, small = gang("big", 3, 8), gang("small", 1, 8)
    assert set(start(world([box("h1"), box("h2")], queued(big, 9_000), queued(small)))) == {"small"}


def test_the_tight_host_first() -> None:
    busy = running(gang("r", 1, 6), ("h2", range(6)))
    found = start(world([box("h1"), box("h2"), box("h3")], busy, gang("a", 1, 2)))
    assert hosts(found, "a") == ["h2"]


def test_room_for_standard_gangs_is_spared() -> None:
    # Two free cards on h1 break a room for 4 there; on h2 they leave one.
    fleet = [box("h1"), box("h2")]
    snapshot = world(
        fleet, running(gang("r", 1, 4), ("h1", range(4))), running(gang("s", 1, 2), ("h2", (0, 1))), gang("a", 1, 2)
    )
    assert hosts(start(snapshot), "a") == ["h2"]


def test_work_without_gpus_goes_where_no_gpu_is_free() -> None:
    fleet = [box("h1"), box("h2"), box("c1", 0)]
    found = start(world(fleet, gang("a", request=ask(0, cpu=8))))
    assert hosts(found, "a") == ["c1"]


def test_a_type_that_running_jobs_must_have_is_left_to_them() -> None:
    # h1 is the tight host, but of the type of which more is asked.
    fleet = [box("h1", 2), box("a1", 8, "A100")]
    bound = running(gang("r", 1, 1, ["H100"]), ("h1", [0]))
    assert hosts(start(world(fleet, bound, gang("a"))), "a") == ["a1"]


def test_work_that_needs_many_cores_goes_where_cores_are_to_spare() -> None:
    fleet = [box("h1", 2, cpu_milli=24_000), box("h2", 4, cpu_milli=96_000)]
    others = running(gang("r", 2, request=ask(1, cpu=8)), ("h2", [0]), ("h2", [1]))
    # On h1 the other card would be left with 4 cores, fewer than a GPU asks; on h2 with 60.
    assert hosts(start(world(fleet, others, gang("a", request=ask(1, cpu=20)))), "a") == ["h2"]


def test_fractions_go_to_shared_cards_first_one_team_a_card() -> None:
    shared = running(gang("r", request=ask(0.5)), ("h2", [3]))
    mine, theirs = gang("a", request=ask(0.5)), gang("b", request=ask(0.5), team="others")
    found = start(world([box("h1"), box("h2")], shared, mine, theirs))
    assert [(w.host, w.gpus) for w in found["a"].placement.workers] == [("h2", (3,))]
    assert found["b"].placement.workers[0].gpus != (3,)


def fast(names: Iterable[tuple[str, int]]) -> tuple[GpuTypeChoice, ...]:
    return tuple(GpuTypeChoice(gpu_type=name, throughput_milli=speed) for name, speed in names)


def test_the_fastest_type_and_a_slower_one_rather_than_none() -> None:
    choices = fast([("H100", 3_000), ("A100", 1_000)])
    jobs = [gang(f"j{n}", roles=(replace(role("worker", 1, ask(8)), gpu_types=choices),)) for n in range(2)]
    found = start(world([box("a1", gpu_type="A100"), box("h1")], *jobs))
    assert [hosts(found, f"j{n}") for n in range(2)] == [["h1"], ["a1"]]


def test_the_common_type_where_speeds_are_equal() -> None:
    fleet = [box("a1", gpu_type="A100"), box("h1"), box("h2")]
    assert hosts(start(world(fleet, gang("a", 1, 8))), "a") != ["a1"]


def test_types_that_others_cannot_do_without_are_left_to_them() -> None:
    free, bound = gang("free", 1, 8), gang("bound", 1, 8, types=["H100"])
    fleet = [box("a1", gpu_type="A100"), box("h1"), box("h2", 2)]
    found = start(world(fleet, queued(free, 9_000), queued(bound)))
    assert (hosts(found, "free"), hosts(found, "bound")) == (["a1"], ["h1"])


def test_one_rack_before_two_and_the_tightest_rack() -> None:
    fleet = [box(f"h{n}", rack=f"r{n // 3}", zone="z") for n in range(6)]
    busy = running(gang("r", 1, 8), ("h4", range(8)))
    found = start(world(fleet, busy, gang("a", 2, 8)))
    assert set(hosts(found, "a")) == {"h3", "h5"}


def test_a_required_rack_is_kept_or_the_gang_waits() -> None:
    fleet = [box(f"h{n}", rack=f"r{n // 2}") for n in range(4)]
    racked = gang("a", 3, 8, topology=(TopologyConstraint(layer=Layer.RACK),))
    assert start(world(fleet, racked)) == {}
    assert set(start(world(fleet, replace(racked, topology=())))) == {"a"}


def test_tensor_groups_take_whole_nvlink_domains() -> None:
    fleet = [box(f"h{n}", 4, nvlink=f"n{n // 2}") for n in range(4)]
    busy = running(gang("r", 1, 1), ("h0", [0]))
    found = start(world(fleet, busy, gang("a", 4, 2, parallelism=Parallelism(tensor=4))))
    assert {host[1] for host in hosts(found, "a")} == {"2", "3"}


def test_pipeline_replicas_are_not_cut_where_they_need_not_be() -> None:
    fleet = [box("h1", 6, rack="r1"), box("h2", 6, rack="r2")]
    job = gang("a", 8, 1, parallelism=Parallelism(pipeline=4, data=2))
    found = start(world(fleet, job))
    assert hosts(found, "a") in (["h1"] * 4 + ["h2"] * 4, ["h2"] * 4 + ["h1"] * 4)


def test_roles_of_one_gang_share_hosts() -> None:
    job = gang(
        "a", roles=(role("trainer", 2, ask(3, cpu=20)), role("judge", 1, ask(2, cpu=20)), role("reader", 4, ask(0)))
    )
    found = start(world([box("h1"), box("h2", 4)], job))
    assert set(hosts(found, "a")) == {"h1"}
    assert [worker.role for worker in found["a"].placement.workers] == ["trainer"] * 2 + ["judge"] + ["reader"] * 4


@pytest.mark.parametrize("limit", ["cpu", "memory", "network"])
def test_amounts_other_than_gpus_bind(limit: str) -> None:
    request = {"cpu": ask(1, cpu=33), "memory": ask(1, memory_gib=300), "network": ask(1, network_mbps=60_000)}[limit]
    assert len(start(world([box("h1")], gang("a", request=request), gang("b", request=request)))) == 1


def test_a_gang_across_sites_where_both_allow_it() -> None:
    fleet = [box("h1", site="x"), box("h2", site="y")]
    job = gang("a", 2, 8, cross_site=True)
    assert start(world(fleet, job)) == {}
    assert set(start(world(fleet, job), replace(POLICY, cross_site=True))) == {"a"}
