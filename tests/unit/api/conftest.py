"""A small fleet in memory, an app over it with stand-ins for the solver, and makers of jobs and decisions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.api.app import create_app
from phalanx.api.fleet import fleet_from_dict
from phalanx.api.settings import Settings
from phalanx.model.decision import Certificate, Decision, Grain, Reason, ReasonKind, Rejection, Stage, Start
from phalanx.model.job import Command, Job, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy

NOW_S = 1_700_000_000

FLEET = {
    "sites": [
        {
            "id": "north",
            "hosts": [
                {
                    "name": "n{n}",
                    "count": 2,
                    "gpus": 2,
                    "gpu_type": "H100",
                    "gpu_memory": "80GiB",
                    "cpu": 16,
                    "memory": "64GiB",
                    "rack": "r1",
                }
            ],
        },
        {
            "id": "south",
            "hosts": [
                {
                    "name": "s{n}",
                    "count": 1,
                    "gpus": 4,
                    "gpu_type": "T4",
                    "gpu_memory": "16GiB",
                    "cpu": 32,
                    "memory": "64GiB",
                }
            ],
        },
    ],
    "teams": [{"id": "vision"}, {"id": "speech"}],
}


@dataclass(frozen=True)
class FakeAdmission:
    """What the admission check answers."""

    accepted: bool = True
    reason: Reason | None = None
    nearest: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class FakeViolation:
    """One broken rule."""

    family: str = "capacity"
    subject: str = "host n1"
    amount: int = 1
    message: str = "host n1 is overbooked by 1 GPU"


@dataclass
class Brain:
    """The stand-in solver: places gangs host after host on free cards, and answers admission as it is told."""

    answer: FakeAdmission = field(default_factory=FakeAdmission)
    asked: list[Policy] = field(default_factory=list)

    def admit(self, job, snapshot, policy):
        return self.answer

    def solve(self, snapshot, policy):
        self.asked.append(policy)
        free = {host.id: [gpu.index for gpu in host.gpus] for host in snapshot.hosts if host.state == "ready"}
        for record in snapshot.jobs:
            for worker in record.placement.workers if record.placement else ():
                free[worker.host] = [gpu for gpu in free.get(worker.host, []) if gpu not in worker.gpus]
        starts, waiting = [], []
        for record in snapshot.jobs:
            if record.state is not JobState.QUEUED or record.not_before_s > snapshot.now_s:
                continue
            placement = self._place(record.job, free)
            if placement is None:
                waiting.append(busy(record.id, record.job.gpus))
            else:
                starts.append(Start(job=record.id, attempt=record.attempt + 1, placement=placement))
        return decision(snapshot, starts=tuple(starts), waiting=tuple(waiting))

    @staticmethod
    def _place(job, free):
        left = {host: list(cards) for host, cards in free.items()}
        workers = []
        for role in job.roles:
            for index in range(role.count):
                need = role.request.whole_gpus
                host = next((name for name, cards in left.items() if len(cards) >= need), None)
                if host is None:
                    return None
                workers.append(WorkerPlacement(role=role.name, index=index, host=host, gpus=tuple(left[host][:need])))
                left[host] = left[host][need:]
        free.update(left)
        return Placement(workers=tuple(workers))


def busy(job, gpus=1):
    """A reason of the commonest kind."""
    return Reason(
        job=job,
        kind=ReasonKind.BUSY,
        subject="H100",
        asked=gpus,
        available=0,
        unit="GPU",
        sentence=f"{gpus} GPUs are asked; none is free.",
        helps=("n1 to become free",),
    )


def decision(snapshot, **parts):
    """A decision of the greedy stage."""
    certificate = Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1)
    return Decision(snapshot_version=snapshot.version, now_s=snapshot.now_s, certificate=certificate, **parts)


def rejection(job):
    """A rejection with its reason."""
    return Rejection(job=job, reason=Reason(job=job, kind=ReasonKind.NEVER_FITS, sentence="It never fits."))


def make_job(name="j1", *, gpus=1, workers=1, team="vision", **more):
    """A job of whole GPUs."""
    request = WorkerRequest(gpu_milli=1000 * gpus, cpu_milli=1000, memory_mib=1024)
    return Job(
        id=name, team=team, roles=(Role(count=workers, request=request),), command=Command(argv=("true",)), **more
    )


@pytest.fixture
def kit():
    """The makers above, for tests (which cannot import this file)."""

    class Kit:
        now_s = NOW_S
        fleet = FLEET
        job = staticmethod(make_job)
        decision = staticmethod(decision)
        busy = staticmethod(busy)
        rejection = staticmethod(rejection)
        Admission = FakeAdmission
        Violation = FakeViolation

    return Kit


@pytest.fixture
def clock():
    return VirtualClock(NOW_S)


@pytest.fixture
def store(clock):
    made = MemoryStore(Policy())
    fleet = fleet_from_dict(FLEET)
    made.put_sites(fleet.sites, fleet.links)
    made.put_teams(fleet.teams)
    for host in fleet.hosts:
        made.put_host(host, now_s=clock.now_s())
    return made


@pytest.fixture
def brain():
    return Brain()


@pytest.fixture
def settings(tmp_path: Path):
    return Settings(data_dir=tmp_path, store_url="memory://")


@pytest.fixture
def app(settings, store, clock, brain):
    return create_app(settings, store, Policy(), clock, solve=brain.solve, admit=brain.admit)


class Client:
    """httpx against the app itself, one call at a time; faults of the app come back as answers, as from a server."""

    def __init__(self, app, headers=None):
        self._app = app
        self._headers = headers or {}

    def request(self, method, url, **more):
        async def call():
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost", headers=self._headers
            ) as http:
                return await http.request(method, url, **more)

        return asyncio.run(call())

    def get(self, url, **more):
        return self.request("GET", url, **more)

    def post(self, url, **more):
        return self.request("POST", url, **more)


@pytest.fixture
def client(app):
    return Client(app)


@pytest.fixture
def client_of():
    return Client
