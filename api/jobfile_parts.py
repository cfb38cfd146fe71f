"""The nested parts of a job file: a role with its workers, the checkpoint policy, the data set."""

from __future__ import annotations

from typing import Any

from ..model.errors import InvalidInput
from ..model.job import CheckpointPolicy, DatasetRef, GpuTypeChoice, Parallelism, Role, WorkerRequest
from . import units
from .jobfile_fields import Section, text, texts

ROLE_KEYS = ("workers", "gpus", "gpu_type", "gpu_memory", "cpu", "memory", "network", "parallelism")
"""The keys that describe the workers of one role."""


def role(section: Section, name: str) -> Role:
    """The role whose keys stand in this section; amounts are per worker."""
    degrees = section.take("parallelism", _degrees, None)
    count = section.take("workers", lambda f, v: units.whole(f, v, "workers", 1), _product(degrees))
    return section.build(
        Role,
        name=name,
        count=count,
        request=_request(section),
        gpu_types=section.take("gpu_type", _gpu_types, ()),
        parallelism=_parallelism(section, degrees, count),
    )


def checkpoint(field: str, value: Any) -> CheckpointPolicy:
    """`interval`, and where they are known `write`, `restart`, `grace` and `uri`."""
    section = Section(field, value, ("interval", "write", "restart", "grace", "uri"))
    return section.build(
        CheckpointPolicy,
        interval_s=section.need("interval", units.duration_s),
        write_s=section.take("write", units.duration_s, 0),
        restart_s=section.take("restart", units.duration_s, 0),
        grace_s=section.take("grace", units.duration_s, 30),
        uri=section.take("uri", text, ""),
    )


def dataset(field: str, value: Any) -> DatasetRef:
    """A data set's name, or a mapping of `name`, `digest`, `size` and `shards`."""
    data = value if isinstance(value, dict) else {"name": value}
    section = Section(field, data, ("name", "digest", "size", "shards"))
    return section.build(
        DatasetRef,
        name=section.need("name", text),
        digest=section.take("digest", text, ""),
        size_mib=section.take("size", units.memory_mib, 0),
        shards=section.take("shards", lambda f, v: units.whole(f, v, "shards", 1), 1),
    )


def _request(section: Section) -> WorkerRequest:
    """Without `cpu` or `memory`, a GPU worker books one core and 1 GiB a card, so that it can run at all."""
    gpu_milli = section.take("gpus", units.milli, 0)
    cards = -(-gpu_milli // 1000)
    return section.build(
        WorkerRequest,
        gpu_milli=gpu_milli,
        gpu_memory_mib=section.take("gpu_memory", units.memory_mib, 0),
        cpu_milli=section.take("cpu", lambda f, v: units.milli(f, v, "cores"), 1000 * cards),
        memory_mib=section.take("memory", units.memory_mib, 1024 * cards),
        network_mbps=section.take("network", units.bandwidth_mbps, 0),
    )


def _gpu_types(field: str, value: Any) -> tuple[GpuTypeChoice, ...]:
    """One type, a list of types at equal speed, or a mapping of types to relative speeds."""
    if isinstance(value, dict):
        return tuple(
            GpuTypeChoice(gpu_type=str(name), throughput_milli=units.milli(f"{field}.{name}", speed, "times the speed"))
            for name, speed in value.items()
        )
    return tuple(GpuTypeChoice(gpu_type=name) for name in texts(field, value))


def _degrees(field: str, value: Any) -> dict[str, int]:
    section = Section(field, value, ("tensor", "pipeline", "data"))
    read = {}
    for key in ("tensor", "pipeline", "data"):
        degree = section.take(key, lambda f, v: units.whole(f, v, "workers", 1), None)
        if degree is not None:
            read[key] = degree
    return read


def _product(degrees: dict[str, int] | None) -> int:
    product = 1
    for degree in (degrees or {}).values():
        product *= degree
    return product


def _parallelism(section: Section, degrees: dict[str, int] | None, count: int) -> Parallelism | None:
    if degrees is None:
        return None
    if "data" not in degrees:
        inner = _product(degrees)
        if count % inner:
            where = section.path("parallelism")
            raise InvalidInput(
                where, f"{count} workers are not whole groups of {inner}", f"workers a multiple of {inner}"
            )
        degrees = {**degrees, "data": count // inner}
    return section.build(Parallelism, **degrees)
