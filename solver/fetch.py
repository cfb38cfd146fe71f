"""How long a host loads the shards of a job's data set that its cache lacks: shard-cache affinity in seconds."""

from __future__ import annotations

from itertools import pairwise

from ..model.host import CachedDataset, Host
from ..model.job import DatasetRef
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..model.topology import Layer
from .remember import remembered

_MBIT_PER_MIB = (8_388_608, 1_000_000)
"""1 MiB is this fraction of Mbit."""

FLEET = "fleet"
"""What lies around all sites, as links name it."""


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


def fetch_mbps(host: Host, snapshot: Snapshot, policy: Policy) -> int:
    """How fast the host loads, in Mbit/s: `fetch_mbps`, or what its network or a link above it has where that is less.

    The links above it are those that the snapshot states between one of its domains and the next around it, or, of its
    site, the fleet. Each host is counted alone.
    """
    speed = policy.objective.fetch_mbps
    if host.network_mbps:
        speed = min(speed, host.network_mbps)
    uplinks = _uplinks(snapshot)
    if uplinks:
        chain = [*dict.fromkeys(host.path.domain(layer, host.id) for layer in Layer), FLEET]
        steps = (frozenset(step) for step in pairwise(chain))
        speed = min([speed, *(uplinks[step] for step in steps if step in uplinks)])
    return speed


def fetch_s(host: Host, dataset: DatasetRef | None, snapshot: Snapshot, policy: Policy) -> int:
    """Seconds until the host has the whole data set."""
    if dataset is None:
        return 0
    above, below = _MBIT_PER_MIB
    return -(-missing_mib(host, dataset) * above // (below * fetch_mbps(host, snapshot, policy)))


@remembered
def _uplinks(snapshot: Snapshot) -> dict[frozenset[str], int]:
    """The bandwidth of each link by its two ends; of several the narrowest [Mbit/s]."""
    found: dict[frozenset[str], int] = {}
    for link in snapshot.links:
        ends = frozenset((link.a, link.b))
        found[ends] = min(link.bandwidth_mbps, found.get(ends, link.bandwidth_mbps))
    return found
