"""What ranks report of themselves in files: where the time of their steps goes, and the checkpoints they saved.

A folder holds `rank-<rank>.jsonl` of each rank (lines of the step timer) and `saved.jsonl` (lines of the checkpoint
helper); docs/formats has both. Users' processes write them, so that whatever makes no sense is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPORTS = "reports"
"""The folder of an attempt's reports, inside the attempt's folder of logs."""

SAVED = "saved.jsonl"
VERSION = 1
MOST_RANKS = 4_096
_TAIL_BYTES = 64 * 2**10
_MICRO = 1_000_000
_PARTS = ("wait_s", "compute_s", "checkpoint_s", "peers_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """The latest steps of one rank, some minutes of them: times in microseconds over `steps` steps.

    `last_step` is the number of the newest step, `at_s` when it was told of (seconds since the epoch).
    """

    rank: int
    host: str
    steps: int
    wait_us: int
    compute_us: int
    checkpoint_us: int
    peers_us: int
    longest_us: int
    last_step: int
    at_s: int

    @property
    def own_us(self) -> int:
        """Time of a step without waiting for other ranks, whom a slow rank holds up."""
        return (self.wait_us + self.compute_us + self.checkpoint_us) // self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint that is durable: the work up to `at_s` (seconds since the epoch) is in it."""

    step: int
    at_s: int


def report_name(rank: int) -> str:
    """The file that the rank's step timer writes."""
    return f"rank-{rank:05d}.jsonl"


def read_steps(folder: Path) -> tuple[RankSteps, ...]:
    """The latest steps of each rank, by rank; empty where nothing was reported."""
    paths = sorted(folder.glob("rank-*.jsonl"))[:MOST_RANKS]
    found = (_rank_steps(path) for path in paths)
    return tuple(steps for steps in found if steps is not None)


def last_saved(folder: Path) -> Saved | None:
    """The newest checkpoint; None where none was told of."""
    newest = None
    for line in _lines(folder / SAVED):
        at_s, step = _number(line.get("at_s")), _number(line.get("step"))
        if at_s is not None and step is not None and (newest is None or at_s >= newest.at_s):
            newest = Saved(step=int(step), at_s=int(at_s))
    return newest


def _rank_steps(path: Path) -> RankSteps | None:
    try:
        rank = int(path.stem.removeprefix("rank-"))
    except ValueError:
        return None
    lines = [line for line in _lines(path) if _number(line.get("steps"))]
    parts = {name: sum(_number(line.get(name)) or 0 for line in lines) for name in _PARTS}
    steps = int(sum(_number(line.get("steps")) or 0 for line in lines))
    if steps < 1:
        return None
    last = lines[-1]
    return RankSteps(
        rank=rank,
        host=str(last.get("host", ""))[:200],
        steps=steps,
        **{name.replace("_s", "_us"): round(seconds * _MICRO) for name, seconds in parts.items()},
        longest_us=round(max(_number(line.get("longest_s")) or 0 for line in lines) * _MICRO),
        last_step=int(_number(last.get("step")) or 0),
        at_s=int(_number(last.get("at_s")) or 0),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects at the end of a file of JSON lines; half a line at either end of what is read is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES)
    except OSError:
        return
    for raw in text.splitlines():
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and line.get("version") == VERSION:
            yield line


def _number(value: object) -> float | None:
    """The value where it is a number that a clock or a counter can show."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if 0 <= value < 10**12 else None
