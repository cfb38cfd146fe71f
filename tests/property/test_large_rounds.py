"""What rounds do that are too large to be solved whole: on small worlds, made to count as large, nothing gets worse."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import contested, policies, snapshots
from test_brute_plans import capped, drained, next_round
from test_brute_returns import resizable

from phalanx.model.decision import Decision, GoalStatus, Grain
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver import exact, in_turn, kernel, partly, places, solve
from phalanx.solver.classes import reduce
from phalanx.solver.drains import promises
from phalanx.solver.evict import greedy_plan
from phalanx.solver.goals import values
from phalanx.solver.verify import verify

SEEDS = int(os.environ.get("PHALANX_TEST_SEEDS", "30"))
Worlds = Callable[[int], tuple[Snapshot, Policy]]
WORLDS = st.one_of(snapshots(), contested(max_hosts=4, max_jobs=6))


def greedy_rank(snapshot: Snapshot, policy: Policy) -> list[int]:
    plan = greedy_plan(snapshot, policy)
    acts = (plan.starts, plan.preemptions, plan.reservations, plan.resizes)
    return [goal.value for goal in values(snapshot, policy, *acts)]


def rank(decision: Decision) -> list[int]:
    return [goal.value for goal in decision.goals]


def check(snapshot: Snapshot, policy: Policy, decision: Decision) -> None:
    assert verify(snapshot, policy, decision) == ()
    assert rank(decision) >= greedy_rank(snapshot, policy)


@settings(deadline=None, max_examples=30)
@given(snapshot=WORLDS, policy=policies(), hosts=st.integers(1, 3))
def test_a_kernel_keeps_the_rules_and_is_never_worse_than_the_greedy(
    snapshot: Snapshot, policy: Policy, hosts: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "_reduced", lambda snapshot, policy: (None, None))
        patch.setattr(kernel, "WAITING", hosts)
        patch.setattr(kernel, "STARTED", 1)
        decision = solve.solve(snapshot, policy)
        assert decision == solve.solve(snapshot, policy)
    check(snapshot, policy, decision)
    whole = solve.solve(snapshot, policy)
    assert rank(decision) <= rank(whole)


@settings(deadline=None, max_examples=25)
@given(snapshot=WORLDS, policy=policies())
def test_a_kernel_with_all_hosts_is_the_exact_model(snapshot: Snapshot, policy: Policy) -> None:
    whole = solve.solve(snapshot, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "_reduced", lambda snapshot, policy: (None, None))
        patch.setattr(kernel, "WAITING", 99)
        patch.setattr(kernel, "STARTED", 99)
        patch.setattr(partly, "LEVEL", 0)
        decision = solve.solve(snapshot, policy)
    check(snapshot, policy, decision)
    if not snapshot.reservations and not decision.reservations and decision.certificate.grain is Grain.KERNEL:
        assert rank(decision) == rank(whole)


@settings(deadline=None, max_examples=30)
@given(snapshot=WORLDS, policy=policies(), budget_ms=st.integers(1, 12))
def test_large_models_prove_what_the_exact_stage_proves_and_fill_up_the_rest(
    snapshot: Snapshot, policy: Policy, budget_ms: int
) -> None:
    whole = solve.solve(snapshot, policy)
    short = replace(policy, solve=replace(policy.solve, budget_ms=budget_ms))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "LARGE", -1)
        decision = solve.solve(snapshot, short)
    check(snapshot, short, decision)
    for mine, best in zip(decision.goals, whole.goals, strict=True):
        if mine.status is not GoalStatus.PROVEN or best.status is not GoalStatus.PROVEN or mine.value != best.value:
            break
    else:
        return
    if mine.status is GoalStatus.PROVEN and best.status is GoalStatus.PROVEN:
        assert mine.value == best.value, mine.name


@settings(deadline=None, max_examples=40)
@given(snapshot=WORLDS, policy=policies(), level=st.integers(1, 3))
def test_large_rounds_in_two_turns_are_within_their_bounds(snapshot: Snapshot, policy: Policy, level: int) -> None:
    in_turns(snapshot, policy, level)


def in_turns(snapshot: Snapshot, policy: Policy, level: int) -> Decision:
    """The decision of the round as a large one, that level and those above solved first; compared with the exact one."""
    whole = solve.solve(snapshot, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "LARGE", -1)
        patch.setattr(in_turn, "LEVEL", level)
        decision = solve.solve(snapshot, policy)
    check(snapshot, policy, decision)
    assert decision.certificate.grain in (Grain.MERGED, Grain.SINGLETONS)
    for mine, best in zip(decision.goals, whole.goals, strict=True):
        if "[" not in mine.name or best.status is not GoalStatus.PROVEN:
            break
        assert mine.value <= best.value <= mine.bound, mine.name
        assert mine.status is not GoalStatus.OPEN, mine.name
        if mine.value != best.value:
            assert mine.name in ("start[1]", "start[0]"), mine.name
            break
    return decision


@pytest.mark.parametrize("worlds", [drained, capped, resizable])
@pytest.mark.parametrize("block", range(2))
def test_plans_sizes_and_returns_of_large_rounds_are_within_their_bounds(block: int, worlds: Worlds) -> None:
    promised = 0
    for seed in range(block, SEEDS, 2):
        snapshot, policy = worlds(seed)
        reservations = in_turns(snapshot, policy, 1 + seed % 3).reservations
        if reservations:
            later = next_round(seed, snapshot, reservations)
            promised += bool(promises(later, policy))
            in_turns(later, policy, 1 + seed % 3)
    assert promised, "some promises must bind the next round"


@settings(deadline=None, max_examples=40)
@given(snapshot=WORLDS, policy=policies(), columns=st.integers(1, 60))
def test_what_is_proven_of_the_highest_levels_alone_is_proven_of_the_round(
    snapshot: Snapshot, policy: Policy, columns: int
) -> None:
    whole = solve.solve(snapshot, policy)
    few = replace(policy, solve=replace(policy.solve, exact_columns=columns))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "_FEWEST_COLUMNS", 0)
        patch.setattr(partly, "LEVEL", 3)
        decision = solve.solve(snapshot, few)
    check(snapshot, few, decision)
    if decision.certificate.grain is not Grain.UPPER_LEVELS:
        return
    for mine, best in zip(decision.goals, whole.goals, strict=True):
        if not mine.status is best.status is GoalStatus.PROVEN:
            break
        assert mine.value == best.value, mine.name


@settings(deadline=None, max_examples=40)
@given(snapshot=WORLDS, policy=policies())
def test_the_index_of_hosts_leaves_no_slot_out(snapshot: Snapshot, policy: Policy) -> None:
    indexed = reduce(snapshot, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places.Places, "among", lambda self, role, reach: self._hosts)
        assert reduce(snapshot, policy).gangs == indexed.gangs


@pytest.mark.parametrize("seed", sorted({*range(SEEDS), 105}))
def test_gangs_of_several_sizes_and_jobs_that_may_return_keep_the_rules_in_large_rounds(seed: int) -> None:
    snapshot, policy = resizable(seed)
    whole = rank(solve.solve(snapshot, policy))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "_reduced", lambda snapshot, policy: (None, None))
        for hosts, level in ((1, 2), (99, 2), (99, 0)):
            patch.setattr(kernel, "WAITING", hosts)
            patch.setattr(kernel, "STARTED", hosts)
            patch.setattr(partly, "LEVEL", level)
            decision = solve.solve(snapshot, policy)
            check(snapshot, policy, decision)
            assert rank(decision) <= whole
        if not snapshot.reservations and not decision.reservations and decision.certificate.grain is Grain.KERNEL:
            assert rank(decision) == whole
    short = replace(policy, solve=replace(policy.solve, budget_ms=1 + seed % 12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "LARGE", -1)
        check(snapshot, short, solve.solve(snapshot, short))
