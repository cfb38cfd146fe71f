"""A snapshot, or one of the model's objects, with some fields changed of which it is known that they fit together."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TypeVar

from ..model.snapshot import Snapshot

T = TypeVar("T")

_set: Callable[[object, str, object], None] = object.__setattr__


def unchecked(snapshot: Snapshot, **changes: object) -> Snapshot:
    """As `dataclasses.replace` without checking all references again, which takes longer than most looks at a fleet.

    Only for hosts, jobs and teams that come from the snapshot itself.
    """
    changed = copy(snapshot)
    for field, value in changes.items():
        _set(changed, field, value)
    return changed


def varied(item: T, **changes: object) -> T:
    """As `dataclasses.replace`, for items with slots, without checking fields again; for trials of many variants."""
    cls = type(item)
    other: T = object.__new__(cls)
    for get, put in _slots(cls):
        put(other, get(item))
    for name, value in changes.items():
        _set(other, name, value)
    return other


_Slots = list[tuple[Callable[[object], object], Callable[[object, object], None]]]

_known: dict[type, _Slots] = {}


def _slots(cls: type) -> _Slots:
    """What reads and writes each slot of the class, past the check of frozen ones."""
    if cls not in _known:
        names: tuple[str, ...] = cls.__slots__  # type: ignore[attr-defined]
        _known[cls] = [(getattr(cls, name).__get__, getattr(cls, name).__set__) for name in names]
    return _known[cls]
