"""The rows of cuts allow exactly what a flow from victims to starts allows."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from phalanx.solver.constraints import cuts
from phalanx.solver.constraints.cuts import Place, Use, closed_sets, fits


def allowed(uses, free, gains):
    model = cp_model.CpModel()
    fits(model, [Use(1, model.new_constant(number), reach) for number, reach in uses], free, gains)
    return cp_model.CpSolver().solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def by_sets(uses, free, gains):
    """Hall's condition over every set of starts; a shortage counts against each that uses anything."""
    for size in range(1, len(uses) + 1):
        for some in combinations(uses, size):
            asked = sum(number for number, _ in some)
            reached = [any(reach >> bit & 1 for _, reach in some) for bit in range(len(gains))]
            got = sum(amount * left for (amount, left), may in zip(gains, reached, strict=True) if may)
            if asked and asked > free + got:
                return False
    return True


worlds = {
    "uses": st.lists(st.tuples(st.integers(0, 3), st.integers(0, 15)), max_size=5),
    "gains": st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=4, max_size=4),
}


@settings(deadline=None, max_examples=200)
@given(free=st.integers(-2, 4), **worlds)
def test_rows_are_halls_condition(uses, free, gains):
    assert allowed(uses, free, gains) == by_sets(uses, free, gains)


@settings(deadline=None, max_examples=100)
@given(free=st.integers(0, 4), **worlds)
def test_many_sets_are_written_as_a_flow_with_the_same_outcome(uses, free, gains):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "MOST_SETS", 0)
        assert allowed(uses, free, gains) == by_sets(uses, free, gains)


def test_reaches_in_a_chain_give_one_row_each():
    assert closed_sets([0b0, 0b1, 0b11, 0b1]) == [0b0, 0b1, 0b11]
    assert closed_sets([0b01, 0b10]) == [0b01, 0b10, 0b11]
    assert closed_sets([1 << bit for bit in range(30)], most=64) != []


def test_a_unit_is_reached_with_all_its_jobs():
    place = Place([("a",), ("a", "b"), ("c",)])
    assert [place.bits(frozenset(reach)) for reach in ("", "a", "ab", "abc", "c")] == [0, 0b001, 0b011, 0b111, 0b100]
