"""What is remembered: results of the very same arguments, the last few only."""

from __future__ import annotations

from phalanx.solver.remember import remembered


def test_the_same_arguments_are_asked_once_and_equal_ones_again() -> None:
    asked: list[object] = []

    @remembered
    def twice(amounts: tuple[int, ...], factor: int = 2) -> int:
        asked.append(amounts)
        return factor * sum(amounts)

    one = (1, 2_000)
    equal = (*one[:1], 2_000)
    assert (twice(one), twice(one), twice(equal)) == (4_002, 4_002, 4_002)
    assert len(asked) == 2
    assert twice(one, factor=3) == 6_003
    assert twice(one) == 4_002
    assert len(asked) == 3


def test_what_was_asked_long_ago_is_forgotten() -> None:
    asked: list[object] = []

    @remembered
    def first(amounts: list[int]) -> int:
        asked.append(amounts)
        return amounts[0]

    many = [[number] for number in range(5)]
    assert [first(each) for each in (*many, many[4], many[0])] == [0, 1, 2, 3, 4, 4, 0]
    assert len(asked) == 6
