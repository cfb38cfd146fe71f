"""An elastic gang on a real local cluster: it shrinks for a higher job, and resumes smaller as its next attempt."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from phalanx.adapters.clock import SystemClock
from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.ray.process import run_adapter
from phalanx.api.round import run_round
from phalanx.model.ids import JobId, SiteId, TeamId
from phalanx.model.job import CheckpointPolicy, Command, Elastic, Job, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.model.team import Team
from phalanx.model.topology import Site

pytestmark = pytest.mark.ray

POLICY = replace(Policy(), eviction=replace(Policy().eviction, min_run_s=0))
WORK = """
import os, pathlib, signal, sys, time
here = pathlib.Path(sys.argv[1])
me = f"{os.environ['WORLD_SIZE']}-{os.environ['RANK']}"
signal.signal(signal.SIGTERM, lambda *_: ((here / f"saved-{me}").touch(), sys.exit(0)))
(here / f"began-{me}").touch()
while True: time.sleep(0.05)
"""


def job(name: str, count: int, gpus: int, folder: Path, **more: object) -> Job:
    return Job(
        id=JobId(name),
        team=TeamId("t"),
        roles=(Role(count=count, request=WorkerRequest(gpu_milli=1000 * gpus, cpu_milli=100)),),
        checkpoint=CheckpointPolicy(interval_s=60, grace_s=10),
        command=Command(argv=(sys.executable, "-c", WORK, str(folder))),
        **more,
    )


def test_an_elastic_gang_makes_way_and_resumes_smaller(executor, hosts, tmp_path: Path) -> None:
    clock, store, site = SystemClock(), MemoryStore(), SiteId("lab")
    store.put_sites([Site(id=site)])
    store.put_teams([Team(id=TeamId("t"))])
    for host in hosts:
        store.put_host(host, now_s=clock.now_s())
    lease = store.acquire("scheduler", "test", ttl_s=3_600, now_s=clock.now_s())
    folders = {name: tmp_path / name for name in ("elastic", "urgent")}
    for folder in folders.values():
        folder.mkdir()

    def began(name: str, world: int) -> bool:
        return len(list(folders[name].glob(f"began-{world}-*"))) == world

    def passed(end: float) -> bool:
        return time.monotonic() > end

    def until(done) -> None:
        deadline = time.monotonic() + 60
        while not done():
            assert time.monotonic() < deadline, [(r.id, r.state, r.attempt, r.message) for r in records()]
            run_round(store, POLICY, clock, lease.term)
            run_adapter(
                site=site,
                store=store,
                executor=executor,
                clock=clock,
                holder="test",
                log_dir=tmp_path,
                stop=partial(passed, time.monotonic() + 0.5),
            )

    def records():
        return store.snapshot(clock.now_s()).jobs

    sizes = Elastic(role="worker", sizes=(1, 2, 3))
    store.submit(job("elastic", 3, 4, folders["elastic"], elastic=sizes), now_s=clock.now_s())
    until(lambda: began("elastic", 3) and store.job(JobId("elastic")).state is JobState.RUNNING)
    store.submit(job("urgent", 1, 4, folders["urgent"], tier=1), now_s=clock.now_s())
    until(lambda: began("urgent", 1) and began("elastic", 2))
    assert len(list(folders["elastic"].glob("saved-3-*"))) == 3
    elastic, urgent = store.job(JobId("elastic")), store.job(JobId("urgent"))
    assert (elastic.attempt, len(elastic.placement.workers), elastic.evictions) == (2, 2, ())
    assert not set(elastic.placement.hosts) & set(urgent.placement.hosts)
    kinds = [entry.kind for entry in store.events(subject="job elastic")]
    assert kinds.count("resized") == 1
    for name in ("elastic", "urgent"):
        store.cancel(JobId(name), now_s=clock.now_s())
    until(lambda: all(record.state is JobState.CANCELLED for record in records()))
