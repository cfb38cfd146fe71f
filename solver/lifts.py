"""The demands and rules that are lifted, one or two at a time, to find why a gang waits (RULES 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from ..model.decision import RuleFamily
from ..model.job import Job, Preemptible, WorkerRequest
from ..model.snapshot import JobRecord
from .demand import Confinement
from .unchecked import varied
from .variants import any_site, any_type, with_request
from .worlds import NOW, World, Worlds

ANYWHERE = Confinement(None, ())


@dataclass(frozen=True, slots=True)
class Lift:
    """One thing less to meet: a change of the gang, of the world around it, or of where it must stay together.

    `change` gives None where the gang does not make this demand. `besides` says it as a second thing that is short.
    `opens`: the change opens cards to the gang that it could not take; what only lowers other demands does not.
    """

    name: str
    family: RuleFamily
    besides: str
    change: Callable[[Job], Job | None] | None = None
    world: World = NOW
    anywhere: bool = False
    opens: bool = False


def _without_cpu(request: WorkerRequest) -> WorkerRequest:
    # A request must ask for something; 1 MiB is next to nothing.
    return replace(request, cpu_milli=0, memory_mib=request.memory_mib or (0 if request.gpu_milli else 1))


def _without_memory(request: WorkerRequest) -> WorkerRequest:
    return replace(request, memory_mib=0, cpu_milli=request.cpu_milli or (0 if request.gpu_milli else 1))


def _without_network(request: WorkerRequest) -> WorkerRequest:
    return replace(request, network_mbps=0)


def _apart(job: Job) -> Job:
    """Groups may be split."""
    return varied(job, roles=tuple(varied(role, parallelism=None) for role in job.roles))


def _any_card(request: WorkerRequest) -> WorkerRequest:
    return request if request.fractional else replace(request, gpu_memory_mib=0)


def _unlabelled(job: Job) -> Job | None:
    return varied(job, anti_affinity=()) if job.anti_affinity else None


def _evictable(job: Job) -> Job | None:
    return varied(job, preemptible=Preemptible.BY_HIGHER) if job.preemptible is Preemptible.NEVER else None


GUARANTEE = Lift("guarantee", RuleFamily.GUARANTEE, "a guarantee that covers it", _evictable, opens=True)
LIMIT = Lift("limit", RuleFamily.QUOTA, "a higher limit of its team", world=World(no_limits=True))
RESERVE = Lift("reserve", RuleFamily.RESERVED, "GPUs reserved for tiers 1 and 2", world=World(no_reserve=True))
LABEL = Lift("label", RuleFamily.AFFINITY, "room beside jobs with its label", _unlabelled)
WINDOW = Lift(
    "window", RuleFamily.ELIGIBILITY, "hosts that enter maintenance before it is over", world=World(no_windows=True)
)
OUTRANKED = Lift(
    "outranked", RuleFamily.CAPACITY, "room that went to jobs ahead of it in this round", world=World(no_starts=True)
)
CPU = Lift("CPU", RuleFamily.CAPACITY, "more CPU", partial(with_request, change=_without_cpu))
MEMORY = Lift("memory", RuleFamily.CAPACITY, "more memory", partial(with_request, change=_without_memory))
NETWORK = Lift("network", RuleFamily.CAPACITY, "more network", partial(with_request, change=_without_network))
TOPOLOGY = Lift("topology", RuleFamily.TOPOLOGY, "workers further apart", _apart, anywhere=True)
CARD_MEMORY = Lift(
    "GPU memory", RuleFamily.ELIGIBILITY, "GPUs with less memory", partial(with_request, change=_any_card)
)
TYPE = Lift("GPU type", RuleFamily.ELIGIBILITY, "GPUs of other types", any_type, opens=True)
SITE = Lift("site", RuleFamily.ELIGIBILITY, "other sites", any_site, opens=True)
HOSTS = Lift(
    "hosts", RuleFamily.ELIGIBILITY, "hosts that take no work now", world=World(all_hosts=True, no_windows=True)
)
PROTECTED = Lift(
    "protected", RuleFamily.PREEMPTION, "room held by jobs that may not be preempted now", world=World(no_lower=True)
)
BUSY = Lift("busy", RuleFamily.CAPACITY, "room that is in use", world=World(no_starts=True, no_running=True))

LIFTS = (LIMIT, RESERVE, LABEL, WINDOW, OUTRANKED, CPU, MEMORY, NETWORK, TOPOLOGY, CARD_MEMORY, TYPE, SITE, HOSTS)
"""In the order in which they are preferred as an explanation. PROTECTED and BUSY, which say less, come after these.

GUARANTEE comes first where no guarantee has enough left for a gang that needs one.
"""


def matters(lift: Lift, record: JobRecord, worlds: Worlds, started: bool) -> bool:
    """Whether lifting it changes anything for the gang; `started`: something starts in this round."""
    if lift is LIMIT:
        return worlds.books.ledger.limits_team(record.job.team)
    if lift is RESERVE:
        return worlds.books.ledger.pooled(record)
    if lift is WINDOW:
        return worlds.kept_off_by_windows(record)
    if lift is OUTRANKED:
        return started
    if lift is TOPOLOGY:
        return record.job.workers > 1
    return True


def sets(lifts: Sequence[Lift], *, protected: bool) -> Iterator[Lifted]:
    """The sets of these lifts in the order in which they are tried: the smallest first, running work last of its size.

    `protected`: jobs of lower levels run that may not be preempted now. Pairs of which one lifts what the other does
    too are left out.
    """
    running = (PROTECTED, BUSY) if protected else (BUSY,)
    names = {lift.name for lift in (*lifts, *running)}
    return (lifted for lifted in _SETS if lifted.names <= names)


@dataclass(frozen=True, slots=True)
class Lifted:
    """Lifts that are tried together: what they make of the world, and whether they open cards or free from layers."""

    lifts: tuple[Lift, ...]
    names: frozenset[str]
    world: World
    opens: bool
    anywhere: bool

    @staticmethod
    def of(*lifts: Lift) -> Lifted:
        """These lifts together."""
        world = NOW
        for lift in lifts:
            world = world | lift.world
        names = frozenset(lift.name for lift in lifts)
        return Lifted(lifts, names, world, any(lift.opens for lift in lifts), any(lift.anywhere for lift in lifts))


def _sets() -> Iterator[Lifted]:
    lifts, running = (GUARANTEE, *LIFTS), (PROTECTED, BUSY)
    yield Lifted.of()
    yield from (Lifted.of(lift) for lift in (*lifts, *running))
    pairs = (*combinations(lifts, 2), *((lift, held) for held in running for lift in lifts))
    same = ({WINDOW.name, HOSTS.name}, {OUTRANKED.name, BUSY.name})
    yield from (Lifted.of(*pair) for pair in pairs if {lift.name for lift in pair} not in same)


_SETS = tuple(_sets())
