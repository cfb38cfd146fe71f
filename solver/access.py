"""Which of the running jobs that may leave each waiting gang may use the capacity of, from outside and from inside.

What a victim leaves is for those that may evict it, what a gang leaves that is moved for its level and those above.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..model.ids import JobId
from ..model.snapshot import JobRecord
from .moved import moved_id
from .rights import Rights, Runner, Starter, may_evict

Reach = frozenset[JobId]
"""Those whose capacity a start may use, by the names under which they leave."""


class Access:
    """The reach of the starts of one round. Equal reaches are one object, so that comparing them is cheap."""

    def __init__(self, rights: Rights, victims: Iterable[JobRecord], movers: Iterable[JobRecord] = ()) -> None:
        self._rights = rights
        self._moved = [(record.level, moved_id(record.id)) for record in movers]
        self._alike: dict[Runner, set[JobId]] = defaultdict(set)
        for victim in victims:
            self._alike[rights.runner(victim)].add(victim.id)
        self._reach: dict[Starter, Reach] = {}
        self._same: dict[Reach, Reach] = {}

    def reach(self, record: JobRecord, *, inside: bool) -> Reach:
        """The victims whose capacity the gang may use if it starts inside its guarantee, or outside."""
        starter = self._rights.starter(record, inside=inside)
        if starter not in self._reach:
            usable = (jobs for runner, jobs in self._alike.items() if may_evict(starter, runner))
            moved = (name for level, name in self._moved if level <= starter.level)
            found = frozenset[JobId]().union(*usable, moved)
            self._reach[starter] = self._same.setdefault(found, found)
        return self._reach[starter]
