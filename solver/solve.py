"""`solve`: one scheduling round, pure. Reduce, greedy, exact stages, decode, reprieve, reasons."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.decision import Certificate, Decision, Grain, Stage
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .bound import judge, uppers
from .classes import Instance, TooLarge, reduce
from .collector import paused_collector
from .demand import candidates
from .evict import greedy_plan
from .exact import Candidate, Lap, candidate, is_large, search
from .exchange import exchange
from .explain import reasons
from .grow import grown
from .guard import Guard, Unlimited
from .kernel import WAITING, kernel
from .later import NO_PLANS, Plans, plans
from .lp_bound import lp_bounds
from .prefetch import prefetches
from .sizes import settled
from .stages import Outcome

_FEWEST_COLUMNS = 4_000
"""Exact models of at most this many columns are counted before they are called too large."""

_WRITTEN_S = 0.0001
"""Seconds in which a column is surely written into a model, with its rows."""


@paused_collector()
def solve(snapshot: Snapshot, policy: Policy, *, guard: Guard | None = None, lap: Lap = lambda stage: None) -> Decision:
    """Chooses which gangs start where.

    Pure: the same snapshot and policy give the same decision, unless `guard` (a wall-clock deadline from outside) cuts
    the search short; the certificate then says `deadline`. The best verified decision so far is returned at any rate.
    `lap` is told of the end of each stage: reduce, greedy, encode, exact, decode, bounds, reasons.
    """
    guard, snapshot = guard or Unlimited(), settled(snapshot)
    instance = _reduced(snapshot, policy)
    drains = NO_PLANS if instance is None else plans(instance)
    lap("reduce")
    best = candidate(
        Stage.GREEDY, exchange(snapshot, policy, greedy_plan(snapshot, policy, guard), guard), snapshot, policy
    )
    lap("greedy")
    starting = candidates(snapshot) if instance is None else [gang.record for gang in instance.gangs]
    startable = frozenset(record.id for record in starting)
    anything = bool(startable or drains.gangs or (instance is not None and instance.returns))
    known = None if instance is None else drains
    returning = None if instance is None else frozenset(gang.record.id for gang in instance.returns)
    limits = uppers(snapshot, policy, startable, known, returning)
    outcome, size, grain = Outcome(), (0, 0), Grain.SINGLETONS
    if anything and (instance is None or instance.columns + drains.columns > policy.solve.exact_columns):
        best, outcome, size = _in_kernel(snapshot, policy, best, limits, guard, lap)
        grain = Grain.KERNEL if size[0] else grain
    elif instance is not None and anything:
        best, outcome, size = _whole(instance, drains, best, limits, guard, lap)
        grain = Grain.MERGED if is_large(instance, drains) and size[0] else grain
    lap("exact")
    bounds = _bounds(best, outcome, limits)
    if outcome.stopped and guard.remaining_s() > 0:
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
        certificate=Certificate(
            stage=best.stage if anything else Stage.NOTHING_TO_DO,
            grain=grain,
            budget_ms=policy.solve.budget_ms,
            spent_ms=outcome.spent_ms,
            seed=policy.solve.seed,
            columns=size[0],
            rows=size[1],
            goals_solved=sum(result.solved for result in outcome.results),
            stopped=outcome.stopped,
        ),
    )


def _reduced(snapshot: Snapshot, policy: Policy) -> Instance | None:
    """The round at the singleton grain; None where it is too large for the exact model beyond doubt."""
    try:
        return reduce(snapshot, policy, most=max(_FEWEST_COLUMNS, policy.solve.exact_columns))
    except TooLarge:
        return None


def _affordable(columns: int, guard: Guard) -> bool:
    """Whether the model is surely written before the deadline."""
    return guard.remaining_s() > columns * _WRITTEN_S


def _whole(
    instance: Instance, drains: Plans, best: Candidate, limits: Sequence[int], guard: Guard, lap: Lap
) -> tuple[Candidate, Outcome, tuple[int, int]]:
    """As `_search`; nothing where there is no time to write the model."""
    if not _affordable(instance.columns + drains.columns, guard):
        return best, Outcome(stopped="deadline"), (0, 0)
    return search(instance, drains, best, limits, guard, lap)


def _in_kernel(
    snapshot: Snapshot, policy: Policy, best: Candidate, limits: Sequence[int], guard: Guard, lap: Lap
) -> tuple[Candidate, Outcome, tuple[int, int]]:
    """The better of the plan at hand and the kernel's; what was spent, and the size of its model. It bounds nothing."""
    nothing = best, Outcome(stopped="columns"), (0, 0)
    if not policy.solve.exact_columns or not _affordable(WAITING * len(candidates(snapshot)), guard):
        return nothing
    instance, drains = kernel(snapshot, policy, best.plan, policy.solve.exact_columns)
    columns = instance.columns + drains.columns
    if columns > policy.solve.exact_columns or not _affordable(columns, guard):
        return nothing
    best, outcome, size = search(instance, drains, best, limits, guard, lap, alike=False)
    return best, Outcome(stopped="columns", spent_ms=outcome.spent_ms), size


def _bounds(best: Candidate, outcome: Outcome, limits: Sequence[int]) -> list[int]:
    """A valid bound for each goal of the decision.

    The exact stage bounds goal k given the values it froze for the goals before; these bounds hold for the decision
    up to and including the first goal on which the decision differs from what was frozen. Behind that, and where no
    stage came, only what no decision can exceed holds.
    """
    bounds = list(limits)
    for number, (result, value) in enumerate(zip(outcome.results, best.values, strict=False)):
        bounds[number] = min(limits[number], result.bound)
        if result.value != value.value:
            break
    return bounds
