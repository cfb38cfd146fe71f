"""The bounds of large rounds cut off nothing: not for any duals, and not the best decision of a small fleet."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import contested, policies, snapshots
from test_brute_returns import resizable

from phalanx.bench.large import Size, fleet, jobs
from phalanx.model.decision import GoalStatus
from phalanx.model.ids import JobId, SiteId
from phalanx.model.policy import Policy, SolvePolicy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.bound import uppers
from phalanx.solver.demand import candidates
from phalanx.solver.drains import named
from phalanx.solver.evict import greedy_plan
from phalanx.solver.goals import values
from phalanx.solver.lp_bins import Bin, even_merged
from phalanx.solver.lp_bound import lp_bounds
from phalanx.solver.lp_model import LpModel, LpSolver, certified
from phalanx.solver.plan import Plan
from phalanx.solver.sizes import settled
from phalanx.solver.solve import solve


@st.composite
def models(draw: st.DrawFn) -> LpModel:
    """Three columns, a few rows, coefficients of very different size."""
    model = LpModel()
    for _ in range(3):
        model.column(draw(st.integers(0, 3)))
    for _ in range(draw(st.integers(0, 3))):
        terms = {column: draw(st.integers(-9, 9)) * 10 ** draw(st.integers(0, 8)) for column in range(3)}
        model.at_most(terms, draw(st.integers(0, 10**9)))
    return model


@settings(max_examples=150)
@given(models(), st.data())
def test_any_duals_give_a_bound(model: LpModel, data: st.DataObject) -> None:
    objective = {column: data.draw(st.integers(-(10**9), 10**9)) for column in range(3)}
    points = itertools.product(*(range(upper + 1) for upper in model.uppers))
    best = max(sum(objective[n] * point[n] for n in range(3)) for point in points if model.holds(point))
    duals = data.draw(st.lists(st.floats(-1e3, 1e6), min_size=len(model.rows), max_size=len(model.rows)))
    assert certified(model, objective, duals) >= best
    found = LpSolver(model, 1.0).duals(objective)
    assert found is not None
    assert certified(model, objective, found) >= best


@settings(max_examples=60)
@given(models(), st.data())
def test_a_program_solved_again_with_more_rows_has_the_bound_of_a_new_one(model: LpModel, data: st.DataObject) -> None:
    first, second = ({n: data.draw(st.integers(-(10**6), 10**6)) for n in range(3)} for _ in range(2))
    solver = LpSolver(model, 1.0)
    assert solver.duals(first) is not None
    model.at_most({n: data.draw(st.integers(-9, 9)) for n in range(3)}, data.draw(st.integers(0, 9)))
    again, new = solver.duals(second), LpSolver(model, 1.0).duals(second)
    assert again is not None
    assert new is not None
    # GLOP ends within a ten-millionth of the optimum, in whichever corner.
    assert abs(certified(model, second, again) - certified(model, second, new)) <= 10


def test_hosts_that_milli_gpu_tell_all_of_are_merged_and_take_no_larger_worker_than_each_did() -> None:
    pool = (SiteId("here"), "H100")
    small = [Bin(pool, 1, 2000, 4, ((JobId(f"job-{n}"), 2000, 2),)) for n in range(2)]
    large = [Bin(pool, 1, 0, 8, ((JobId("job-0"), 8000, 8),)), Bin(pool, 3, 8000, 8, ())]
    halves = Bin(pool, 1, 0, 8, ((JobId("job-2"), 4000, 4), (JobId("job-3"), 4000, 4)))
    found = even_merged([*small, *large, halves], {pool: [1, 2, 8]})
    assert found == [
        (halves, (1, 2, 8)),
        (Bin(pool, 1, 4000, 8, ((JobId("job-0"), 2000, 0), (JobId("job-1"), 2000, 0))), (1, 2)),
        (Bin(pool, 1, 24_000, 32, ((JobId("job-0"), 8000, 0),)), (1, 2, 8)),
    ]
    assert halves.blocks((1, 2, 8)) == [(8, 0, 1, JobId("job-2")), (8, 0, 1, JobId("job-3"))]


def test_the_bound_of_a_small_program_is_its_optimum_rounded_down() -> None:
    model = LpModel()
    first, second = model.column(4), model.column(4)
    model.at_most({first: 2, second: 3}, 7)
    model.at_most({first: 3, second: 1}, 8)
    objective = {first: 5_000_000_007, second: 4_000_000_009}
    duals = LpSolver(model, 1.0).duals(objective)
    assert duals is not None
    # At (17/7, 5/7): 15,000,000,023.43
    assert certified(model, objective, duals) in (15_000_000_023, 15_000_000_024)


def _compared(snapshot: Snapshot, policy: Policy) -> None:
    policy = replace(policy, solve=SolvePolicy(budget_ms=3_000))
    decision = solve(snapshot, policy)
    best = [goal.value for goal in decision.goals]
    chosen = Plan(decision.starts, decision.preemptions, resizes=decision.resizes)
    snapshot = settled(snapshot)
    for plan in (chosen, greedy_plan(snapshot, policy), Plan()):
        reached = values(snapshot, policy, plan.starts, plan.preemptions, (), plan.resizes)
        limits = uppers(snapshot, policy, frozenset(record.id for record in candidates(snapshot)))
        bounds = lp_bounds(snapshot, policy, plan, reached, limits)
        for goal, value, bound, top in zip(decision.goals, reached, bounds, best, strict=True):
            if goal.status is not GoalStatus.PROVEN:
                break
            assert bound >= top, (goal.name, plan)
            if value.value != top:
                break


@settings(max_examples=40, derandomize=True)
@given(snapshots(), policies())
def test_no_bound_is_below_the_proven_optimum(snapshot: Snapshot, policy: Policy) -> None:
    _compared(snapshot, policy)


@settings(max_examples=40, derandomize=True)
@given(contested(), policies())
def test_no_bound_is_below_the_proven_optimum_where_jobs_may_be_evicted(snapshot: Snapshot, policy: Policy) -> None:
    _compared(snapshot, policy)


@pytest.mark.parametrize("seed", range(6))
def test_no_bound_is_below_the_proven_optimum_of_a_crowded_fleet(seed: int) -> None:
    size = Size(name="small", hosts=6, pending=8, load=0.8)
    snapshot = fleet(size, seed)
    _compared(replace(snapshot, jobs=(*snapshot.jobs, *jobs(size, seed, 0, size.pending))), Policy())


@pytest.mark.parametrize("block", range(2))
def test_no_bound_is_below_the_proven_optimum_where_jobs_return_and_start_at_any_size(block: int) -> None:
    for seed in range(block, 40, 2):
        snapshot, policy = resizable(seed)
        if not named(snapshot, policy):
            _compared(snapshot, policy)
