"""The same gang with one demand changed, and how a person would say the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..model.errors import InvalidInput
from ..model.host import MILLI
from ..model.job import GpuTypeChoice, Job, Role, Strictness, TopologyConstraint, WorkerRequest
from ..model.topology import Layer
from .unchecked import varied


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed gang; `text` completes "starts with ..." or "starts on ..."."""

    text: str
    job: Job


def with_request(job: Job, change: Callable[[WorkerRequest], WorkerRequest]) -> Job | None:
    """The gang with that change to the request of every role; None where nothing changes or nothing is asked then."""
    try:
        requests = [change(role.request) for role in job.roles]
    except InvalidInput:
        return None
    if all(request == role.request for role, request in zip(job.roles, requests, strict=True)):
        return None
    roles = (varied(role, request=request) for role, request in zip(job.roles, requests, strict=True))
    return varied(job, roles=tuple(roles))


def any_type(job: Job) -> Job | None:
    """The gang on any GPU type; None where it takes any already."""
    if not any(role.gpu_types for role in job.roles):
        return None
    return varied(job, roles=tuple(varied(role, gpu_types=()) for role in job.roles))


def any_site(job: Job) -> Job | None:
    """The gang at any site, on premises or not; None where it may go to any already."""
    return None if not job.sites and job.off_premises is True else varied(job, sites=(), off_premises=True)


def on_type(job: Job, gpu_type: str) -> Job:
    """The gang with all its GPU workers on that type."""
    roles = tuple(
        varied(role, gpu_types=(GpuTypeChoice(gpu_type=gpu_type),)) if role.request.gpu_milli else role
        for role in job.roles
    )
    return varied(job, roles=roles)


def wider(job: Job, layer: Layer) -> Job:
    """The gang confined to that layer instead of a narrower one."""
    kept = tuple(c for c in job.topology if c.strictness is Strictness.PREFERRED and c.layer is not layer)
    return varied(job, topology=(TopologyConstraint(layer=layer), *kept))


def other_types(job: Job, known: tuple[str, ...]) -> Iterator[Variant]:
    """On one of the types that no role accepts now."""
    gpu_roles = [role for role in job.roles if role.request.gpu_milli]
    for name in known:
        if gpu_roles and all(role.throughput_milli(name) is None for role in gpu_roles):
            yield Variant(f"on {name}", on_type(job, name))


def wider_layers(job: Job, required: Layer | None) -> Iterator[Variant]:
    """Inside one domain of a wider layer than the required one."""
    if required is not None:
        for layer in Layer:
            if layer.width > required.width:
                yield Variant(
                    f"inside one {LAYER_NAME[layer]} instead of one {LAYER_NAME[required]}", wider(job, layer)
                )


def split_workers(job: Job) -> Iterator[Variant]:
    """The same GPUs as twice, four times ... as many workers with fewer GPUs each, on several hosts if need be."""
    for role in job.roles:
        gpus = role.request.whole_gpus
        if role.parallelism is not None or gpus < 2:
            continue
        for parts in range(2, gpus + 1):
            if gpus % parts == 0:
                request = _part(role.request, gpus // parts, gpus)
                split = _with_role(job, varied(role, count=role.count * parts, request=request))
                text = f"as {role.count * parts} workers with {_gpus(request)} each on several hosts"
                yield Variant(text, split if job.topology else wider(split, Layer.SITE))


def fewer_gpus(job: Job, *, halving: bool) -> Iterator[Variant]:
    """The same workers with fewer GPUs each, and as much less of the rest: by halving, or one less at a time."""
    for role in job.roles:
        gpus = role.request.whole_gpus
        number = gpus // 2 if halving else gpus - 1
        while number >= 1:
            request = _part(role.request, number, gpus)
            yield Variant(f"with {_gpus(request)} per worker", _with_role(job, varied(role, request=request)))
            number = number // 2 if halving else number - 1


def fewer_workers(job: Job, role: Role, count: int) -> Variant | None:
    """With `count` workers of that role at most; None where its groups leave no such number above 0."""
    parallelism = role.parallelism
    if parallelism is not None:
        replica = parallelism.tensor * parallelism.pipeline
        parallelism = replace(parallelism, data=count // replica) if count >= replica else None
        count = parallelism.workers if parallelism is not None else 0
    if not 0 < count < role.count:
        return None
    noun = "worker" if count == 1 else "workers"
    of_role = f" of role {role.name}" if len(job.roles) > 1 else ""
    changed = replace(role, count=count, parallelism=parallelism)
    return Variant(f"with {count} {noun}{of_role} instead of {role.count}", _with_role(job, changed))


ANYTIME = "with preemptible: anytime"
"""What lets a gang use idle parts of reserved pools."""

LAYER_NAME = {
    Layer.HOST: "host",
    Layer.NVLINK: "NVLink domain",
    Layer.RACK: "rack",
    Layer.ZONE: "zone",
    Layer.SITE: "site",
}
"""What people call a layer."""


def _with_role(job: Job, changed: Role) -> Job:
    roles = tuple(changed if role.name == changed.name else role for role in job.roles)
    return varied(job, roles=roles, elastic=None)


def _part(request: WorkerRequest, number: int, gpus: int) -> WorkerRequest:
    """The request with `number` of its `gpus` whole cards, and the same share of the rest."""
    return replace(
        request,
        gpu_milli=number * MILLI,
        cpu_milli=request.cpu_milli * number // gpus,
        memory_mib=request.memory_mib * number // gpus,
        network_mbps=request.network_mbps * number // gpus,
    )


def _gpus(request: WorkerRequest) -> str:
    return "1 GPU" if request.whole_gpus == 1 else f"{request.whole_gpus} GPUs"
