"""What a made-up fleet lacks of rules, added by chance: guarantees, data sets with caches, a reserved pool, hunger."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from ..model.host import CachedDataset, Host
from ..model.job import DatasetRef
from ..model.policy import Policy, ReservedPool
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import GpuQuota, Team

_SHARDS = 64
_DATASETS = tuple(
    DatasetRef(name=f"set-{number}", digest=f"digest-{number}", size_mib=256 * 1024 * (number + 1), shards=_SHARDS)
    for number in range(6)
)
_HUNGRY_S = 3 * 3_600
"""How much longer one in ten has waited: long enough to have hosts reserved."""


def with_guarantees_and_caches(snapshot: Snapshot, draw: random.Random) -> Snapshot:
    """Every third team guaranteed a twentieth of the cards of each type; two data sets on every host, in part."""
    types = {gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}
    milli = {
        name: sum(1_000 for host in snapshot.hosts for gpu in host.gpus if gpu.gpu_type == name) // 20_000 * 1_000
        for name in sorted(types)
    }
    quotas = tuple(GpuQuota(gpu_type=name, gpu_milli=max(1_000, most)) for name, most in milli.items())
    teams = tuple(_guaranteed(team, number, quotas) for number, team in enumerate(snapshot.teams))
    return replace(snapshot, teams=teams, hosts=tuple(_cached(host, draw) for host in snapshot.hosts))


def _guaranteed(team: Team, number: int, quotas: tuple[GpuQuota, ...]) -> Team:
    return replace(team, guarantee=quotas) if team.parent is not None and number % 3 == 1 else team


def _cached(host: Host, draw: random.Random) -> Host:
    cached = tuple(
        CachedDataset(
            dataset=dataset.name,
            digest=dataset.digest,
            shards=draw.randrange(_SHARDS + 1),
            shards_total=_SHARDS,
            size_mib=dataset.size_mib,
        )
        for dataset in draw.sample(_DATASETS, 2)
    )
    return replace(host, cached=cached)


def with_datasets_and_hunger(records: Iterable[JobRecord], seed: int) -> list[JobRecord]:
    """Three of ten jobs read a data set, one of ten has waited for hours."""
    found = []
    for record in records:
        draw = random.Random(f"rules/{seed}/{record.id}")
        if draw.random() < 0.3:
            record = replace(record, job=replace(record.job, dataset=draw.choice(_DATASETS)))
        if draw.random() < 0.1:
            record = replace(record, submitted_s=record.submitted_s - _HUNGRY_S)
        found.append(record)
    return found


def with_reserved_pool(policy: Policy, snapshot: Snapshot) -> Policy:
    """One in eight cards of the first host's type at its site is for tiers 1 and 2."""
    first = snapshot.hosts[0]
    site, gpu_type = first.path.site, first.gpus[0].gpu_type
    cards = sum(gpu.gpu_type == gpu_type for host in snapshot.hosts if host.path.site == site for gpu in host.gpus)
    pool = ReservedPool(site=site, gpu_type=gpu_type, gpu_milli=cards // 8 * 1_000)
    return policy if policy.reserved else replace(policy, reserved=(pool,))
