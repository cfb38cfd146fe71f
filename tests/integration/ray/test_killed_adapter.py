"""The adapter is killed after every single effect of a start and of a stop; its successor brings the gang to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.adapters.clock import SystemClock
from phalanx.adapters.ray import actors, compat, processes
from phalanx.adapters.ray.executor import RayExecutor, connect
from phalanx.adapters.ray.records import Records
from phalanx.model.event import GangReleased, GangRunning
from phalanx.model.ids import SiteId

pytestmark = [pytest.mark.ray, pytest.mark.slow]

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


class Killed(BaseException):
    """The adapter's process is gone."""


class Life:
    """One life of the adapter; it ends right after its `last` effect (0: never), in whatever thread that is."""

    def __init__(self, last: int = 0) -> None:
        self.effects: list[str] = []
        self.over = False
        self._last = last
        self._lock = threading.Lock()

    def effect(self, name: str) -> None:
        with self._lock:
            self.effects.append(name)
            if len(self.effects) == self._last:
                self.over = True
        self.breathe()

    def breathe(self) -> None:
        if self.over:
            raise Killed


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[[Life], None]:
    """Lets all effects on Ray and on the records go through a life."""
    effects = [(compat, "create_group"), (compat, "remove_group"), (actors, "start_runner"), (actors, "kill_actor")]
    real = {
        name: getattr(owner, name) for owner, name in (*effects, (actors, "call"), (Records, "put"), (Records, "drop"))
    }

    def counted(life: Life, name: str, counts: Callable[..., bool]) -> Callable[..., object]:
        def wrapped(*arguments: object, **named: object) -> object:
            life.breathe()
            result = real[name](*arguments, **named)
            if counts(*arguments):
                life.effect(name if name != "call" else str(arguments[1]))
            return result

        return wrapped

    def start(life: Life) -> None:
        for owner, name in effects:
            monkeypatch.setattr(owner, name, counted(life, name, lambda *_: True))
        monkeypatch.setattr(actors, "call", counted(life, "call", lambda _actor, method, *_: method != "status"))
        for name in ("put", "drop"):
            monkeypatch.setattr(Records, name, counted(life, name, lambda *_: True))

    return start


def test_at_every_effect(
    driver, make_intent, live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executor: RayExecutor, cluster
) -> None:
    identity = executor._cluster
    monkeypatch.setattr(compat, "connect", lambda _address, _namespace: identity)
    monkeypatch.setattr(compat, "disconnect", lambda: None)

    def attempt(last: int) -> Life:
        first, intent, term = Life(last), make_intent([(0, (0,)), (1, (0,))], WORK, grace_s=20), 1
        marks = tmp_path / "checkpoints" / intent.job.id
        life = first
        live(life)
        driver.events.clear()
        driver.intents = [intent]

        def goal() -> bool:
            life.breathe()
            running = driver.told(intent, GangRunning) and len(list(marks.glob("started-*"))) == 2
            if running and intent in driver.intents:
                driver.stop(intent)
            return driver.told(intent, GangReleased) is not None

        while driver.told(intent, GangReleased) is None:
            driver.executor = connect(cluster.address, SiteId("lab"), "test", data=tmp_path, clock=SystemClock())
            driver.executor.lead(term)
            try:
                driver.until(goal)
            except Killed:
                life, term = Life(), term + 1
                live(life)
        driver.executor.close()
        assert {path.name: path.read_text() for path in marks.iterdir()} == {
            "started-0": "x",
            "started-1": "x",
            "saved-0": "x",
            "saved-1": "x",
        }, f"killed after effect {last}: {life.effects}, {driver.events}"
        assert driver.intents == []
        assert executor.observe().gangs == ()
        assert processes.find(executor._space) == []
        return first

    whole = attempt(0).effects
    assert {"create_group", "start_runner", "free_port", "launch", "stop", "kill_actor", "remove_group"} <= set(whole)
    for last in range(1, len(whole) + 1):
        attempt(last)
    driver.executor = executor
