"""A snapshot as a key of a memory."""

from __future__ import annotations

from ..model.snapshot import Snapshot


class Same:
    """A snapshot as a key that equals only itself: comparing its contents would cost more than it saves."""

    __slots__ = ("snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.snapshot is other.snapshot

    def __hash__(self) -> int:
        return id(self.snapshot)
