"""A comparison as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..whatif_plain import room_rows
from .tables import console, gpus, seconds, table

MOST_ROWS = 40


def show_whatif(seen: dict[str, Any]) -> None:
    """Prints both sides, then the jobs that fare differently."""
    out = console()
    out.print(table("After the round of now", ("", "today", "then"), _sides(seen), right=("today", "then")))
    fare = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in seen["verdicts"].items())
    out.print(f"Waiting jobs: {fare or 'none'}.")
    moved = [entry for entry in seen["jobs"] if entry["verdict"] != "same"]
    if moved:
        rows = [_job(entry) for entry in moved[:MOST_ROWS]]
        out.print(table("Jobs that fare differently", ("job", "fares", "today it", "then it"), rows))
    if len(moved) > MOST_ROWS:
        out.print(f"... and {len(moved) - MOST_ROWS} more; --json tells them all.")


def _sides(seen: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    today, then = seen["today"], seen["then"]
    yield "hosts", str(today["hosts"]), str(then["hosts"])
    yield "GPUs held", _held(today), _held(then)
    yield "allocation", _percent(today), _percent(then)
    yield "jobs that start now", str(today["starting"]), str(then["starting"])
    for name, key in (("mean wait", "mean_s"), ("median wait", "p50_s"), ("p90 wait", "p90_s")):
        yield name, seconds(today["waits"][key]), seconds(then["waits"][key])
    yield "no start in sight", str(today["waits"]["untold"]), str(then["waits"]["untold"])
    for gpu_type in sorted({use["gpu_type"] for side in (today, then) for use in side["types"]}):
        yield f"idle {gpu_type}", _idle(today, gpu_type), _idle(then, gpu_type)
    for name, now, later in room_rows(seen):
        yield f"room for {name}", now, later
    for name, key in (("cost per hour", "cost_milli"), ("cost of held GPUs", "held_cost_milli")):
        if today[key] is not None:
            yield name, _money(today[key]), _money(then[key])


def _held(side: dict[str, Any]) -> str:
    return f"{gpus(side['held_milli'])} of {gpus(side['capacity_milli'])}"


def _percent(side: dict[str, Any]) -> str:
    return f"{side['allocation_milli'] / 10:.1f} %"


def _idle(side: dict[str, Any], gpu_type: str) -> str:
    return gpus(sum(use["idle_milli"] for use in side["types"] if use["gpu_type"] == gpu_type))


def _money(milli: int) -> str:
    return f"{milli / 1_000:,.2f}"


def _job(entry: dict[str, Any]) -> tuple[str, str, str, str]:
    told = [entry[side]["sentence"] if entry[side] else "does not wait" for side in ("today", "then")]
    return entry["job"], entry["verdict"].replace("_", " "), told[0], told[1]
