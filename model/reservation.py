"""A drain reservation: hosts set aside for one starving gang."""

from __future__ import annotations

from dataclasses import dataclass

from . import check
from .ids import JobId, ReservationId
from .placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The plan for one gang: what its workers need is free at `planned_start_s` (seconds since the epoch).

    `broken` counts how often a higher level took it; `cause` says why it was moved later the last time, empty if never.
    """

    id: ReservationId
    job: JobId
    placement: Placement
    planned_start_s: int
    created_s: int
    broken: int = 0
    cause: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        check.name("id", self.id)
        check.integer("planned_start_s", self.planned_start_s, unit="s")
        check.integer("broken", self.broken, 0, 1000, "times")
