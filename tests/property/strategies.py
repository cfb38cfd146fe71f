"""Random small worlds for property tests, small enough that brute force over every placement stays possible.

`from strategies import snapshots`: conftest.py puts this folder on the path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from phalanx.model.host import CachedDataset, Gpu, Host, HostState, Window
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import (
    AntiAffinity,
    CheckpointPolicy,
    DatasetRef,
    Elastic,
    GpuTypeChoice,
    Job,
    Parallelism,
    Preemptible,
    Role,
    Strictness,
    TopologyConstraint,
    WorkerRequest,
)
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, Progress, WorkerPlacement
from phalanx.model.policy import EvictionPolicy, ObjectivePolicy, Policy, ReservedPool, StandardGang
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team, Usage
from phalanx.model.topology import Layer, Site, TopologyPath
from phalanx.solver.books import Books

NOW_S = 1_000_000
TYPES = ("A100", "H100")
MEMORY_MIB = {"A100": (40_960, 81_920), "H100": (81_920,)}
TEAMS = (
    Team(id=TeamId("lab"), weight=300),
    Team(id=TeamId("vision"), parent=TeamId("lab"), usage=Usage(gpu_milli_s=2_000 * 86_400)),
    Team(id=TeamId("speech"), parent=TeamId("lab"), weight=200),
    Team(id=TeamId("web")),
)
LEAVES = ("vision", "speech", "web")
SITES = (Site(id=SiteId("north")), Site(id=SiteId("cloud"), on_premises=False))


@st.composite
def hosts(draw: st.DrawFn, number: int, max_cards: int = 4) -> Host:
    """One host of up to `max_cards` cards, of one or two kinds, now and then a broken card, a cordon or a spare."""
    path = TopologyPath(
        site=draw(st.sampled_from(("north", "north", "north", "cloud"))),
        zone=draw(st.sampled_from((None, "z0", "z0", "z1"))),
        rack=draw(st.sampled_from((None, "r0", "r0", "r1"))),
        nvlink=draw(st.sampled_from((None, None, "n0"))),
    )
    first = draw(st.sampled_from(TYPES))
    mixed = draw(st.integers(0, 5)) == 5
    gpus = []
    for index in range(draw(st.sampled_from((max_cards, max_cards, max_cards // 2, 1, 0)))):
        gpu_type = draw(st.sampled_from(TYPES)) if mixed else first
        memory = draw(st.sampled_from(MEMORY_MIB[gpu_type])) if mixed else MEMORY_MIB[gpu_type][-1]
        healthy = draw(st.integers(0, 9)) < 9
        gpus.append(Gpu(index=index, gpu_type=gpu_type, memory_mib=memory, healthy=healthy))
    common = draw(st.integers(0, 7)) < 7
    return Host(
        id=HostId(f"h{number}"),
        path=path,
        gpus=tuple(gpus),
        cpu_milli=draw(st.sampled_from((4_000, 8_000, 16_000))),
        memory_mib=draw(st.sampled_from((8_192, 32_768))),
        network_mbps=draw(st.sampled_from((0, 10_000))),
        state=HostState.READY if common else draw(st.sampled_from(list(HostState))),
        spare=draw(st.integers(0, 11)) == 11,
        windows=draw(windows()) if draw(st.integers(0, 5)) == 5 else (),
    )


@st.composite
def windows(draw: st.DrawFn) -> tuple[Window, ...]:
    """One or two maintenance windows, over, begun or ahead; some leave just the time for a short job."""
    starts = st.sampled_from((500_000, 20_000, 3_669, 3_670, 3_671, 200, 0, -100))
    drawn = draw(st.lists(st.tuples(starts, st.sampled_from((7_200, 50, 100))), min_size=1, max_size=2))
    return tuple(Window(start_s=NOW_S + start, end_s=NOW_S + start + length) for start, length in drawn)


@st.composite
def limited_teams(draw: st.DrawFn) -> tuple[Team, ...]:
    """The teams, some of them with a limit on one or both GPU types, or with a guarantee."""
    teams = []
    for team in TEAMS:
        if draw(st.integers(0, 2)) == 2:
            names = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2, unique=True))
            milli = st.sampled_from((8_000, 4_000, 3_000, 2_000, 1_000, 500, 0))
            team = replace(team, guarantee=tuple(GpuQuota(gpu_type=name, gpu_milli=draw(milli)) for name in names))
        if draw(st.integers(0, 3)) == 3:
            names = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2, unique=True))
            milli = st.sampled_from((6_000, 3_000, 2_000, 1_000, 500, 0))
            team = replace(team, limit=tuple(GpuQuota(gpu_type=name, gpu_milli=draw(milli)) for name in names))
        teams.append(team)
    return tuple(teams)


@st.composite
def labels(draw: st.DrawFn) -> tuple[AntiAffinity, ...]:
    """None mostly, or one or two anti-affinity labels on any layer."""
    if draw(st.integers(0, 3)) < 3:
        return ()
    names = draw(st.lists(st.sampled_from(("x", "x", "y")), min_size=1, max_size=2, unique=True))
    layer = st.sampled_from((Layer.HOST, Layer.HOST, *Layer))
    return tuple(AntiAffinity(label=name, layer=draw(layer)) for name in names)


@st.composite
def requests(draw: st.DrawFn, max_cards: int = 4) -> WorkerRequest:
    """What one worker asks: no card, a fraction of one, or whole cards."""
    shape = draw(st.sampled_from(("whole", "whole", "whole", "fraction", "none")))
    cpu = draw(st.sampled_from((500, 1_000, 4_000)))
    memory = draw(st.sampled_from((0, 1_024, 8_192)))
    if shape == "none":
        return WorkerRequest(cpu_milli=cpu, memory_mib=memory)
    if shape == "fraction":
        milli = draw(st.sampled_from((100, 300, 500, 700)))
        card = draw(st.sampled_from((0, 0, 20_480, 61_440)))
        return WorkerRequest(gpu_milli=milli, gpu_memory_mib=card, cpu_milli=cpu, memory_mib=memory)
    milli = 1_000 * draw(st.sampled_from((1, 1, 1, 2, max_cards)))
    card = draw(st.sampled_from((0, 0, 61_440)))
    network = draw(st.sampled_from((0, 0, 0, 5_000)))
    return WorkerRequest(gpu_milli=milli, gpu_memory_mib=card, cpu_milli=cpu, memory_mib=memory, network_mbps=network)


@st.composite
def roles(draw: st.DrawFn, name: str, max_workers: int = 4, max_cards: int = 4) -> Role:
    """A role of up to `max_workers` workers; some with tensor and pipeline groups, some with unequal GPU types."""
    request = draw(requests(max_cards))
    count = draw(st.sampled_from((1, 1, *range(1, max_workers + 1))))
    parallelism = None
    if draw(st.integers(0, 3)) == 0:
        shapes = [
            Parallelism(tensor=tensor, pipeline=pipeline, data=count // tensor // pipeline)
            for tensor in range(1, count + 1)
            for pipeline in range(1, count + 1)
            if count % (tensor * pipeline) == 0
        ]
        parallelism = draw(st.sampled_from(shapes))
    choices: tuple[GpuTypeChoice, ...] = ()
    if request.gpu_milli and draw(st.booleans()):
        names = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2, unique=True))
        choices = tuple(
            GpuTypeChoice(gpu_type=kind, throughput_milli=draw(st.sampled_from((400, 1_000, 2_500)))) for kind in names
        )
    return Role(name=name, count=count, request=request, gpu_types=choices, parallelism=parallelism)


@st.composite
def sizes(draw: st.DrawFn, role: Role) -> Elastic | None:
    """None mostly, or some numbers of workers that the role may have, its own among them."""
    if draw(st.integers(0, 3)) < 3:
        return None
    others = draw(st.lists(st.integers(1, 4), max_size=3))
    return Elastic(role=role.name, sizes=tuple(sorted({role.count, *others})))


@st.composite
def gangs(draw: st.DrawFn, name: str, max_workers: int = 4, max_cards: int = 4) -> Job:
    """One job of one or two roles, at any level, with or without topology constraints and site pins."""
    names = ("worker", "helper") if draw(st.integers(0, 3)) == 0 else ("worker",)
    constraints: tuple[TopologyConstraint, ...] = ()
    if draw(st.integers(0, 2)) == 0:
        layers = draw(st.lists(st.sampled_from(list(Layer)), min_size=1, max_size=2, unique=True))
        constraints = tuple(
            TopologyConstraint(layer=layer, strictness=draw(st.sampled_from(list(Strictness)))) for layer in layers
        )
    drawn = tuple(draw(roles(role, max_workers, max_cards)) for role in names)
    return Job(
        id=JobId(name),
        team=TeamId(draw(st.sampled_from(LEAVES))),
        roles=drawn,
        elastic=draw(sizes(drawn[0])),
        tier=draw(st.integers(1, 4)),
        priority=draw(st.integers(-1, 1)),
        preemptible=draw(
            st.sampled_from((*(Preemptible.BY_HIGHER,) * 6, *(Preemptible.ANYTIME,) * 3, Preemptible.NEVER))
        ),
        topology=constraints,
        cross_site=draw(st.booleans()),
        off_premises=draw(st.sampled_from((None, None, True, False))),
        sites=draw(st.sampled_from(((), (), (), (), (), (), (SiteId("north"),), (SiteId("cloud"),)))),
        anti_affinity=draw(labels()),
        walltime_limit_s=draw(st.sampled_from((None, 3_600, 60))),
    )


@st.composite
def replacing(draw: st.DrawFn, fleet: tuple[Host, ...]) -> dict[str, Any]:
    """Seldom the hosts that are held for a gang that lost one of them; the time of some is over."""
    if draw(st.integers(0, 5)) < 5:
        return {}
    hosts = draw(st.lists(st.sampled_from([host.id for host in fleet]), min_size=1, unique=True))
    return {"replacing": tuple(hosts), "replacing_until_s": NOW_S + draw(st.sampled_from((0, 1, 300)))}


DATASETS = tuple(DatasetRef(name=name, size_mib=size, shards=4) for name, size in (("eeg", 40_000), ("spikes", 7_001)))


@st.composite
def with_caches(draw: st.DrawFn, snapshot: Snapshot) -> Snapshot:
    """The same world with data sets for some waiting gangs, and parts of them on some hosts."""
    if draw(st.integers(0, 2)):
        return snapshot
    hosts = []
    for host in snapshot.hosts:
        cached = []
        for dataset in DATASETS:
            shards = draw(st.integers(0, 4))
            if shards:
                there = CachedDataset(
                    dataset=dataset.name, digest="", shards=shards, shards_total=4, size_mib=dataset.size_mib
                )
                cached.append(there)
        hosts.append(replace(host, cached=tuple(cached)))
    jobs = [
        record
        if record.placement
        else replace(record, job=replace(record.job, dataset=draw(st.sampled_from((None, *DATASETS)))))
        for record in snapshot.jobs
    ]
    return replace(snapshot, hosts=tuple(hosts), jobs=tuple(jobs))


@st.composite
def snapshots(
    draw: st.DrawFn,
    max_hosts: int = 4,
    max_cards: int = 4,
    max_jobs: int = 4,
    max_workers: int = 4,
    max_running: int = 3,
) -> Snapshot:
    """A fleet with running work that is within capacity, and waiting jobs of which most are candidates."""
    fleet = tuple(draw(hosts(number, max_cards)) for number in range(draw(st.integers(1, max_hosts))))
    snapshot = Snapshot(now_s=NOW_S, sites=SITES, hosts=fleet, teams=draw(limited_teams()))
    running = _running(draw, snapshot, max_running, max_cards)
    waiting = []
    for number in range(draw(st.integers(1, max_jobs))):
        job = draw(gangs(f"j{number}", max_workers, max_cards))
        state = draw(st.sampled_from((JobState.QUEUED,) * 8 + (JobState.HELD, JobState.BLOCKED)))
        waiting.append(
            JobRecord(
                job=job,
                state=state,
                submitted_s=NOW_S - draw(st.sampled_from((0, 60, 3_600, 400_000, 700_000))),
                attempt=draw(st.integers(0, 2)),
                demoted=draw(st.integers(0, 9)) == 9,
                not_before_s=NOW_S + 30 if draw(st.integers(0, 9)) == 9 else 0,
                **draw(replacing(fleet)),
            )
        )
    return draw(with_caches(replace(snapshot, jobs=(*running, *waiting))))


@st.composite
def contested(draw: st.DrawFn, max_hosts: int = 2, max_cards: int = 3, max_jobs: int = 4) -> Snapshot:
    """A small fleet full of work of low levels, and waiting gangs of which most outrank it."""
    running = 2 * max_hosts * max_cards
    snapshot = draw(snapshots(max_hosts, max_cards, max_jobs, max_workers=2, max_running=running))
    jobs = []
    for record in snapshot.jobs:
        if record.placement:
            kinds = (Preemptible.BY_HIGHER,) * 4 + (Preemptible.ANYTIME,) * 3 + (Preemptible.NEVER,)
            job = replace(
                record.job,
                tier=draw(st.sampled_from((4, 4, 4, 3, 2))),
                preemptible=draw(st.sampled_from(kinds)),
            )
            jobs.append(replace(record, job=job))
        else:
            tier = draw(st.sampled_from((1, 1, 2, 3)))
            job = replace(
                record.job, tier=tier, preemptible=Preemptible.BY_HIGHER, off_premises=True, sites=(), topology=()
            )
            if draw(st.booleans()):
                job = replace(job, roles=tuple(replace(role, gpu_types=()) for role in job.roles))
            jobs.append(replace(record, job=job, state=JobState.QUEUED, not_before_s=0))
    return replace(snapshot, jobs=tuple(jobs))


def _running(draw: st.DrawFn, snapshot: Snapshot, number: int, max_cards: int) -> tuple[JobRecord, ...]:
    """Jobs of one or two workers each, on the first cards where each fits; most may be preempted."""
    books = Books(snapshot)
    records = []
    for index in range(draw(st.sampled_from((number, number, number // 2, 1, 0)))):
        job = draw(_running_jobs(f"r{index}", max_cards))
        workers: list[WorkerPlacement] = []
        for rank in range(job.workers):
            seats = [
                WorkerPlacement(role="worker", index=rank, host=host.id, gpus=gpus)
                for host in snapshot.hosts
                for gpus in _card_sets(books, host, job.roles[0].request)
            ]
            seats = [seat for seat in seats if books.fits(job, seat)]
            if seats:
                workers.append(draw(st.sampled_from(seats)))
                books.take(job, workers[-1])
        if len(workers) == job.workers:
            records.append(_runs(draw, job, Placement(workers=tuple(workers))))
        else:
            for worker in workers:
                books.give(job, worker)
    return tuple(records)


@st.composite
def _running_jobs(draw: st.DrawFn, name: str, max_cards: int) -> Job:
    saves = st.builds(
        CheckpointPolicy,
        interval_s=st.sampled_from((60, 1_801)),
        write_s=st.sampled_from((10, 600)),
        restart_s=st.sampled_from((0, 90)),
        grace_s=st.sampled_from((0, 30, 60)),
    )
    role = Role(count=draw(st.sampled_from((1, 1, 1, 2))), request=draw(requests(max_cards)))
    return Job(
        id=JobId(name),
        team=TeamId(draw(st.sampled_from(LEAVES))),
        roles=(role,),
        elastic=draw(sizes(role)),
        tier=draw(st.sampled_from((4, 4, 3, 3, 2, 1))),
        preemptible=draw(
            st.sampled_from((*(Preemptible.BY_HIGHER,) * 6, *(Preemptible.ANYTIME,) * 3, Preemptible.NEVER))
        ),
        checkpoint=draw(st.one_of(st.none(), saves)),
        anti_affinity=draw(labels()),
    )


def _runs(draw: st.DrawFn, job: Job, placement: Placement) -> JobRecord:
    """The job where it runs; seldom too short, or evicted too often, to be preempted now."""
    started = NOW_S - draw(st.sampled_from((600, 601, 3_600, 3_600, 90_000, 599)))
    saved = draw(st.sampled_from((None, NOW_S, NOW_S - 500, NOW_S - 5_000)))
    times = (NOW_S - 80_000, NOW_S - 40_000, NOW_S - 20_000)
    return JobRecord(
        job=job,
        state=draw(st.sampled_from((*(JobState.RUNNING,) * 6, JobState.PLANNED, JobState.STOPPING))),
        submitted_s=NOW_S - 100_000,
        attempt=draw(st.integers(1, 3)),
        placement=placement,
        started_s=started,
        progress=Progress(last_checkpoint_s=saved),
        evictions=draw(st.sampled_from(((), (), times[:2], (NOW_S - 86_400, *times[:2]), times))),
        inside_guarantee=draw(st.booleans()),
        demoted=draw(st.integers(0, 9)) == 9,
    )


def _card_sets(books: Books, host: Host, request: WorkerRequest) -> list[tuple[int, ...]]:
    if not request.gpu_milli:
        return [()]
    if request.fractional:
        return [(gpu.index,) for gpu in host.gpus]
    number = request.whole_gpus
    return [free[:number] for free in books.free_cards(host.id).values() if len(free) >= number]


@st.composite
def pools(draw: st.DrawFn) -> tuple[ReservedPool, ...]:
    """No reserved pool mostly, or some, small and large."""
    if draw(st.integers(0, 2)) < 2:
        return ()
    places = st.sampled_from([(site.id, name) for site in SITES for name in TYPES])
    milli = st.sampled_from((500, 1_000, 2_000, 3_000, 8_000))
    drawn = draw(st.lists(places, min_size=1, max_size=2, unique=True))
    return tuple(ReservedPool(site=site, gpu_type=name, gpu_milli=draw(milli)) for site, name in drawn)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Policies whose standard gangs are small enough to matter on a small fleet."""
    shapes = draw(
        st.lists(
            st.builds(
                StandardGang,
                workers=st.integers(1, 2),
                gpus=st.integers(1, 4),
                layer=st.sampled_from((Layer.HOST, Layer.NVLINK, Layer.RACK, Layer.ZONE)),
            ),
            max_size=2,
            unique=True,
        )
    )
    return Policy(
        objective=ObjectivePolicy(
            standard_gangs=tuple(shapes),
            spread_s=draw(st.sampled_from((0, 120))),
            scarce_s=draw(st.sampled_from((0, 30))),
            wanted_s=draw(st.sampled_from((0, 300))),
            usable_s=draw(st.sampled_from((0, 60))),
            stranded_s=draw(st.sampled_from((0, 600))),
            room_s=draw(st.sampled_from((0, 60))),
        ),
        eviction=EvictionPolicy(moves_per_hour=draw(st.sampled_from((0, 0, 1, 10)))),
        reserved=draw(pools()),
        cross_site=draw(st.booleans()),
        production_off_premises=draw(st.booleans()),
    )
