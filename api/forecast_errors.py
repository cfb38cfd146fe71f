"""How far the forecasts made at submission were off, from the log."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from ..adapters.ports import StoredEvent
from . import schemas_rounds

LEAST_WAIT_S = 600
"""Shorter waits say nothing: any forecast of them is right to within a few minutes."""


class ForecastErrors:
    """Pairs each job's first forecast with its first plan."""

    def __init__(self) -> None:
        self._submitted_s: dict[str, int] = {}
        self._told_s: dict[str, int] = {}
        self._errors: list[tuple[int, int]] = []

    def feed(self, job: str, entry: StoredEvent, data: Mapping[str, Any]) -> None:
        """Takes the next entry about a job."""
        if entry.kind == "submitted":
            self._submitted_s[job] = entry.at_s
        elif entry.kind == "forecast" and isinstance(data.get("start_s"), int):
            self._told_s.setdefault(job, data["start_s"])
        elif entry.kind == "planned":
            submitted_s, told_s = self._submitted_s.pop(job, None), self._told_s.pop(job, None)
            if submitted_s is not None and told_s is not None and entry.at_s - submitted_s >= LEAST_WAIT_S:
                self._errors.append((abs(entry.at_s - told_s), entry.at_s - submitted_s))

    def view(self) -> schemas_rounds.ForecastErrorView | None:
        """The medians; None while no job that waited long has started."""
        if not self._errors:
            return None
        return schemas_rounds.ForecastErrorView(
            jobs=len(self._errors),
            median_error_s=round(statistics.median(error for error, _ in self._errors)),
            median_error_milli=round(statistics.median(error * 1000 / wait for error, wait in self._errors)),
        )
