"""Where the workers of one attempt run."""

from __future__ import annotations

from dataclasses import dataclass

from . import check
from .ids import HostId


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlacement:
    """One worker on one host; `index` counts within its role, `gpus` are card indices of the host, rising."""

    role: str
    index: int
    host: HostId
    gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check.integer("index", self.index, 0, 100_000)
        check.ascending("gpus", self.gpus, "GPU indices")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Every worker of a gang, ordered by role (in the job's order), then index: global rank = position."""

    workers: tuple[WorkerPlacement, ...]

    @property
    def hosts(self) -> tuple[HostId, ...]:
        """The hosts used, each once, in order of their first rank."""
        return tuple(dict.fromkeys(worker.host for worker in self.workers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an attempt has come: work saved at the last checkpoint, in seconds, and when that was."""

    saved_work_s: int = 0
    last_checkpoint_s: int | None = None

    def __post_init__(self) -> None:
        check.integer("saved_work_s", self.saved_work_s, unit="s")
        check.optional_integer("last_checkpoint_s", self.last_checkpoint_s, unit="s")
