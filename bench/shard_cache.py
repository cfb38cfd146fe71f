"""Which data sets lie on which host's NVMe in a simulation: whole data sets, the least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict

from ..model.host import CachedDataset
from ..model.ids import HostId
from ..model.job import DatasetRef


class ShardCaches:
    """One cache of `size_mib` MiB on every host."""

    def __init__(self, size_mib: int) -> None:
        self._size_mib = size_mib
        self._hosts: dict[HostId, OrderedDict[str, DatasetRef]] = {}

    def load(self, host: HostId, data: DatasetRef) -> int:
        """Uses the data set on the host; returns the MiB to be fetched. One larger than the cache passes by."""
        held = self._hosts.setdefault(host, OrderedDict())
        if data.name in held:
            held.move_to_end(data.name)
            return 0
        if data.size_mib <= self._size_mib:
            while self._used(held) + data.size_mib > self._size_mib:
                held.popitem(last=False)
            held[data.name] = data
        return data.size_mib

    def holds(self, host: HostId, data: DatasetRef) -> bool:
        """Whether the data set lies on the host, whole."""
        return data.name in self._hosts.get(host, ())

    def inventory(self, host: HostId) -> tuple[tuple[CachedDataset, ...], int]:
        """What lies on the host, and the MiB left free."""
        held = self._hosts.get(host, OrderedDict())
        cached = tuple(
            CachedDataset(
                dataset=data.name,
                digest=data.digest,
                shards=data.shards,
                shards_total=data.shards,
                size_mib=data.size_mib,
            )
            for data in held.values()
        )
        return cached, self._size_mib - self._used(held)

    def forget(self, host: HostId) -> None:
        """The host lost its disk."""
        self._hosts.pop(host, None)

    @staticmethod
    def _used(held: OrderedDict[str, DatasetRef]) -> int:
        return sum(data.size_mib for data in held.values())
