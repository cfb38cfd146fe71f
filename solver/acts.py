"""What of a decision the goals count: starts at their sizes, victims, and the returns of named jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ..model.decision import Resize, Start
from ..model.ids import JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import candidates, victims
from .returning import NOBODY, returners
from .sizes import as_started

Placed = tuple[JobRecord, Start | Resize]
"""A job as it is at the size it comes with, and the act that brings it."""


@dataclass(frozen=True, slots=True)
class Return:
    """A running job that returns: as it is, as it will be, and where."""

    record: JobRecord
    after: JobRecord
    act: Resize


@dataclass(frozen=True, slots=True)
class Acts:
    """What of a decision counts: starts at their sizes, victims, and the returns of named shrinkers and movers."""

    placed: list[Placed]
    leaving: list[JobRecord]
    shrinking: list[Return]
    moving: list[Return]


def acts_of(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    stopped: Collection[JobId],
    resizes: Sequence[Resize],
) -> Acts:
    """The acts that count; `stopped` are the jobs preempted."""
    first: dict[JobId, Start] = {start.job: start for start in reversed(starts)}
    placed: list[Placed] = [
        (replace(record, job=as_started(record, first[record.id].placement)), first[record.id])
        for record in candidates(snapshot)
        if record.id in first
    ]
    leaving = [record for record in victims(snapshot, policy) if record.id in stopped] if stopped else []
    back = {act.job: act for act in reversed(resizes)}
    named = returners(snapshot, policy) if back else NOBODY
    shrinking = [_return(record, back[record.id]) for record in named.shrinkers if record.id in back]
    moving = [_return(record, back[record.id]) for record in named.movers if record.id in back]
    return Acts(
        placed,
        leaving,
        [one for one in shrinking if one.after.job.workers < one.record.job.workers],
        [one for one in moving if one.after.job.workers == one.record.job.workers],
    )


def _return(record: JobRecord, act: Resize) -> Return:
    return Return(record, replace(record, job=as_started(record, act.placement)), act)


def where(placed: Iterable[Placed]) -> list[tuple[JobRecord, Placement]]:
    """The jobs with their new placements."""
    return [(record, act.placement) for record, act in placed]
