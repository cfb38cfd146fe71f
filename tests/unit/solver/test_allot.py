"""Cards go to the starts that may use them, so that all are served if that is possible at all."""

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.solver.allot import allot

A, B = frozenset("a"), frozenset("b")
NOBODY, BOTH = frozenset(), A | B


def test_starts_take_the_lowest_cards_that_they_may_use():
    left = [(0, ()), (1, ("a",)), (2, ()), (3, ("a",))]
    assert allot([(1, NOBODY), (2, A)], left) == [[0], [1, 2]]


def test_who_may_use_more_makes_way():
    left = [(0, ()), (1, ("a",)), (2, ("b",))]
    assert allot([(1, A), (1, NOBODY), (1, B)], left) == [[1], [0], [2]]


def test_a_card_that_two_victims_leave_is_for_those_who_reach_both():
    assert allot([(1, BOTH)], [(0, ("a", "b"))]) == [[0]]
    with pytest.raises(ValueError, match="1 cards are asked and 0 could be used"):
        allot([(1, A)], [(0, ("a", "b"))])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from((NOBODY, A, B, BOTH))), max_size=4),
    st.lists(st.sampled_from(((), ("a",), ("b",), ("a", "b"))), max_size=6),
)
def test_all_are_served_iff_no_set_of_starts_asks_more_than_it_may_use(asked, jobs):
    left = list(enumerate(jobs))
    enough = all(
        sum(number for number, _ in some) <= sum(any(reach >= set(on) for _, reach in some) for on in jobs)
        for size in range(len(asked) + 1)
        for some in combinations(asked, size)
    )
    for order in permutations(asked):
        if not enough:
            with pytest.raises(ValueError, match="cards are asked"):
                allot(order, left)
            continue
        given_cards = allot(order, left)
        assert len({card for cards in given_cards for card in cards}) == sum(number for number, _ in order)
        for (number, reach), cards in zip(order, given_cards, strict=True):
            assert len(cards) == number
            assert all(reach >= set(jobs[card]) for card in cards)
