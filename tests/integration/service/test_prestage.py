"""Pre-stage orders end to end: a plan in the store, a real agent process, the real shard cache."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import uvicorn

from phalanx.adapters.clock import SystemClock
from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.api.app import create_app
from phalanx.api.fleet import fleet_from_dict
from phalanx.api.inventory import cache_inventory
from phalanx.api.settings import Settings
from phalanx.dataplane import Field, ShardWriter
from phalanx.model.decision import Certificate, Decision, Grain, Stage
from phalanx.model.job import Command, DatasetRef, Job, Role, WorkerRequest
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.reservation import Reservation

HOST = {"name": "n1", "count": 1, "gpus": 1, "gpu_type": "H100", "gpu_memory": "80GiB", "cpu": 8, "memory": "8GiB"}
FLEET = {"sites": [{"id": "north", "hosts": [HOST]}], "teams": [{"id": "t"}]}
SHARDS, SHARD_BYTES = 40, 65_536


class World:
    """A service over a store in memory, a data set, and agents of the one host as processes."""

    def __init__(self, folder):
        self.folder, self.clock, self.store = folder, SystemClock(), MemoryStore(Policy())
        fleet = fleet_from_dict(FLEET)
        self.store.put_sites(fleet.sites, fleet.links)
        self.store.put_teams(fleet.teams)
        self.store.put_host(fleet.hosts[0], now_s=self.clock.now_s())
        self.dataset = self.write()
        settings = Settings(data_dir=folder, store_url="memory://")
        app = create_app(settings, self.store, Policy(), self.clock)
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()
        self.agents = []

    def write(self):
        rows = 64 * SHARDS
        with ShardWriter(
            self.folder / "sets" / "eeg", (Field("wave", "int16", (512,)),), name="eeg", shard_bytes=SHARD_BYTES
        ) as writer:
            writer.write({"wave": np.random.default_rng(1).integers(0, 99, (rows, 512)).astype(np.int16)})
            manifest = writer.close()
        assert len(manifest.shards) == SHARDS
        return DatasetRef(name="eeg", digest=manifest.digest, size_mib=SHARDS, shards=SHARDS)

    def plan(self):
        """A job that reads the data set, and a reservation of the host for it."""
        now_s = self.clock.now_s()
        role = Role(count=1, request=WorkerRequest(gpu_milli=1000, cpu_milli=1000))
        job = Job(id="big", team="t", roles=(role,), dataset=self.dataset, command=Command(argv=("true",)))
        self.store.submit(job, now_s=now_s)
        seat = WorkerPlacement(role="worker", index=0, host="n1", gpus=(0,))
        self.commit(
            reservations=(
                Reservation(
                    id="big",
                    job="big",
                    placement=Placement(workers=(seat,)),
                    planned_start_s=now_s + 3_600,
                    created_s=now_s,
                ),
            )
        )

    def commit(self, **acts):
        now_s = self.clock.now_s()
        lease = self.store.acquire("scheduler", "test", ttl_s=600, now_s=now_s)
        snapshot = self.store.snapshot(now_s)
        certificate = Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1)
        decision = Decision(snapshot_version=snapshot.version, now_s=now_s, certificate=certificate, **acts)
        assert self.store.commit(decision, snapshot, term=lease.term, now_s=now_s).committed

    def agent(self, bandwidth="1G"):
        command = ["agent", "--host", "n1", "--site", "north", "--url", self.url, "--interval", "1"]
        command += ["--cache", str(self.folder / "cache"), "--datasets", str(self.folder / "sets")]
        command += ["--budget", "64M", "--bandwidth", bandwidth]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
        process = subprocess.Popen([sys.executable, "-m", "phalanx.api.cli", *command], env=environment)
        self.agents.append(process)
        return process

    def cached(self):
        """Shards in the cache now."""
        return sum(entry.shards for entry in cache_inventory(self.folder / "cache"))

    def files(self):
        return {path.name: path.stat().st_ino for path in (self.folder / "cache" / "objects").glob("*.shard")}

    def told(self):
        """Shards that the service knows of."""
        return sum(entry.shards for entry in self.store.host("n1").cached)

    def close(self):
        for process in self.agents:
            process.kill()
            process.wait()
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_a_reserved_host_is_filled_whole_although_its_agent_is_killed_and_nothing_is_loaded_twice(world):
    world.plan()
    # Three shards a second: the agent is killed in the middle.
    first = world.agent(bandwidth="200K")
    until(lambda: world.cached() >= 2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    half = world.files()
    assert 2 <= len(half) < SHARDS
    world.agent()
    until(lambda: world.told() == SHARDS)
    full = world.files()
    assert {name: full[name] for name in half} == half, "what was there stays as it was"
    assert list((world.folder / "cache").rglob("*.part")) == []


@pytest.mark.slow
def test_a_plan_that_goes_takes_its_order_along(world):
    world.plan()
    process = world.agent(bandwidth="100K")
    until(lambda: world.cached() >= 1)
    world.commit(releases=("big",))
    # Four shards take 2.6 s together: after three still seconds nothing is under way, of the 26 s for all of them.
    until(lambda: still(world, 3.0), 60.0)
    assert 1 <= world.cached() < SHARDS
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def still(world, seconds):
    before = world.cached()
    time.sleep(seconds)
    return world.cached() == before
