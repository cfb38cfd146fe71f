"""The supervisor: restarts the dead with back-off, stops in order, and leaves nothing behind."""

import os
import sys
import time

import psutil
import pytest

from phalanx.api.supervisor import MARK, ChildSpec, Supervisor, kill_marked

SLEEPER = "import time; time.sleep(600)"
# Leaves a grandchild in a session of its own, as a daemon would.
PARENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def marked(instance):
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(instance) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


@pytest.fixture
def make(tmp_path):
    made = []

    def build(*specs):
        instance = f"test-{tmp_path.name}-{os.getpid()}"
        supervisor = Supervisor(specs=specs, environment=dict(os.environ), log_dir=tmp_path / "log", instance=instance)
        made.append(supervisor)
        return supervisor

    yield build
    for supervisor in made:
        supervisor.stop(lambda: True)


def spec(name, code, **more):
    return ChildSpec(name=name, argv=(sys.executable, "-c", code), **more)


def test_a_killed_child_comes_back_after_its_back_off(make):
    supervisor = make(spec("a", SLEEPER))
    supervisor.tend()
    child = supervisor.children[0]
    first = child.process.pid
    psutil.Process(first).kill()
    wait_until(lambda: not child.alive)
    supervisor.tend()
    assert child.process is None
    assert child.failures == 1
    wait_until(lambda: supervisor.tend() or child.alive)
    assert child.process.pid != first


def test_the_back_off_grows(make):
    supervisor = make(spec("a", "raise SystemExit(3)"))
    child = supervisor.children[0]
    delays = []
    for _ in range(3):
        child.not_before = 0.0
        supervisor.tend()
        wait_until(lambda: not child.alive)
        supervisor.tend()
        delays.append(child.not_before - time.monotonic())
    assert delays[0] < delays[1] < delays[2]
    assert child.failures == 3


def test_what_a_dead_child_started_dies_with_it(make):
    supervisor = make(spec("a", PARENT), spec("b", SLEEPER))
    supervisor.tend()
    wait_until(lambda: len(marked(supervisor.instance)) == 3)
    child, other = supervisor.children
    psutil.Process(child.process.pid).kill()
    wait_until(lambda: not child.alive)
    supervisor.tend()
    assert marked(supervisor.instance) == [other.process.pid]


def test_stop_leaves_nothing_behind(make, tmp_path):
    supervisor = make(spec("a", PARENT), spec("b", STUBBORN, grace_s=0.2))
    supervisor.tend()
    wait_until(lambda: (tmp_path / "log" / "b.log").read_text().startswith("up"))
    wait_until(lambda: len(marked(supervisor.instance)) == 3)
    supervisor.stop()
    assert marked(supervisor.instance) == []
    assert all(child.process is None for child in supervisor.children)


def test_a_child_waits_for_its_condition(make):
    there = []
    supervisor = make(spec("a", SLEEPER, ready=lambda: bool(there)))
    supervisor.tend()
    assert supervisor.children[0].process is None
    there.append(1)
    supervisor.tend()
    assert supervisor.children[0].alive


def test_a_mark_is_a_whole_name(make):
    supervisor = make(spec("adapter:a", SLEEPER), spec("adapter:ab", SLEEPER))
    supervisor.tend()
    assert kill_marked(f"{supervisor.instance}/adapter:a") == 1
    assert supervisor.children[1].alive


def test_what_needs_a_dead_child_is_started_anew(make):
    cleaned = []
    supervisor = make(
        spec("cluster", SLEEPER, clean_up=lambda: cleaned.append(1)),
        spec("adapter", SLEEPER, needs="cluster"),
        spec("api", SLEEPER),
    )
    supervisor.tend()
    cluster, adapter, api = supervisor.children
    before = [child.process.pid for child in supervisor.children]
    psutil.Process(before[0]).kill()
    wait_until(lambda: not cluster.alive)
    supervisor.tend()
    assert cleaned == [1]
    wait_until(lambda: supervisor.tend() or (cluster.alive and adapter.alive))
    assert adapter.process.pid != before[1]
    assert api.process.pid == before[2]
    assert adapter.failures == 0
