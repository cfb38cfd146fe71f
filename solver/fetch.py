"""How long a host loads the shards of a job's data set that its cache lacks: shard-cache affinity in seconds."""

from __future__ import annotations

from ..model.host import CachedDataset, Host
from ..model.job import DatasetRef
from ..model.policy import Policy

_MBIT_PER_MIB = (8_388_608, 1_000_000)
"""1 MiB is this fraction of Mbit."""


def same_dataset(one: CachedDataset | DatasetRef, other: DatasetRef) -> bool:
    """Whether both are the same data set: by digest where both have one, else by name."""
    if one.digest and other.digest:
        return one.digest == other.digest
    return (one.dataset if isinstance(one, CachedDataset) else one.name) == other.name


def missing_mib(host: Host, dataset: DatasetRef) -> int:
    """MiB of the data set that the host does not have, rounded up; a copy of another digest counts for nothing."""
    for cached in host.cached:
        if same_dataset(cached, dataset):
            lacking = cached.shards_total - cached.shards
            return -(-dataset.size_mib * lacking // cached.shards_total)
    return dataset.size_mib


def fetch_s(host: Host, dataset: DatasetRef | None, policy: Policy) -> int:
    """Seconds until the host has the whole data set: at `fetch_mbps`, or its own network where that is less."""
    if dataset is None:
        return 0
    speed = policy.objective.fetch_mbps
    if host.network_mbps:
        speed = min(speed, host.network_mbps)
    above, below = _MBIT_PER_MIB
    return -(-missing_mib(host, dataset) * above // (below * speed))
