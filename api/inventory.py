"""The shard cache's inventory as the domain has it; nothing where the dataplane's reader is not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..model.host import CachedDataset

MIB = 2**20


def cache_inventory(cache: Path) -> Sequence[CachedDataset]:
    """What the cache in this folder holds, per data set; a record that makes no sense is left out."""
    try:
        from ..dataplane.inventory import inventory
    except ImportError:
        return ()
    return [
        CachedDataset(
            dataset=entry.dataset,
            digest=entry.digest,
            shards=min(entry.shards_cached, entry.shards_total),
            shards_total=entry.shards_total,
            size_mib=entry.bytes_cached // MIB,
        )
        for entry in inventory(cache)
        if entry.shards_total > 0
    ]
