"""The scheduler's process: leads by a lease, runs a round every few seconds and at once when something happened."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..adapters.ports import Clock, Lease, RoundRecord, Store
from ..model import codec
from ..model.decision import Decision
from ..model.errors import StaleTerm
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from . import engine
from .eventlog import newest_number
from .round import Report, run_round

LEASE = "scheduler"
"""The lease of the leader; `readyz` looks at it."""

LEASE_TTL_S = 15
POLL_S = 0.1
GUARD_S = 10.0
"""Wall seconds in which a round is read, decided and committed, with the best it has; below the lease's life."""

QUIET = frozenset({"agent_report", "forecast", "gang_progress", "gang_reserved", "gang_running", "planned"})
"""Entries of the log after which nothing new can be placed, so that no round is due."""

MAX_DUMPS = 50
MOST_AT_ONCE = 3
log = logging.getLogger(__name__)


def run_loop(
    store: Store,
    policy: Policy,
    clock: Clock,
    *,
    holder: str,
    interval_s: int,
    replay_dir: Path,
    stop: Callable[[], bool],
    solver: engine.Solver | None = None,
    verifier: engine.Verifier = engine.verify,
) -> None:
    """Leads whenever the lease can be had, until `stop()`; stands by otherwise. `holder` names this process."""
    decide = partial(
        run_round,
        store,
        policy,
        clock,
        verifier=verifier,
        report=dump_to(replay_dir),
    )
    previous: RoundRecord | None = None
    seen = newest_number(store)
    lease: Lease | None = None
    conflicts = 0
    while not stop():
        lease = store.acquire(LEASE, holder, ttl_s=LEASE_TTL_S, now_s=clock.now_s())
        if lease is None:
            clock.sleep(1.0)
            continue
        try:
            record = decide(term=lease.term, previous=previous, solver=solver or engine.within(GUARD_S))
        except StaleTerm:
            log.warning("another scheduler leads now; standing by")
            continue
        previous = record if record.number else previous
        # A refused commit means that the world moved: look again at once, unless it is refused time after time.
        conflicts = conflicts + 1 if record.outcome == "conflict" else 0
        wait_s = 0.0 if 0 < conflicts <= MOST_AT_ONCE else float(interval_s)
        seen = wait_for_news(store, clock, seen, wait_s, stop)
    if lease is not None:
        store.release(lease)


def wait_for_news(store: Store, clock: Clock, seen: int, wait_s: float, stop: Callable[[], bool]) -> int:
    """Waits until the log has an entry that may let a job start, at most `wait_s`. Returns the log's newest number."""
    waited_s = 0.0
    while True:
        news = store.events(after=seen, limit=500)
        if news:
            seen = news[-1].number
        if waited_s >= wait_s or stop() or any(entry.kind not in QUIET for entry in news):
            return seen
        clock.sleep(POLL_S)
        waited_s += POLL_S


def dump_to(folder: Path) -> Report:
    """A report that writes snapshot and decision into the folder, for replay; at most 50 differing faults."""

    def report(snapshot: Snapshot, decision: Decision | None, violations: tuple[str, ...]) -> None:
        name = hashlib.sha256("\n".join(violations).encode()).hexdigest()[:12]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if len(list(folder.glob("*.snapshot.json"))) >= MAX_DUMPS:
                return
            (folder / f"{name}.snapshot.json").write_text(codec.dumps(snapshot))
            if decision is not None:
                (folder / f"{name}.decision.json").write_text(codec.dumps(decision))
            (folder / f"{name}.violations.txt").write_text("\n".join(violations) + "\n")
        except OSError as fault:
            log.error("the replay of a dropped decision could not be written: %s", fault)

    return report
