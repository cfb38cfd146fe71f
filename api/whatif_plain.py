"""A comparison as plain values: what the API answers, the page shows and the command line prints."""

from __future__ import annotations

from typing import Any

from ..model.codec import encode
from ..solver.forecast import Forecast
from ..solver.whatif import Comparison, JobChange
from .forecast_words import sentence


def plain(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON values: both sides, how many jobs fare how, and every job with its starts in words."""
    now_s = comparison.now_s
    return {
        "now_s": now_s,
        "today": {**_full(comparison.today), "allocation_milli": comparison.today.allocation_milli},
        "then": {**_full(comparison.then), "allocation_milli": comparison.then.allocation_milli},
        "verdicts": {str(name): number for name, number in sorted(comparison.verdicts.items())},
        "jobs": [_job(entry, now_s) for entry in comparison.jobs],
    }


def room_rows(seen: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Each standard gang and type, and how many could still start today and then; "-" where there are no such GPUs."""
    counts = [{_gang(room): str(room["count"]) for room in seen[side]["room"]} for side in ("today", "then")]
    today, then = counts
    return [(name, today.get(name, "-"), then.get(name, "-")) for name in dict.fromkeys([*today, *then])]


def _gang(room: dict[str, Any]) -> str:
    gang = room["gang"]
    return f"{gang['workers']} x {gang['gpus']} {room['gpu_type']} in one {gang['layer']}"


def _full(value: Any) -> Any:
    """As `encode`, but with every field, so that a reader of the answer need not know defaults."""
    if isinstance(value, tuple):
        return [_full(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _full(getattr(value, name)) for name in value.__dataclass_fields__}
    return encode(value)


def _job(entry: JobChange, now_s: int) -> dict[str, Any]:
    return {
        "job": entry.job,
        "verdict": str(entry.verdict),
        "today": _side(entry.today, now_s),
        "then": _side(entry.then, now_s),
    }


def _side(entry: Forecast | None, now_s: int) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {
        "start_s": entry.start_s,
        "basis": str(entry.basis),
        "why": None if entry.why is None else str(entry.why),
        "sentence": sentence(entry, now_s),
    }
