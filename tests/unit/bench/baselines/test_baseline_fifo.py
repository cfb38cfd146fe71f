"""Strict queues block, skipping ones do not; first fit, best fit; a fleet cut into parts lends nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from small_worlds import POLICY, ask, begin, box, gang, queued, role, running, world

from phalanx.bench.baselines import BASELINES, FifoPartitioned, Scheduler, decision_of
from phalanx.bench.baselines.fifo import RandomFit, best_fit, fifo, first_fit
from phalanx.bench.baselines.partitioned import cut
from phalanx.model.decision import Decision, GoalStatus, Stage
from phalanx.model.host import HostState
from phalanx.model.ids import HostId, TeamId
from phalanx.model.job import Parallelism, TopologyConstraint
from phalanx.model.snapshot import Snapshot
from phalanx.model.team import Team
from phalanx.model.topology import Layer
from phalanx.solver.verify import verify


def where(decision: Decision) -> dict[str, tuple[str, ...]]:
    return {start.job: start.placement.hosts for start in decision.starts}


def team(name: str, weight: int = 100, parent: str | None = None) -> Team:
    return Team(id=TeamId(name), weight=weight, parent=parent and TeamId(parent))


QUEUE = (
    queued(gang("first", 1, 4), 900),
    queued(gang("large", 1, 8), 600),
    queued(gang("small", 1, 2), 300),
)


def test_strict_fifo_stops_at_the_first_that_does_not_fit() -> None:
    assert list(where(fifo(world([box("h")], *QUEUE), POLICY))) == ["first"]


def test_first_fit_passes_it_over() -> None:
    assert list(where(first_fit(world([box("h")], *QUEUE), POLICY))) == ["first", "small"]


def test_submission_alone_orders_them_whatever_the_tier() -> None:
    jobs = (queued(gang("old", 1, 8, tier=4), 900), queued(gang("prod", 1, 8, tier=1), 60))
    for scheduler, name in ((fifo, "old"), (first_fit, "old"), (best_fit, "prod")):
        assert list(where(scheduler(world([box("h")], *jobs), POLICY))) == [name]


def test_first_fit_takes_the_first_host_and_best_fit_the_tightest() -> None:
    snapshot = world([box("a"), box("b", 4)], gang("x", 1, 4))
    assert where(first_fit(snapshot, POLICY)) == {"x": ("a",)}
    assert where(best_fit(snapshot, POLICY)) == {"x": ("b",)}


def test_first_fit_fills_hosts_in_the_order_of_the_fleet() -> None:
    hosts = [box("c", rack="r1"), box("a", rack="r2"), box("b", rack="r2")]
    assert where(first_fit(world(hosts, gang("x", 3, 6)), POLICY)) == {"x": ("c", "a", "b")}
    rack = (TopologyConstraint(layer=Layer.RACK),)
    assert where(first_fit(world(hosts, gang("x", 2, 6, topology=rack)), POLICY)) == {"x": ("a", "b")}


def test_first_fit_shares_the_card_of_the_lowest_index() -> None:
    busy = (
        running(gang("r0", 1, 0.4), ("h", (0,))),
        running(gang("r1", 1, 0.7), ("h", (1,))),
    )
    snapshot = world([box("h", 3)], *busy, gang("x", 1, 0.3))
    assert first_fit(snapshot, POLICY).starts[0].placement.workers[0].gpus == (0,)
    assert best_fit(snapshot, POLICY).starts[0].placement.workers[0].gpus == (1,)


def test_tensor_groups_stay_whole_in_an_nvlink_domain() -> None:
    hosts = [box(f"h{n}", 3, nvlink=f"n{n // 2}", rack="r") for n in range(4)]
    groups = role("worker", 8, ask(1), parallelism=Parallelism(tensor=4, data=2))
    snapshot = world(hosts, gang("x", roles=(groups,)))
    for name in ("fifo", "random", "best_fit", "fgd", "easy"):
        decision = BASELINES[name]()(snapshot, POLICY)
        assert verify(snapshot, POLICY, decision) == ()
        assert Counter(seat.host[1] in "01" for seat in decision.starts[0].placement.workers) == {True: 4, False: 4}


def test_random_fit_is_the_same_for_the_same_seed_only() -> None:
    snapshot = world([box(f"h{n}") for n in range(6)], *(gang(f"j{n}") for n in range(6)))
    one, two, other = (RandomFit(seed)(snapshot, POLICY) for seed in (1, 1, 2))
    assert one == two
    assert one.starts != other.starts


def test_parts_are_cut_by_weight_and_racks_stay_together() -> None:
    hosts = [box(f"h{n}", rack=f"r{n // 2}") for n in range(8)]
    parts = cut(world(hosts, teams=[team("a", 300), team("b", 100)]))
    assert Counter(parts.values()) == {"a": 6, "b": 2}
    assert [name for name in parts if parts[name] == "b"] == ["h6", "h7"]


def test_each_type_of_each_site_is_cut_and_what_rounding_leaves_is_made_up() -> None:
    hosts = [box("h1"), box("h2"), box("h3"), box("a1", 8, "A100"), box("a2", 8, "A100"), box("a3", 8, "A100")]
    parts = cut(world(hosts, teams=[team("a"), team("b")]))
    assert Counter(parts.values()) == {"a": 3, "b": 3}
    assert {parts[HostId(name)] for name in ("h1", "h2", "h3")} == {"a", "b"}


def test_only_leaves_of_the_tree_own_hosts() -> None:
    teams = [team("lab"), team("x", 100, "lab"), team("y", 100, "lab"), team("web", 100)]
    parts = cut(world([box(f"h{n}") for n in range(8)], teams=teams))
    assert Counter(parts.values()) == {"x": 2, "y": 2, "web": 4}


def _halves(*records: object) -> Snapshot:
    return world([box("a1"), box("b1")], *records, teams=[team("a"), team("b")])  # type: ignore[arg-type]


PARTS = {HostId("a1"): TeamId("a"), HostId("b1"): TeamId("b")}


def test_an_idle_part_helps_no_other_team() -> None:
    snapshot = _halves(queued(gang("x", 1, 8, team="a"), 900), queued(gang("y", 1, 8, team="a"), 600))
    assert where(FifoPartitioned(PARTS)(snapshot, POLICY)) == {"x": ("a1",)}


def test_each_part_has_its_own_strict_queue() -> None:
    snapshot = _halves(
        queued(gang("a-first", 1, 6, team="a"), 900),
        queued(gang("a-large", 1, 8, team="a"), 800),
        queued(gang("a-small", 1, 1, team="a"), 700),
        queued(gang("b-small", 1, 1, team="b"), 60),
    )
    assert where(FifoPartitioned(PARTS)(snapshot, POLICY)) == {"a-first": ("a1",), "b-small": ("b1",)}


def test_a_gang_beyond_its_part_blocks_nobody_and_waits_for_the_whole_fleet() -> None:
    wide = queued(gang("wide", 2, 8, team="a"), 900)
    scheduler = FifoPartitioned(PARTS)
    assert where(scheduler(_halves(wide, queued(gang("x", 1, 1, team="a"), 60)), POLICY)) == {"x": ("a1",)}
    assert where(scheduler(_halves(wide), POLICY)) == {"wide": ("a1", "b1")}


def test_a_team_without_a_part_uses_the_fleet_last() -> None:
    guest = queued(gang("guest", 1, 8, team="c"), 900)
    both = replace(_halves(queued(gang("x", 1, 8, team="a"), 60)), teams=())
    both = replace(both, jobs=(*both.jobs, guest))
    assert where(FifoPartitioned(PARTS)(both, POLICY)) == {"x": ("a1",), "guest": ("b1",)}


def test_parts_stay_as_they_were_cut() -> None:
    scheduler = FifoPartitioned()
    snapshot = _halves(queued(gang("x", 1, 8, team="a"), 60))
    assert where(scheduler(snapshot, POLICY)) == {"x": ("a1",)}
    down = replace(snapshot, hosts=(replace(snapshot.hosts[0], state=HostState.DOWN), snapshot.hosts[1]))
    # Its part is down and could hold it when well again: it waits.
    assert where(scheduler(down, POLICY)) == {}


@pytest.mark.parametrize("scheduler", [fifo, best_fit])
def test_a_decision_states_its_goals_and_claims_no_search(scheduler: Scheduler) -> None:
    snapshot = world([box("h")], *QUEUE)
    decision = scheduler(snapshot, POLICY)
    assert verify(snapshot, POLICY, decision) == ()
    assert (decision.certificate.stage, decision.certificate.goals_solved) == (Stage.GREEDY, 0)
    start, economy, order = decision.goals
    assert (start.name, economy.name, order.name) == ("start[1]", "economy", "order")
    assert start.status is not GoalStatus.PROVEN
    assert start.bound == decision_of(snapshot, POLICY, ()).goals[0].bound


def test_only_what_starts_everything_is_proven() -> None:
    job = gang("x", 1, 2)
    snapshot = world([box("h")], job)
    decision = decision_of(snapshot, POLICY, (begin(job, ("h", (0, 1))),))
    assert decision.goals[0].status is GoalStatus.PROVEN
    assert verify(snapshot, POLICY, decision) == ()


def test_nothing_waits_nothing_is_claimed() -> None:
    decision = fifo(world([box("h")]), POLICY)
    assert (decision.starts, decision.goals, decision.certificate.stage) == ((), (), Stage.NOTHING_TO_DO)
