"""Step times of each rank as JSON lines, where the host's agent finds them; and ranks that hold the others up."""

import json
import os
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from .step_timer import StepTime, summarise

FOLDER_VARIABLE = "PHALANX_REPORT_DIR"
VERSION = 1


class StepLog:
    """Appends a line to FOLDER/rank-RANK.jsonl every `every_s` seconds of steps, for a `StepTimer` to listen.

    A line holds job, attempt, host and rank as Phalanx sets them in the environment, the number of the last step, and
    the seconds since the last line in each part. A disk that takes no more must not stop training: then lines are left
    out, and `lost` counts them.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        every_s: float = 10.0,
        first_step: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._facts = {
            "job": os.environ.get("PHALANX_JOB", ""),
            "attempt": _number("PHALANX_ATTEMPT", 1),
            "host": os.environ.get("PHALANX_HOST") or socket.gethostname(),
            "rank": _number("RANK", 0),
            "world_size": _number("WORLD_SIZE", 1),
        }
        self.path = Path(folder) / f"rank-{self._facts['rank']:05d}.jsonl"
        self.lost = 0
        self._every_s, self._clock = every_s, clock
        self._step = first_step
        self._steps: list[StepTime] = []
        self._told_s = clock()

    @classmethod
    def from_env(cls, **options: Any) -> Self | None:
        """A log in the folder PHALANX_REPORT_DIR; None where it is not set."""
        folder = os.environ.get(FOLDER_VARIABLE)
        return cls(folder, **options) if folder else None

    def add(self, step: StepTime) -> None:
        """Notes a step."""
        self._step += 1
        self._steps.append(step)
        if self._clock() - self._told_s >= self._every_s:
            self.flush()

    def flush(self) -> None:
        """Writes what has not been written; harmless when repeated. Call it at the end of training."""
        self._told_s = self._clock()
        if not self._steps:
            return
        total = summarise(self._steps)
        parts = {name: round(getattr(total, name), 6) for name in ("wait_s", "compute_s", "checkpoint_s", "peers_s")}
        longest = round(max(step.total_s for step in self._steps), 6)
        line = {
            "version": VERSION,
            "at_s": round(self._told_s, 3),
            **self._facts,
            "step": self._step,
            "steps": total.steps,
            **parts,
            "longest_s": longest,
        }
        self._steps = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, json.dumps(line).encode() + b"\n")
            finally:
                os.close(descriptor)
        except OSError:
            self.lost += 1


def read_step_logs(folder: str | Path) -> list[dict[str, Any]]:
    """All lines of all ranks, by time; half a line at the end of a file, or one of another version, is left out."""
    lines = []
    for path in sorted(Path(folder).glob("rank-*.jsonl")):
        for text in path.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and line.get("version") == VERSION:
                lines.append(line)
    return sorted(lines, key=lambda line: (line["at_s"], line["rank"]))


def stragglers(lines: Iterable[dict[str, Any]], factor: float = 1.2) -> list[int]:
    """Ranks whose own time in a step (wait, compute, checkpoint) is `factor` times the median rank's or more.

    The time in which a rank waits for others does not count: a straggler is the one that is waited for.
    """
    own: dict[int, float] = defaultdict(float)
    steps: dict[int, int] = defaultdict(int)
    for line in lines:
        own[line["rank"]] += line["wait_s"] + line["compute_s"] + line["checkpoint_s"]
        steps[line["rank"]] += line["steps"]
    per_step = {rank: own[rank] / steps[rank] for rank in own if steps[rank]}
    if len(per_step) < 2:
        return []
    median = statistics.median(per_step.values())
    return sorted(rank for rank, seconds in per_step.items() if median > 0 and seconds >= factor * median)


def _number(variable: str, default: int) -> int:
    try:
        return int(os.environ.get(variable, default))
    except ValueError:
        return default
