"""The demands and rules that are lifted, one or two at a time, to find why a gang waits (RULES 10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..model.decision import RuleFamily
from ..model.job import Job, WorkerRequest
from .demand import Confinement
from .variants import any_site, any_type, with_request
from .worlds import NOW, World

ANYWHERE = Confinement(None, ())


@dataclass(frozen=True, slots=True)
class Lift:
    """One thing less to meet: a change of the gang, of the world around it, or of where it must stay together.

    `change` gives None where the gang does not make this demand.
    """

    name: str
    family: RuleFamily
    change: Callable[[Job], Job | None] | None = None
    world: World = NOW
    anywhere: bool = False


def _without_cpu(request: WorkerRequest) -> WorkerRequest:
    return replace(request, cpu_milli=0 if request.gpu_milli or request.memory_mib else 1)


def _without_memory(request: WorkerRequest) -> WorkerRequest:
    return replace(request, memory_mib=0 if request.gpu_milli or request.cpu_milli else 1)


def _apart(job: Job) -> Job:
    """Groups may be split."""
    return replace(job, roles=tuple(replace(role, parallelism=None) for role in job.roles))


OUTRANKED = Lift("outranked", RuleFamily.CAPACITY, world=World(no_starts=True))
CPU = Lift("CPU", RuleFamily.CAPACITY, lambda job: with_request(job, _without_cpu))
MEMORY = Lift("memory", RuleFamily.CAPACITY, lambda job: with_request(job, _without_memory))
NETWORK = Lift("network", RuleFamily.CAPACITY, lambda job: with_request(job, lambda r: replace(r, network_mbps=0)))
TOPOLOGY = Lift("topology", RuleFamily.TOPOLOGY, _apart, anywhere=True)
CARD_MEMORY = Lift(
    "GPU memory", RuleFamily.ELIGIBILITY, lambda job: with_request(job, lambda r: replace(r, gpu_memory_mib=0))
)
TYPE = Lift("GPU type", RuleFamily.ELIGIBILITY, any_type)
SITE = Lift("site", RuleFamily.ELIGIBILITY, any_site)
HOSTS = Lift("hosts", RuleFamily.ELIGIBILITY, world=World(all_hosts=True))
BUSY = Lift("busy", RuleFamily.CAPACITY, world=World(no_starts=True, no_running=True))

LIFTS = (OUTRANKED, CPU, MEMORY, NETWORK, TOPOLOGY, CARD_MEMORY, TYPE, SITE, HOSTS)
"""In the order in which they are preferred as an explanation. BUSY, which says least, comes after pairs of these."""
