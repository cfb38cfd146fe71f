"""The real adapter process over a real database: SIGKILL at its effects, then started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.adapters.ray import compat
from phalanx.adapters.store.sql import SqlStore, open_store
from phalanx.model.decision import Certificate, Decision, Grain, Stage, Start
from phalanx.model.ids import SiteId, TeamId
from phalanx.model.job_state import JobState
from phalanx.model.team import Team
from phalanx.model.topology import Site

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ADAPTER = """
import os, signal, sys
from pathlib import Path
from phalanx.adapters.clock import SystemClock
from phalanx.adapters.ray import actors, compat
from phalanx.adapters.ray.executor import connect
from phalanx.adapters.ray.process import run_adapter
from phalanx.adapters.store.sql import open_store

url, address, data, last = sys.argv[1:]

def deadly(name, real):
    def wrapped(*arguments, **named):
        result = real(*arguments, **named)
        if last == name or (name == "call" and last == arguments[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapped

for owner, names in ((compat, ("create_group", "remove_group")), (actors, ("start_runner", "kill_actor", "call"))):
    for name in names:
        setattr(owner, name, deadly(name, getattr(owner, name)))
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
clock, store = SystemClock(), open_store(url)
executor = connect(address, "lab", "process", data=Path(data), clock=clock)
run_adapter(
    site="lab", store=store, executor=executor, clock=clock, holder=f"adapter-{os.getpid()}",
    log_dir=Path(data, "logs"), stop=lambda: bool(stopped), ttl_s=2,
)
executor.close()
store.close()
"""

WORK = """
import os, signal, sys, time
here = os.environ['PHALANX_CHECKPOINT_DIR']
os.makedirs(here, exist_ok=True)
def note(what):
    with open(f"{here}/{what}-{os.environ['RANK']}", 'a') as file: file.write('x')
signal.signal(signal.SIGTERM, lambda *_: (note('saved'), sys.exit(0)))
note('started')
while True: time.sleep(0.05)
"""


@pytest.fixture
def store(tmp_path: Path, hosts) -> Iterator[SqlStore]:
    store = open_store(f"sqlite:///{tmp_path}/phalanx.db")
    store.put_sites([Site(id=SiteId("lab"))])
    store.put_teams([Team(id=TeamId("t"))])
    for host in hosts:
        store.put_host(host, now_s=int(time.time()))
    yield store
    store.close()


def plan(store: SqlStore, intent) -> None:
    now_s = int(time.time())
    store.submit(intent.job, now_s=now_s)
    lease = store.acquire("scheduler", "loop", ttl_s=600, now_s=now_s)
    snapshot = store.snapshot(now_s)
    decision = Decision(
        snapshot_version=snapshot.version,
        now_s=now_s,
        starts=(Start(job=intent.job.id, attempt=1, placement=intent.placement),),
        certificate=Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1),
    )
    assert store.commit(decision, snapshot, term=lease.term, now_s=now_s).committed


def test_the_killed_process_is_started_again(cluster, executor, store: SqlStore, make_intent, tmp_path: Path) -> None:
    intent = make_intent([(0, (0,)), (1, (0,))], WORK, job="lives")
    plan(store, intent)
    marks = tmp_path / "data" / "checkpoints" / "lives"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}

    def life(last: str) -> subprocess.Popen[bytes]:
        arguments = (str(store.engine.url), cluster.address, str(tmp_path / "data"), last)
        return subprocess.Popen([sys.executable, "-c", ADAPTER, *arguments], env=environment)

    for last in ("create_group", "start_runner", "launch"):
        assert life(last).wait(timeout=60) == -signal.SIGKILL
    with life("stop") as process:
        deadline = time.monotonic() + 60
        while store.job("lives").state is not JobState.RUNNING or len(list(marks.glob("started-*"))) < 2:
            assert time.monotonic() < deadline, store.job("lives")
            time.sleep(0.1)
        store.cancel("lives", now_s=int(time.time()))
        assert process.wait(timeout=60) == -signal.SIGKILL
    for last in ("kill_actor", "remove_group"):
        assert life(last).wait(timeout=60) == -signal.SIGKILL
    with life("") as process:
        deadline = time.monotonic() + 60
        while store.job("lives").state is not JobState.CANCELLED:
            assert time.monotonic() < deadline, store.job("lives")
            time.sleep(0.1)
        process.terminate()
        assert process.wait(timeout=30) == 0

    assert {path.name: path.read_text() for path in marks.iterdir()} == {
        "started-0": "x",
        "started-1": "x",
        "saved-0": "x",
        "saved-1": "x",
    }
    assert store.intents(SiteId("lab")) == ()
    assert [group for group in compat.groups() if group.name.startswith("process/")] == []
    assert {host.state_cause for host in store.hosts()} == {""}
