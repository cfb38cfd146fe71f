"""Remembers what was derived from a snapshot: one round asks for the same in many places."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import is_
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LAST = 4
"""Results that are kept: those of a round's snapshot, and of a few that it imagines beside it."""


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """The pure function with its last results remembered, for the very same positional arguments.

    Arguments are told apart by identity, as comparing two snapshots would cost more than it saves. Callers share the
    result and must not change it.
    """
    known: tuple[tuple[tuple[object, ...], T], ...] = ()

    @wraps(function)
    def asked(*arguments: P.args, **named: P.kwargs) -> T:
        nonlocal known
        for seen, result in known:
            if not named and len(seen) == len(arguments) and all(map(is_, seen, arguments)):
                return result
        result = function(*arguments, **named)
        if not named:
            # One assignment, so that threads at most forget what another has just found.
            known = ((arguments, result), *known[: _LAST - 1])
        return result

    return asked
