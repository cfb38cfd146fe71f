"""A snapshot with some fields changed, of which it is known that they fit together."""

from __future__ import annotations

from copy import copy

from ..model.snapshot import Snapshot


def unchecked(snapshot: Snapshot, **changes: object) -> Snapshot:
    """As `dataclasses.replace` without checking all references again, which takes longer than most looks at a fleet.

    Only for hosts, jobs and teams that come from the snapshot itself.
    """
    changed = copy(snapshot)
    for field, value in changes.items():
        object.__setattr__(changed, field, value)
    return changed
