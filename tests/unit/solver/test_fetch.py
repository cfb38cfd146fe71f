"""Shard-cache affinity: what a host lacks, how long loading it takes, and what a round makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from small_worlds import POLICY, begin, box, gang, world

from phalanx.model.decision import GoalStatus
from phalanx.model.host import CachedDataset, Host
from phalanx.model.job import DatasetRef, Job
from phalanx.model.policy import ObjectivePolicy, Policy, SolvePolicy
from phalanx.model.topology import Link
from phalanx.solver.exchange import exchange
from phalanx.solver.fetch import fetch_s, missing_mib
from phalanx.solver.plan import assemble
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify

EEG = DatasetRef(name="eeg", size_mib=1_000, shards=10)


def having(host: Host, shards: int, name: str = "eeg", digest: str = "") -> Host:
    there = CachedDataset(dataset=name, digest=digest, shards=shards, shards_total=10, size_mib=shards * 100)
    return replace(host, cached=(*host.cached, there))


def reading(name: str, dataset: DatasetRef | None, gpus: float = 8, **more: object) -> Job:
    return replace(gang(name, 1, gpus), dataset=dataset, **more)


@pytest.mark.parametrize(
    ("host", "missing"),
    [
        (box("h"), 1_000),
        (having(box("h"), 10), 0),
        (having(box("h"), 7), 300),
        (having(box("h"), 9, name="other"), 1_000),
    ],
)
def test_a_host_lacks_the_shards_that_it_does_not_have(host: Host, missing: int) -> None:
    assert missing_mib(host, EEG) == missing


def test_a_copy_of_another_digest_counts_for_nothing() -> None:
    asked = replace(EEG, digest="b")
    assert missing_mib(having(box("h"), 10, digest="a"), asked) == 1_000
    assert missing_mib(having(box("h"), 10, name="renamed", digest="b"), asked) == 0


def loads_s(host: Host, policy: Policy = POLICY, links: Sequence[Link] = (), data: DatasetRef | None = EEG) -> int:
    return fetch_s(host, data, replace(world([host]), links=tuple(links)), policy)


def test_loading_goes_at_the_policys_speed_or_the_hosts_own() -> None:
    # 1,000 MiB are 8,388.608 Mbit.
    assert loads_s(box("h")) == 2
    assert loads_s(box("h", network_mbps=1_000)) == 9
    assert loads_s(box("h", network_mbps=0), Policy(objective=ObjectivePolicy(fetch_mbps=8))) == 1_049
    assert loads_s(box("h"), data=None) == 0


@pytest.mark.parametrize(
    ("ends", "seconds"),
    [
        (("site:s", "fleet"), 84),
        (("fleet", "site:s"), 84),
        (("site:s/rack:r", "site:s"), 84),
        (("host:h", "site:s/rack:r"), 84),
        (("site:s/rack:other", "site:s"), 2),
        (("site:s", "site:other"), 2),
        (("site:other", "fleet"), 2),
    ],
)
def test_loading_goes_no_faster_than_the_links_above_the_host(ends: tuple[str, str], seconds: int) -> None:
    slow = Link(a=ends[0], b=ends[1], bandwidth_mbps=100)
    wide = Link(a="site:s", b="fleet", bandwidth_mbps=400_000)
    assert loads_s(box("h", rack="r"), links=[wide, slow]) == seconds


def test_a_site_behind_a_slow_link_is_left_to_those_who_read_nothing() -> None:
    hosts = [box("far", site="a"), box("near", site="b")]
    slow = Link(a="site:a", b="fleet", bandwidth_mbps=50)
    jobs = [reading("reads", EEG), reading("bare", None)]
    snapshot = replace(world(hosts, *jobs), links=(slow,))
    decision = solve(snapshot, POLICY)
    assert verify(snapshot, POLICY, decision) == ()
    assert {start.job: start.placement.hosts for start in decision.starts} == {"reads": ("near",), "bare": ("far",)}
    assert all(goal.status is GoalStatus.PROVEN for goal in decision.goals)


def test_of_equal_hosts_the_one_with_more_shards_is_chosen_and_the_goal_says_what_is_left_to_load() -> None:
    hosts = [box("a"), having(box("b"), 6), having(box("c"), 5)]
    snapshot = world(hosts, reading("j", replace(EEG, size_mib=1_000_000)))
    decision = solve(snapshot, POLICY)
    assert [start.placement.hosts for start in decision.starts] == [("b",)]
    economy = next(goal for goal in decision.goals if goal.name == "economy")
    assert economy.status is GoalStatus.PROVEN
    # 400,000 MiB at 8,000 Mbit/s: 419.43 s, for 8 GPUs.
    assert {part.name: part.value for part in economy.parts}["fetch"] == -8_000 * 420
    assert not verify(snapshot, POLICY, decision)


def test_caches_are_chosen_jointly() -> None:
    # a is better for both; the pair (x on b, y on a) loads least together.
    big = [replace(EEG, name=name, size_mib=1_000_000) for name in ("p", "q")]
    hosts = [having(having(box("a"), 9, "p"), 10, "q"), having(having(box("b"), 8, "p"), 0, "q")]
    decision = solve(world(hosts, reading("x", big[0]), reading("y", big[1])), POLICY)
    assert {start.job: start.placement.hosts for start in decision.starts} == {"x": ("b",), "y": ("a",)}


def test_a_decision_of_the_greedy_trades_places_among_alike_gangs() -> None:
    sets = [replace(EEG, name=f"d{number}", size_mib=1_000_000) for number in range(4)]
    hosts = [having(box(f"h{number}"), 10, f"d{3 - number}") for number in range(4)]
    snapshot = world(hosts, *(reading(f"j{number}", sets[number]) for number in range(4)))
    decision = solve(snapshot, Policy(solve=SolvePolicy(exact_columns=0)))
    assert {start.job: start.placement.hosts for start in decision.starts} == {
        "j0": ("h3",),
        "j1": ("h2",),
        "j2": ("h1",),
        "j3": ("h0",),
    }
    assert not verify(snapshot, POLICY, decision)


@pytest.mark.parametrize(
    "difference", [{"walltime_limit_s": 60}, {"tier": 2}, {"sites": ("s",)}, {"roles": gang("o", 2, 4).roles}]
)
def test_gangs_that_differ_in_anything_else_keep_their_places(difference: dict[str, object]) -> None:
    hosts = [having(box("a"), 10, "q"), having(box("b"), 10, "p")]
    p, q = (replace(EEG, name=name, size_mib=1_000_000) for name in ("p", "q"))
    x, y = reading("x", p), replace(reading("y", q), **difference)
    seats = [("b", range(4)), ("b", range(4, 8))] if y.workers == 2 else [("b", range(8))]
    starts = [begin(x, ("a", range(8))), begin(y, *seats)]
    other, alike = world(hosts, x, y), world(hosts, x, reading("y", q))
    plan = assemble(other, POLICY, starts, ())
    assert exchange(other, POLICY, plan) == plan
    starts[1] = begin(reading("y", q), ("b", range(8)))
    swapped = exchange(alike, POLICY, assemble(alike, POLICY, starts, ()))
    assert [start.placement.hosts for start in swapped.starts] == [("b",), ("a",)]
