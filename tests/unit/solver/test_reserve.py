"""A deadline is kept, by a stopwatch that only the work itself moves: each step takes as long as it is said to at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from small_worlds import POLICY, box, gang, queued, world

from phalanx.model.decision import ReasonKind
from phalanx.model.snapshot import Snapshot
from phalanx.solver import evict, evict_search, explain, greedy, reserve, solve
from phalanx.solver.guard import UNLIMITED, Unlimited
from phalanx.solver.plan import Plan
from phalanx.solver.reserve import Kept, Step, allows, beside, keeping, spare_s, timed
from phalanx.solver.verify import verify

PLACED_S = 0.002
OBJECTS = 6_000


class Watch:
    """A guard on a stopwatch that stands still but for what `spend` adds."""

    def __init__(self, given_s: float) -> None:
        self.given_s, self.spent_s = given_s, 0.0

    def remaining_s(self) -> float:
        return self.given_s - self.spent_s

    def spend(self, seconds: float) -> None:
        self.spent_s += seconds

    def slow(self, patch: pytest.MonkeyPatch, where: Any, name: str, seconds: float) -> None:
        """From now on that function takes so long."""
        function: Callable[..., object] = getattr(where, name)

        def slowly(*arguments: Any, **named: Any) -> object:
            self.spend(seconds)
            return function(*arguments, **named)

        patch.setattr(where, name, slowly)


def fleet() -> Snapshot:
    """Twenty gangs wait for half as much room."""
    return world([box(f"h{number}") for number in range(10)], *(queued(gang(f"j{n}", 1, 8)) for n in range(20)))


def most_s(step: Step, pace: float) -> float:
    return pace * (reserve._STEP_S + OBJECTS * step.value)


@pytest.mark.parametrize("pace", [1.0, 2.5])
@pytest.mark.parametrize("given_s", [0.0, 1.0, 1.7, 2.0, 2.3, 3.0, 4.0, 5.0, 9.0, 14.0])
def test_a_round_is_over_in_time(given_s: float, pace: float, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, watch = fleet(), Watch(given_s * pace)
    first_s = pace * (reserve._FIRST_S + reserve._FIRST_EACH_S * OBJECTS)
    watch.slow(monkeypatch, reserve, "order", first_s)
    # The fleet is small, and counts as a large one.
    monkeypatch.setattr(reserve, "_size", lambda snapshot: OBJECTS)
    watch.slow(monkeypatch, greedy.Placer, "place", PLACED_S)
    watch.slow(monkeypatch, solve, "exchange", most_s(Step.PLAN, pace))
    watch.slow(monkeypatch, solve, "_reduced", most_s(Step.REDUCE, pace))
    watch.slow(monkeypatch, solve, "lp_bounds", most_s(Step.BOUNDS, pace))
    decision = solve.solve(snapshot, POLICY, guard=watch)
    assert verify(snapshot, POLICY, decision) == ()
    watch.spend(most_s(Step.END, pace) + pace * len(decision.starts) * reserve._START_S)
    # Nothing is shorter than the round that decides nothing; a gang being placed is placed.
    least_s = first_s + most_s(Step.PLAN, pace) + most_s(Step.END, pace)
    assert watch.spent_s <= max(watch.given_s, least_s) + 3 * PLACED_S
    if given_s >= 5:
        assert len(decision.starts) == 10
        assert watch.spent_s > least_s + most_s(Step.REDUCE, pace)
    if not given_s:
        assert decision.starts == ()
        assert {reason.kind for reason in decision.waiting} == {ReasonKind.UNDECIDED}
        assert decision.certificate.stopped == "deadline"


def test_the_greedy_leaves_time_for_what_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = fleet()
    watch = Watch(0.05)
    guard = Kept(watch, 10, 4.0)
    for where in (greedy.Placer, evict_search.Search):
        watch.slow(monkeypatch, where, "place", PLACED_S)
    monkeypatch.setattr(evict, "keeping", lambda guard, *steps: guard)
    plan = evict.greedy_plan(snapshot, POLICY, guard)
    assert 0 < len(plan.starts) < 10
    # One more gang may be in hand when the time is over.
    assert watch.remaining_s() >= 4.0 * (len(plan.starts) - 1) * reserve._START_S - 3 * PLACED_S


def test_a_machine_that_is_slower_keeps_back_more(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = fleet()
    watch = Watch(100.0)
    usual = timed(watch, snapshot, POLICY)
    assert isinstance(usual, Kept)
    assert (usual.pace, usual.objects) == (1.0, 30)
    again = replace(snapshot)
    watch.slow(monkeypatch, reserve, "order", 3 * (reserve._FIRST_S + 30 * reserve._FIRST_EACH_S))
    slower = timed(watch, again, POLICY)
    assert isinstance(slower, Kept)
    assert slower.pace == pytest.approx(3.0)
    assert slower.kept_s == pytest.approx(3 * usual.kept_s)
    assert slower.remaining_s() == pytest.approx(watch.remaining_s() - slower.kept_s)


def test_a_stall_at_the_beginning_leaves_time_to_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(100.0)
    watch.slow(monkeypatch, reserve, "order", 9.0)
    stalled = timed(watch, fleet(), POLICY)
    assert isinstance(stalled, Kept)
    assert stalled.pace == reserve._SLOWEST


def test_what_is_kept_back_adds_up() -> None:
    guard = Kept(Watch(1.0), 1_000, 2.0)
    kept = keeping(guard, Step.PLAN, Step.DECODE)
    assert kept.remaining_s() == pytest.approx(1.0 - guard.takes_s(Step.PLAN) - guard.takes_s(Step.DECODE))
    assert allows(guard, Step.END)
    assert not allows(replace(guard, kept_s=0.99), Step.END)
    snapshot = fleet()
    plan = evict.greedy_plan(snapshot, POLICY)
    assert beside(guard, plan).remaining_s() == pytest.approx(1.0 - 2 * len(plan.starts) * reserve._START_S)
    assert spare_s(guard, 5) == pytest.approx(1.0 - 2 * 5 * reserve._START_S)


def test_without_a_deadline_nothing_is_kept_back() -> None:
    snapshot, guard = fleet(), Unlimited()
    assert timed(guard, snapshot, POLICY) is guard
    assert keeping(UNLIMITED, Step.END) is UNLIMITED
    assert beside(UNLIMITED, Plan()) is UNLIMITED
    assert spare_s(UNLIMITED, 1_000) == inf
    assert allows(UNLIMITED, *Step)


def test_reasons_that_find_no_time_are_left_open() -> None:
    snapshot = fleet()
    found = explain.reasons(snapshot, POLICY, (), guard=Watch(0.0))
    assert [reason.kind for reason in found] == [ReasonKind.UNDECIDED] * 20
