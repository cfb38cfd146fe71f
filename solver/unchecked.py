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
    other: T = object.__new__(type(item))
    names: tuple[str, ...] = type(item).__slots__  # type: ignore[attr-defined]
    for name in names:
        _set(other, name, changes[name] if name in changes else getattr(item, name))
    return other
