"""What a running gang pays in `speed` for the domains that it spreads over, as it is placed (docs/rounds.md)."""

from __future__ import annotations

from collections import defaultdict

from ..model.ids import HostId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer, TopologyPath
from .demand import confinement


def spread_now(record: JobRecord, snapshot: Snapshot, policy: Policy) -> int:
    """Its milli-GPU for each domain of a preferred layer beyond the first, and of its pipelines in several [mGPU*s]."""
    preferred = confinement(record.job, snapshot, policy).preferred
    paths = {host.id: host.path for host in snapshot.hosts}
    return policy.objective.spread_s * _spread_milli(record, preferred, paths)


def _spread_milli(record: JobRecord, layers: tuple[Layer, ...], paths: dict[HostId, TopologyPath]) -> int:
    """milli-GPU of the gang for each domain beyond the first, and of each pipeline in several, as it runs now."""
    domains: dict[Layer, set[str]] = {layer: set() for layer in layers}
    replicas: dict[tuple[str, int, Layer], set[str]] = defaultdict(set)
    shapes = {role.name: role.parallelism for role in record.job.roles}
    for worker in record.placement.workers if record.placement else ():
        path, shape = paths[worker.host], shapes[worker.role]
        for layer in layers:
            domains[layer].add(path.domain(layer, worker.host))
        if shape is not None and shape.pipeline > 1:
            replica = worker.index // (shape.tensor * shape.pipeline)
            for layer in (Layer.NVLINK, Layer.RACK, Layer.ZONE):
                replicas[worker.role, replica, layer].add(path.domain(layer, worker.host))
    total = sum(len(found) - 1 for found in domains.values()) * record.job.gpu_milli
    for (name, _, _), found in replicas.items():
        role, shape = record.job.role(name), shapes[name]
        if len(found) > 1 and role is not None and shape is not None:
            total += shape.tensor * shape.pipeline * role.request.gpu_milli
    return total
