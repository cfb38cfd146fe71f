"""The adapter's loop and its watchdog."""

from __future__ import annotations

import threading
from pathlib import Path

from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.adapters.fakes.executor import FakeExecutor
from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.ray.process import WATCHDOG_EXIT, Watchdog, run_adapter
from phalanx.model.errors import StaleTerm
from phalanx.model.event import Event
from phalanx.model.ids import JobId, SiteId
from phalanx.model.intent import GangPhase, Observation, ObservedGang


def test_the_watchdog_ends_a_process_that_hangs(capsys) -> None:
    ended = threading.Event()
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    Watchdog(0.05, end)
    assert ended.wait(10)
    assert codes == [WATCHDOG_EXIT]
    assert "did not return in 0.05 s" in capsys.readouterr().err


def test_a_closed_watchdog_is_quiet() -> None:
    codes: list[int] = []
    watchdog = Watchdog(0.05, codes.append)
    watchdog.close()
    assert not threading.Event().wait(0.3)
    assert codes == []


def test_the_lease_is_taken_told_and_given_back() -> None:
    clock, store = VirtualClock(1000), MemoryStore()
    executor = FakeExecutor(clock, ())
    run_adapter(
        site="s",
        store=store,
        executor=executor,
        clock=clock,
        holder="a",
        log_dir=Path("/nonexistent"),
        stop=lambda: clock.now_s() >= 1005,
    )
    assert executor.term > 0
    assert store.acquire("adapter:s", "b", ttl_s=10, now_s=1005) is not None


def test_an_overtaken_adapter_stops_at_once_and_asks_for_the_lease_again() -> None:
    clock, store = VirtualClock(1000), MemoryStore()
    applied: list[object] = []
    terms: list[int] = []

    class Overtaken(FakeExecutor):
        def lead(self, term: int) -> None:
            terms.append(term)

        def observe(self) -> Observation:
            gangs = (ObservedGang(job=JobId(name), attempt=1, phase=GangPhase.RUNNING) for name in ("a", "b"))
            return Observation(gangs=tuple(gangs))

        def apply(self, instruction: object) -> tuple[Event, ...]:
            applied.append(instruction)
            raise StaleTerm("overtaken")

    stops = iter((False, True))
    run_adapter(
        site=SiteId("s"),
        store=store,
        executor=Overtaken(clock, ()),
        clock=clock,
        holder="a",
        log_dir=Path("/nonexistent"),
        stop=lambda: next(stops),
    )
    assert len(applied) == 1
    assert len(terms) == 1
