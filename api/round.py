"""One scheduling round over a store: no thread, no sleep, no clock but the port's; the simulator drives it too."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..adapters.ports import Clock, RoundRecord, StageTime, Store
from ..model.decision import Certificate, Decision, Grain, Reason, Stage
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.collector import paused_collector
from . import engine

KEEP_EVERY_S = 60
"""A round that decides nothing new is recorded at most this often, in seconds."""

log = logging.getLogger(__name__)
Report = Callable[[Snapshot, Decision | None, tuple[str, ...]], None]


@dataclass(slots=True)
class Stopwatch:
    """Wall time of the stages of one round; for the record only, nothing is decided by it."""

    times: list[StageTime] = field(default_factory=list)
    _since: float = field(default_factory=time.perf_counter)

    def lap(self, stage: str) -> None:
        """Ends a stage."""
        now = time.perf_counter()
        self.times.append(StageTime(stage=stage, milliseconds=round((now - self._since) * 1000)))
        self._since = now


@paused_collector()
def run_round(
    store: Store,
    policy: Policy,
    clock: Clock,
    term: int,
    *,
    solver: engine.Solver = engine.solve,
    verifier: engine.Verifier = engine.verify,
    report: Report | None = None,
    previous: RoundRecord | None = None,
) -> RoundRecord:
    """Sweeps, looks, decides, verifies, commits and records; raises StaleTerm when another scheduler leads.

    `report` is told of each decision that broke a rule. A round that changes nothing and leaves what `previous` left
    is not stored; its record then has number 0.
    """
    watch = Stopwatch()
    now_s = clock.now_s()
    store.sweep(now_s)
    watch.lap("sweep")
    snapshot = store.snapshot(now_s)
    watch.lap("snapshot")
    decision, violations = _decide(snapshot, policy, solver, verifier, report, watch)
    outcome = "violation" if violations else "nothing"
    conflicts: tuple[str, ...] = ()
    if _changes_something(decision, snapshot):
        committed = store.commit(decision, snapshot, term=term, now_s=now_s)
        outcome, conflicts = ("committed" if committed.committed else "conflict"), committed.conflicts
        watch.lap("commit")
    record = RoundRecord(
        number=0,
        at_s=now_s,
        outcome=outcome,
        decision=decision,
        snapshot=snapshot,
        times=tuple(watch.times),
        violations=(*violations, *(f"{row} changed since the snapshot" for row in conflicts)),
    )
    if not _worth_keeping(record, previous):
        return record
    return replace(record, number=store.record_round(record))


def _decide(
    snapshot: Snapshot,
    policy: Policy,
    solver: engine.Solver,
    verifier: engine.Verifier,
    report: Report | None,
    watch: Stopwatch,
) -> tuple[Decision, tuple[str, ...]]:
    """The solver's decision, or the greedy one where that breaks a rule, or none at all where both do."""
    told: list[str] = []
    greedy = replace(policy, solve=replace(policy.solve, exact_columns=0))
    for attempt in (policy, greedy):
        decision, violations = _try(snapshot, attempt, solver, verifier, watch)
        if decision is not None and not violations:
            return decision, tuple(told)
        told.extend(violations)
        log.error("a decision was dropped: %s", "; ".join(violations))
        if report is not None:
            report(snapshot, decision, violations)
    return _nothing(snapshot, policy), tuple(told)


def _try(
    snapshot: Snapshot, policy: Policy, solver: engine.Solver, verifier: engine.Verifier, watch: Stopwatch
) -> tuple[Decision | None, tuple[str, ...]]:
    try:
        decision = solver(snapshot, policy)
        watch.lap("solve")
        violations = verifier(snapshot, policy, decision)
        watch.lap("verify")
    except Exception as fault:
        # A bug of the solver must not stop the fleet: the round goes on with what is left.
        log.exception("the solver failed")
        return None, (f"the solver failed: {type(fault).__name__}: {fault}",)
    return decision, tuple(str(violation.message) for violation in violations)


def _nothing(snapshot: Snapshot, policy: Policy) -> Decision:
    certificate = Certificate(
        stage=Stage.NOTHING_TO_DO,
        grain=Grain.SINGLETONS,
        budget_ms=policy.solve.budget_ms,
        spent_ms=0,
        seed=policy.solve.seed,
    )
    return Decision(snapshot_version=snapshot.version, now_s=snapshot.now_s, certificate=certificate)


def _changes_something(decision: Decision, snapshot: Snapshot) -> bool:
    return bool(
        decision.starts
        or decision.preemptions
        or any(promise not in snapshot.reservations for promise in decision.reservations)
        or decision.releases
        or decision.resizes
        or decision.rejections
    )


def _worth_keeping(record: RoundRecord, previous: RoundRecord | None) -> bool:
    if record.outcome != "nothing":
        return True
    told = {reason.job: _gist(reason) for reason in record.decision.waiting}
    if previous is None:
        return bool(told) or _queued(record)
    before = {reason.job: _gist(reason) for reason in previous.decision.waiting}
    if told != before:
        return True
    return bool(told) and record.at_s - previous.at_s >= KEEP_EVERY_S


def _gist(reason: Reason) -> Reason:
    """The reason without times that run on by themselves."""
    if reason.unit != "s" and reason.planned_in_s is None:
        return reason
    still = replace(reason, planned_in_s=None, helps=(), sentence="")
    return replace(still, asked=0, available=0) if reason.unit == "s" else still


def _queued(record: RoundRecord) -> bool:
    jobs = record.snapshot.jobs if record.snapshot else ()
    return any(job.state is JobState.QUEUED for job in jobs)
