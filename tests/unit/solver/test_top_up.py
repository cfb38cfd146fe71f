"""The upper starts of one plan beside the lower ones of another: as they are, or not at all."""

from __future__ import annotations

from small_worlds import NOW_S, POLICY, begin, box, gang, placement, running, world

from phalanx.model.job import Job
from phalanx.solver.plan import Plan, assemble
from phalanx.solver.top_up import beside
from phalanx.solver.verify import verify_starts
from phalanx.solver.verify_planned import Planned

UPPER, LOWER = gang("upper", 1, 8, tier=1), gang("lower", 1, 4)
CHEAP, DEAR = gang("cheap", 1, 8, tier=3), gang("dear", 1, 8, tier=3)
HOSTS = [box("h1"), box("h2"), box("h3")]


def two(*records: Job) -> object:
    return world(HOSTS, UPPER, LOWER, *records)


def hosts_of(plan: Plan) -> dict[str, str]:
    return {start.job: start.placement.hosts[0] for start in plan.starts}


def test_starts_that_do_not_meet_are_joined() -> None:
    snapshot = two()
    found = assemble(snapshot, POLICY, [begin(UPPER, ("h1", range(8)))], ())
    greedy = assemble(snapshot, POLICY, [begin(UPPER, ("h2", range(8))), begin(LOWER, ("h3", range(4)))], ())
    both = beside(snapshot, POLICY, found, greedy, 2)
    assert both is not None
    assert hosts_of(both) == {"upper": "h1", "lower": "h3"}


def test_starts_that_take_each_others_cards_are_not() -> None:
    snapshot = two()
    found = assemble(snapshot, POLICY, [begin(UPPER, ("h1", range(8)))], ())
    greedy = assemble(snapshot, POLICY, [begin(LOWER, ("h1", range(4)))], ())
    assert beside(snapshot, POLICY, found, greedy, 2) is None


def test_starts_that_exceed_a_host_together_are_not() -> None:
    snapshot = world([box("h1", cpu_milli=1_000)], gang("upper", 1, 4, tier=1), LOWER)
    found = assemble(snapshot, POLICY, [begin(UPPER, ("h1", range(4)))], ())
    greedy = assemble(snapshot, POLICY, [begin(LOWER, ("h1", range(4, 8)))], ())
    assert beside(snapshot, POLICY, found, greedy, 2) is None


def test_victims_of_the_other_plan_for_whom_nothing_comes_now_go_on() -> None:
    cheap, dear = running(CHEAP, ("h1", range(8)), ran_s=2_000), running(DEAR, ("h2", range(8)), ran_s=50_000)
    snapshot = world(HOSTS, UPPER, LOWER, cheap, dear)
    found = assemble(snapshot, POLICY, [begin(UPPER, ("h1", range(8)))], ["cheap"])
    greedy = assemble(snapshot, POLICY, [begin(UPPER, ("h2", range(8))), begin(LOWER, ("h3", range(4)))], ["dear"])
    both = beside(snapshot, POLICY, found, greedy, 2)
    assert both is not None
    assert [act.job for act in both.preemptions] == ["cheap"]
    assert hosts_of(both) == {"upper": "h1", "lower": "h3"}
    assert verify_starts(snapshot, POLICY, both.starts, both.preemptions, both.reservations) == ()


def test_hosts_set_aside_for_who_starts_now_are_not_set_aside_any_more() -> None:
    snapshot = two()
    found = assemble(snapshot, POLICY, [begin(UPPER, ("h1", range(8)))], ())
    later = Planned(snapshot.jobs[0], placement(UPPER, ("h2", range(8))), NOW_S + 600)
    greedy = assemble(snapshot, POLICY, [begin(LOWER, ("h3", range(4)))], (), [later])
    both = beside(snapshot, POLICY, found, greedy, 2)
    assert both is not None
    assert both.reservations == ()
