"""Hosts that die, runners that are killed, objects and processes that nobody wants."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.adapters.clock import SystemClock
from phalanx.adapters.ray import actors, compat, processes
from phalanx.adapters.ray.executor import RayExecutor
from phalanx.adapters.ray.names import Names
from phalanx.adapters.ray.records import Record
from phalanx.adapters.ray.specs import Folders
from phalanx.adapters.ray.waits import Waits
from phalanx.model.errors import StaleTerm
from phalanx.model.event import GangExited, GangReleased, GangRunning, GangStartFailed
from phalanx.model.ids import HostId, SiteId
from phalanx.model.intent import GangPhase, ReleaseGang, ReserveGang, StopGang

pytestmark = pytest.mark.ray

SITE = SiteId("lab")
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
SAVE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))
print('up', flush=True)
while True: time.sleep(0.05)
"""


def runner_name(intent, host: str) -> str:
    return Names(namespace="test", site=SITE).runner(intent.job.id, intent.attempt, HostId(host))


def all_up(driver, intent) -> bool:
    return all(driver.executor.logs(intent.job.id, 1, rank) for rank in range(len(intent.placement.workers)))


def test_a_dead_host_breaks_its_gangs_whole(driver, make_intent, cluster, hosts) -> None:
    """R4: Ray would keep what is left of the group on the surviving host and wait for another."""
    extra = replace(hosts[0], id=HostId("h3"))
    cluster.add_host(extra)

    def alive() -> bool:
        return any(seen.host == "h3" and seen.alive for seen in driver.executor.observe().hosts)

    driver.until(alive)
    intent = make_intent([(0, (0, 1)), (3, (0, 1))], SAVE)
    bystander = make_intent([(1, (0,))], SLEEP)
    driver.run(intent)
    driver.run(bystander)
    driver.until(lambda: all_up(driver, intent))
    cluster.kill_host(HostId("h3"))
    driver.until(lambda: driver.told(intent, GangReleased))

    assert driver.told(intent, GangExited).lost_host == "h3"
    assert driver.executor.logs(intent.job.id, 1, 0)[-1] == "saved"
    assert driver.phase(bystander) is GangPhase.RUNNING
    assert not alive()
    late = make_intent([(3, (0,))], "pass")
    driver.intents.append(late)
    driver.until(lambda: driver.told(late, GangReleased))
    assert driver.told(late, GangStartFailed).cause == "host h3 is not alive in the site's Ray cluster"
    cluster.add_host(extra)
    driver.until(alive)
    assert [group.name for group in compat.groups()] == [f"test/lab/{bystander.job.id}/1"]
    cluster.kill_host(HostId("h3"))


def test_a_killed_runner_breaks_the_gang_but_its_ranks_may_save(driver, make_intent) -> None:
    intent = make_intent([(0, (0,)), (1, (0,))], SAVE)
    driver.run(intent)
    driver.until(lambda: all_up(driver, intent))
    actors.kill_actor(actors.find_actor(runner_name(intent, "h1")))
    driver.until(lambda: driver.told(intent, GangReleased))

    assert driver.told(intent, GangExited).lost_host == "h1"
    assert driver.told(intent, GangExited).cause == "what runs the ranks on host h1 was lost"
    assert [driver.executor.logs(intent.job.id, 1, rank)[-1] for rank in (0, 1)] == ["saved", "saved"]


def test_exit_codes_outlive_the_runner(driver, make_intent) -> None:
    intent = make_intent([(0, (0,)), (1, (0,))], "import os, sys; sys.exit(7 * int(os.environ['RANK']))")
    driver.run(intent)
    driver.intents.clear()
    while driver.phase(intent) is not GangPhase.EXITED:
        pass
    for host in ("h0", "h1"):
        actors.kill_actor(actors.find_actor(runner_name(intent, host)))
    gang = driver.gang(intent)
    assert (gang.phase, [exit_.code for exit_ in gang.exits]) == (GangPhase.EXITED, [0, 7])


def test_what_nobody_wants_is_swept(driver, make_intent, tmp_path: Path) -> None:
    """R2: a running gang, a group without a record, and a process without either."""
    intent = make_intent([(0, (0,)), (1, (0,))], SLEEP)
    driver.run(intent)
    space = driver.executor._space
    # A second gang that exists only as a group, as if the adapter's folder had been lost.
    assert compat.create_group("test/lab/forgotten/3", [{"GPU": 1.0}], ["h2"], 5)
    stray = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(600)"],
        env={
            "PHALANX_NAMESPACE": space,
            "PHALANX_JOB": "stray",
            "PHALANX_ATTEMPT": "1",
            "PHALANX_HOST": "h2",
        },
    )
    driver.intents.clear()
    # Strays are looked for when an adapter starts.
    driver.executor._sight._searched.clear()
    driver.until(lambda: not driver.executor.observe().gangs)

    assert stray.wait(timeout=10) == -9
    assert compat.groups() == ()
    assert processes.find(space) == []
    assert [event for event in driver.events if isinstance(event, GangReleased)] == []


def test_a_group_left_half_made_is_driven_again(driver, make_intent) -> None:
    """The adapter was killed while the group was pending; meanwhile its cards were freed."""
    blocker = make_intent([(0, (0, 1, 2, 3))], SLEEP)
    driver.run(blocker)
    intent = make_intent([(0, (0, 1, 2, 3))], "pass")
    bundle = [{"GPU": 4.0, "CPU": 0.5, "memory": 64.0 * 2**20}]
    assert not compat.create_group(f"test/lab/{intent.job.id}/1", bundle, ["h0"], 0.1)
    assert driver.phase(intent) is GangPhase.RESERVING
    driver.stop(blocker, grace_s=0)
    driver.until(lambda: driver.told(blocker, GangReleased))
    driver.finish(intent)
    assert driver.told(intent, GangExited).exits[0].code == 0


def test_an_adapter_that_was_overtaken_is_refused(driver, make_intent) -> None:
    intent = make_intent([(0, (0,))], SLEEP)
    driver.executor.lead(5)
    driver.run(intent)
    driver.executor._term = 4
    with pytest.raises(StaleTerm):
        driver.executor.apply(StopGang(job=intent.job.id, attempt=1, grace_s=0))
    assert driver.phase(intent) is GangPhase.RUNNING
    driver.executor._term = 6


def test_releasing_what_is_not_there_is_fine(driver, make_intent) -> None:
    intent = make_intent([(0, (0,))], "pass")
    events = driver.executor.apply(ReleaseGang(job=intent.job.id, attempt=1, hosts=(HostId("h0"),)))
    assert [type(event) for event in events] == [GangReleased]
    first = driver.executor.apply(ReserveGang(intent=intent))
    assert [e.id for e in driver.executor.apply(ReserveGang(intent=intent))] == [e.id for e in first]


def test_something_of_others_in_ray_makes_the_host_suspect(driver) -> None:
    """R1: what Ray holds beyond our books is told until it is gone."""
    assert compat.create_group("somebody-else", [{"CPU": 2.0}], ["h2"], 5)

    def leaked() -> tuple[str, ...]:
        return next(seen.leaked for seen in driver.executor.observe().hosts if seen.host == "h2")

    driver.until(leaked)
    assert leaked() == ("Ray has 2 CPU in use, groups of ours hold 0 CPU",)
    compat.remove_group(next(group for group in compat.groups() if group.name == "somebody-else"))
    driver.until(lambda: not leaked())


def test_hosts_on_other_machines_are_asked_through_ray(
    driver, make_intent, tmp_path: Path, cluster, executor, monkeypatch
) -> None:
    """The same with no address taken for this machine: traces, sweeps and logs go through caretakers."""
    identity = executor._cluster
    monkeypatch.setattr(compat, "connect", lambda _address, _namespace: identity)
    monkeypatch.setattr(compat, "disconnect", lambda: None)
    away = tmp_path / "away"
    folders = Folders(logs=str(away / "{host}"), checkpoints=str(away), cache=str(away))
    driver.executor = far = RayExecutor(
        cluster.address,
        Names(namespace="test", site=SITE),
        folders=folders,
        state=tmp_path / "far",
        clock=SystemClock(),
        waits=Waits(answer_s=15),
        local=frozenset(),
    )
    intent = make_intent([(0, (0,)), (1, (0,))], "print('x' * 70000); print('end')")
    driver.mirror = mirror = tmp_path / "mirror"
    driver.finish(intent)
    assert [(mirror / intent.job.id / "1" / f"{rank}.log").read_text() for rank in (0, 1)] == [
        "x" * 70000 + "\nend\n"
    ] * 2
    assert driver.told(intent, GangRunning)
    running = make_intent([(1, (0,))], "print('on', flush=True); import time; time.sleep(600)")
    driver.run(running)
    driver.until(lambda: far.logs(running.job.id, 1, 0, tail=1) == ("on",))
    actors.kill_actor(actors.find_actor(runner_name(running, "h1")))
    driver.until(lambda: driver.told(running, GangReleased))
    assert driver.told(running, GangExited).lost_host == "h1"
    far.close()
    driver.executor = executor


def test_a_cluster_that_was_rebuilt_has_lost_the_attempts_of_the_old_one(driver, make_intent) -> None:
    """Nothing of them is in Ray, but they must not be started a second time under the same number."""
    intent = make_intent([(0, (0,)), (1, (0,))], "pass")
    cards = {HostId("h0"): (0,), HostId("h1"): (0,)}
    driver.executor._records.put(Record(job=intent.job.id, attempt=1, cluster="old", cards=cards, launched=True))
    driver.finish(intent)

    assert [type(event) for event in driver.events] == [GangExited, GangReleased]
    assert driver.told(intent, GangExited).lost_host == "h0"
    assert driver.told(intent, GangExited).cause == "the site's Ray cluster was rebuilt"
