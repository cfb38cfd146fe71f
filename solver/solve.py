"""`solve`: one scheduling round, pure. Greedy, reduce, exact stages, decode, reprieve, reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.decision import Certificate, Decision, Grain, Stage
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .admission import lent
from .bound import judge, uppers
from .classes import Instance, uppermost
from .collector import paused_collector
from .demand import candidates
from .evict import greedy_plan
from .exact import Candidate, Lap, candidate, is_large
from .exchange import exchange
from .explain import reasons
from .grow import grown
from .guard import Guard, Unlimited
from .in_turn import at_once, in_turn
from .later import NO_PLANS, plans
from .lp_bound import lp_bounds
from .outcome import Outcome
from .partly import in_part
from .prefetch import prefetches
from .reserve import Step, allows, beside, keeping, timed
from .sizes import least as smallest
from .sizes import settled

_FEWEST_COLUMNS = 4_000
"""Exact models of at most this many columns are counted before they are called too large."""


@paused_collector()
def solve(snapshot: Snapshot, policy: Policy, *, guard: Guard | None = None, lap: Lap = lambda stage: None) -> Decision:
    """Chooses which gangs start where.

    Pure: the same snapshot and policy give the same decision, unless `guard` (a wall-clock deadline from outside) cuts
    the search short; the certificate then says `deadline`. The best verified decision so far is returned at any rate.
    `lap` is told of the end of each stage: greedy, reduce, encode, exact, decode, bounds, reasons.
    """
    snapshot = settled(snapshot)
    guard = timed(guard or Unlimited(), snapshot, policy)
    best = candidate(
        Stage.GREEDY, exchange(snapshot, policy, greedy_plan(snapshot, policy, guard), guard), snapshot, policy
    )
    guard = beside(guard, best.plan)
    lap("greedy")
    # Without time for what comes behind it a reduced round is of no use.
    late = not allows(guard, Step.REDUCE, Step.REDUCE)
    instance, upper = (None, None) if late else _reduced(snapshot, policy)
    drains = NO_PLANS if instance is None else plans(instance)
    columns = 0 if instance is None else instance.columns + drains.columns
    lap("reduce")
    startable = _startable(snapshot, policy, instance, upper) if not late else _all(candidates(snapshot))
    anything = bool(startable or drains.gangs or (instance is not None and instance.returns))
    known = None if instance is None else drains
    returning = None if instance is None else frozenset(gang.record.id for gang in instance.returns)
    limits = uppers(snapshot, policy, startable, known, returning)
    outcome, size, grain = Outcome(stopped="deadline" if late and anything else ""), (0, 0), Grain.SINGLETONS
    before = keeping(guard, Step.DECODE)
    if instance is not None and anything and columns <= policy.solve.exact_columns and not is_large(columns):
        best, outcome, size, grain = at_once(instance, drains, best, limits, before, lap)
    elif instance is not None and anything and is_large(columns) and policy.solve.exact_columns:
        best, outcome, size, grain = in_turn(instance, drains, best, limits, before, lap)
    elif anything and not late:
        best, outcome, size, grain = in_part(snapshot, policy, upper, best, limits, before, lap)
    lap("exact")
    bounds = _bounds(best, outcome, limits)
    if _unbounded(best, outcome) and allows(guard, Step.BOUNDS):
        bounds = lp_bounds(snapshot, policy, best.plan, best.values, bounds)
    lap("bounds")
    plan, resizes = best.plan, best.plan.resizes or grown(snapshot, policy, best.plan)
    waiting = reasons(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes, guard)
    lap("reasons")
    return Decision(
        snapshot_version=snapshot.store_version,
        now_s=snapshot.now_s,
        starts=best.plan.starts,
        preemptions=best.plan.preemptions,
        resizes=resizes,
        reservations=best.plan.reservations,
        releases=best.plan.releases,
        prefetches=prefetches(snapshot, policy, best.plan.starts, best.plan.reservations, resizes),
        waiting=waiting,
        goals=judge(snapshot, policy, best.values, bounds),
        certificate=_certificate(policy, best.stage if anything else Stage.NOTHING_TO_DO, grain, outcome, size),
    )


def _certificate(policy: Policy, stage: Stage, grain: Grain, outcome: Outcome, size: tuple[int, int]) -> Certificate:
    return Certificate(
        stage=stage,
        grain=grain,
        budget_ms=policy.solve.budget_ms,
        spent_ms=outcome.spent_ms,
        seed=policy.solve.seed,
        columns=size[0],
        rows=size[1],
        goals_solved=sum(result.solved for result in outcome.results),
        stopped=outcome.stopped,
    )


def _reduced(snapshot: Snapshot, policy: Policy) -> tuple[Instance | None, tuple[Instance, int] | None]:
    """The round at the singleton grain; where that is surely too large, None and its highest levels."""
    upper = uppermost(snapshot, policy, max(_FEWEST_COLUMNS, policy.solve.exact_columns))
    return (upper[0], None) if upper is not None and upper[1] == 0 else (None, upper)


def _startable(
    snapshot: Snapshot, policy: Policy, instance: Instance | None, upper: tuple[Instance, int] | None
) -> frozenset[JobId]:
    """The candidates that might start if all left who may; of the highest levels more is known."""
    if instance is not None:
        return _all(gang.record for gang in instance.gangs)
    known, least = ((), None) if upper is None else (upper[0].gangs, upper[1])
    with lent(snapshot, policy) as admissions:
        others = [
            record
            for record in candidates(snapshot)
            if (least is None or record.level < least) and admissions.never_fits(smallest(record)) is None
        ]
    return _all((*(gang.record for gang in known), *others))


def _all(records: Iterable[JobRecord]) -> frozenset[JobId]:
    return frozenset(record.id for record in records)


def _unbounded(best: Candidate, outcome: Outcome) -> bool:
    """Whether some goal of a level was not sought to its end."""
    levels = sum("[" in value.name for value in best.values)
    return bool(outcome.stopped) and (
        len(outcome.results) < levels or not all(result.solved for result in outcome.results[:levels])
    )


def _bounds(best: Candidate, outcome: Outcome, limits: Sequence[int]) -> list[int]:
    """A valid bound for each goal of the decision.

    The exact stage bounds goal k over all decisions that attain at least what it froze for the goals before; these
    bounds hold for the decision up to and including the first goal of which it attains less. Behind that, and where
    no stage came, only what no decision can exceed holds.
    """
    bounds = list(limits)
    for number, (result, value) in enumerate(zip(outcome.results, best.values, strict=False)):
        bounds[number] = min(limits[number], result.bound)
        if value.value < result.value:
            break
    return bounds
