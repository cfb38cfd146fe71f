"""Readers of single values of a job file, and `Section`, a mapping that refuses keys it does not know."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, TypeVar

from ..model.codec import nearest
from ..model.errors import InvalidInput
from ..model.job import KeyValue

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class Section:
    """One mapping of a job file at `where`; raises InvalidInput for what is no mapping or has an unknown key."""

    def __init__(self, where: str, data: Any, known: Iterable[str]) -> None:
        self._where = where
        if not isinstance(data, dict):
            raise InvalidInput(where, f"{_shown(data)} is not a mapping", f"keys such as {', '.join(list(known)[:6])}")
        names = list(known)
        for key in data:
            if key not in names:
                raise InvalidInput(self.path(str(key)[:80]), "unknown key", nearest(str(key), names))
        self._data = data

    def path(self, key: str) -> str:
        """Where the key stands."""
        return f"{self._where}.{key}" if self._where else key

    def has(self, key: str) -> bool:
        """Whether the key is given, and not null."""
        return self._data.get(key) is not None

    def take(self, key: str, reader: Callable[[str, Any], T], default: Any) -> Any:
        """The key's value as `reader(path, value)` understands it; `default` where it is missing or null."""
        return reader(self.path(key), self._data[key]) if self.has(key) else default

    def build(self, kind: Callable[..., T], **values: Any) -> T:
        """`kind(**values)`, with this section's place put before the path of what its own checks refuse."""
        try:
            return kind(**values)
        except InvalidInput as fault:
            raise (fault.under(self._where) if self._where else fault) from None

    def need(self, key: str, reader: Callable[[str, Any], T]) -> T:
        """As `take`, for a key that must be there."""
        if not self.has(key):
            raise InvalidInput(self.path(key), "missing", f"this key beside {', '.join(self._data) or 'the others'}")
        return reader(self.path(key), self._data[key])


def text(field: str, value: Any) -> str:
    """A text; a bare number is taken as its text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidInput(field, f"{_shown(value)} is not a text", "a text")
    return str(value)


def texts(field: str, value: Any) -> tuple[str, ...]:
    """One text, or a list of them."""
    if isinstance(value, list):
        return tuple(text(f"{field}[{index}]", item) for index, item in enumerate(value))
    return (text(field, value),)


def words(field: str, value: Any) -> tuple[str, ...]:
    """A command: a list of words, or one text split as a shell would."""
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise InvalidInput(field, f"cannot be split into words ({error})", "balanced quotes, or a list") from None
    if not isinstance(value, list):
        raise InvalidInput(
            field, f"{_shown(value)} is not a command", 'a text or a list such as ["python", "train.py"]'
        )
    return tuple(item if isinstance(item, str) else str(text(f"{field}[{i}]", item)) for i, item in enumerate(value))


def boolean(field: str, value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise InvalidInput(field, f"{_shown(value)} is not true or false", "true or false")
    return value


def choice(field: str, value: Any, kind: type[E]) -> E:
    """One of the enum's values."""
    known = {member.value: member for member in kind}
    if not isinstance(value, str) or value not in known:
        raise InvalidInput(field, f"{_shown(value)} is not known", nearest(str(value)[:80], known))
    return known[value]


def pairs(field: str, value: Any) -> tuple[KeyValue, ...]:
    """A mapping of texts: labels or environment variables."""
    if not isinstance(value, dict):
        raise InvalidInput(field, f"{_shown(value)} is not a mapping", "keys and values")
    read = []
    for key, item in value.items():
        where = f"{field}.{key}"
        shown = str(item).lower() if isinstance(item, bool) else item
        if not isinstance(shown, str | int | float):
            raise InvalidInput(where, f"{_shown(item)} is not a text or number", "a text, in quotes where in doubt")
        read.append(KeyValue(key=text(field, key), value=str(shown)))
    return tuple(read)


def instant_s(field: str, value: Any) -> int:
    """Seconds since the epoch of a time such as "2027-03-01T18:00:00+01:00"; the offset (or Z) is required."""
    right = 'a time with its offset, such as "2027-03-01T18:00:00+01:00" or "2027-03-01T17:00:00Z"'
    try:
        instant = datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidInput(field, f"{_shown(value)} is not a time", right) from None
    if instant.tzinfo is None:
        raise InvalidInput(field, f"{value!r} has no offset, so it could mean any time zone", right)
    return int(instant.timestamp())


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
