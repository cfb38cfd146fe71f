"""Worlds from a trace with the queue that has built up: the trace is simulated once, and its fullest moments are kept.

The simulation has Phalanx's greedy decide alone, in a round every half hour at most. The states are kept in a folder
outside the repository, so that later commits are measured on the same ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from ..model import codec
from ..model.decision import Decision
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.solve import solve
from .overlay import DAY
from .real import Replayed
from .simulator import Options, simulate
from .traces import Choice, named
from .workload import Workload, runnable

INTERVAL_S = 1_800
DAYS = 3
OVERLAY_SEED = 1


def cache_folder() -> Path:
    """Where states are kept: $PHALANX_BENCH_CACHE, else phalanx-bench in the user's cache folder."""
    given = os.environ.get("PHALANX_BENCH_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "phalanx-bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A trace on so many of its hosts (None: all), at the moment of a day at which most GPUs are waited for.

    Seeds 0 to 2 are the three fullest days, all others the three after them.
    """

    trace: str
    hosts: int | None = None

    def __call__(self, seed: int, folder: Path, policy: Policy) -> Replayed:
        """The world of a seed. Raises InvalidInput where a file of the trace is missing."""
        workload = runnable(named(self.trace, folder, Choice(hosts=self.hosts, seed=OVERLAY_SEED)), policy)
        rank = seed if seed < DAYS else DAYS + seed % DAYS
        kept = [self._file(number) for number in range(2 * DAYS)]
        if not kept[rank].exists():
            _keep(fullest(workload, policy, 2 * DAYS), kept)
        start = codec.loads(kept[rank].read_text(encoding="utf-8"), Snapshot)
        return Replayed(workload, policy, start, f"{self.trace}-{len(workload.hosts)}-{seed}")

    def _file(self, rank: int) -> Path:
        return cache_folder() / f"{self.trace}-{self.hosts or 'all'}-{rank}.json"


class _GreedyAlone:
    """A guard that leaves time for the greedy, and for nothing that comes after it."""

    def __init__(self) -> None:
        self._left_s = inf

    def remaining_s(self) -> float:
        """Seconds left."""
        return self._left_s

    def lap(self, stage: str) -> None:
        """Told of the end of each stage."""
        if stage == "greedy":
            self._left_s = 0.0


@dataclass(slots=True)
class _Watched:
    """The greedy, and the fullest moment of each day that it saw."""

    best: dict[int, tuple[int, Snapshot]] = field(default_factory=dict)

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Decision:
        asked = sum(record.job.gpu_milli for record in snapshot.jobs if record.state is JobState.QUEUED)
        day = snapshot.now_s // DAY
        if asked > self.best.get(day, (-1, snapshot))[0]:
            self.best[day] = asked, snapshot
        greedy = _GreedyAlone()
        return solve(snapshot, policy, guard=greedy, lap=greedy.lap)


def fullest(workload: Workload, policy: Policy, days: int) -> list[Snapshot]:
    """The moment of each of so many days at which most GPUs are waited for, the fullest day first.

    Plans of gangs that drain are left out: the round makes them anew. Fewer days where the workload has no more.
    """
    watched = _Watched()
    simulate(workload, "greedy", watched, policy, Options(interval_s=INTERVAL_S, seed=OVERLAY_SEED))
    ranked = sorted(watched.best.items(), key=lambda entry: (-entry[1][0], entry[0]))
    return [replace(snapshot, reservations=()) for _, (_, snapshot) in ranked[:days]]


def _keep(states: list[Snapshot], files: list[Path]) -> None:
    """A workload of few days gives its last one for all that it lacks."""
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(codec.dumps(states[min(number, len(states) - 1)]), encoding="utf-8")
        partial.replace(file)
