"""Which starving gangs limits and reserved pools leave no room for, as far ahead as they may be planned (RULES 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice, product
from typing import TYPE_CHECKING

from ..model.ids import SiteId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .verify_allowed import Key, allowances

if TYPE_CHECKING:
    from .drains import Clear

_CHOICES = 64
"""Choices of a GPU type for each role that are looked at; a gang with more is taken to have room."""


class Ahead:
    """Tells of a gang whether limits and pools allow it, alone, by `last_s`, when it may be planned at the latest."""

    def __init__(self, snapshot: Snapshot, policy: Policy, clear: Clear, last_s: Callable[[JobRecord], int]) -> None:
        self._clear, self._last_s = clear, last_s
        self._allowed = allowances(snapshot, policy)

    def __call__(self, record: JobRecord, pools: frozenset[tuple[SiteId, str]]) -> bool:
        """`pools`: the sites and GPU types that the gang may have."""
        roles = [role for role in record.job.roles if role.request.gpu_milli]
        if not self._allowed.most or not roles:
            return True
        left: dict[Key, int] = {}
        for site in sorted({site for site, _ in pools}):
            there = sorted(name for at, name in pools if at == site)
            types = [[name for name in there if role.throughput_milli(name) is not None] for role in roles]
            for number, chosen in enumerate(islice(product(*types), _CHOICES + 1)):
                if number == _CHOICES:
                    return True
                asked: Counter[Key] = Counter()
                for role, name in zip(roles, chosen, strict=True):
                    for key in self._allowed.counting(record, site, name):
                        asked[key] += role.gpu_milli
                if all(milli <= self._left(key, record, left) for key, milli in asked.items()):
                    return True
        return False

    def _left(self, key: Key, gang: JobRecord, known: dict[Key, int]) -> int:
        if key not in known:
            last_s = self._last_s(gang)
            stays = (held[key] for record, held in self._allowed.running if self._clear(record, gang) > last_s)
            known[key] = self._allowed.most[key] - sum(stays)
        return known[key]
