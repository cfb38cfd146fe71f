"""Self-checks shared by the domain's dataclasses; each raises InvalidInput naming the field."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from .errors import InvalidInput

# Integers beyond this cannot be added up safely in the solver's 64-bit expressions.
MAX_AMOUNT = 10**12

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,126}")


def name(field: str, value: str) -> None:
    """`value` is a name usable in paths, labels and logs: letters, digits, dot, dash, underscore; 1 to 127."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInput(field, f"{value!r} is not a name", "1 to 127 letters, digits, '.', '-' or '_'")


def gpu_type(field: str, value: str) -> None:
    """`value` names a GPU type or a MIG slice of one, such as `H100` or `A100-80GB/1g.10gb`."""
    if not isinstance(value, str) or not _TYPE.fullmatch(value):
        raise InvalidInput(field, f"{value!r} is not a GPU type", "a name such as H100 or A100-80GB/1g.10gb")


def integer(field: str, value: int, low: int = 0, high: int = MAX_AMOUNT, unit: str = "") -> None:
    """`value` is a whole number in [low, high]; booleans and floats are refused, since books hold integers only."""
    shown = f" {unit}" if unit else ""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(field, f"{value!r} is not a whole number", f"an integer from {low} to {high}{shown}")
    if not low <= value <= high:
        raise InvalidInput(field, f"{value}{shown} is out of range", f"{low} to {high}{shown}")


def optional_integer(field: str, value: int | None, low: int = 0, high: int = MAX_AMOUNT, unit: str = "") -> None:
    """As `integer`, or None."""
    if value is not None:
        integer(field, value, low, high, unit)


def distinct(field: str, values: Iterable[object], what: str) -> None:
    """No value stands twice."""
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise InvalidInput(field, f"{what} {value!r} stands twice", f"each {what} once")
        seen.add(value)


def ascending(field: str, values: Sequence[int], what: str) -> None:
    """The values rise strictly."""
    if any(a >= b for a, b in itertools.pairwise(values)):
        raise InvalidInput(field, f"{list(values)} does not rise", f"{what} in rising order, each once")
