"""How long a simulated site takes, and what an attempt on it has come to."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.intent import Intent
from .heap import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a site takes, in seconds; `fetch_mib_s` is what one host loads from the object store, in MiB/s.

    A launch takes `launch_s` and up to `launch_jitter_s` more; a gang with nothing to save leaves after `stop_s`.
    """

    launch_s: int = 20
    launch_jitter_s: int = 20
    stop_s: int = 5
    clean_s: int = 10
    fetch_mib_s: int = 1_000
    cache_mib: int = 4 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One attempt on its hosts. `useful_s` is work that counts, once the attempt has ended.

    `launched_s` is when its hosts were its own, `warned_s` when it was told to stop, `leaves_s` when it then exits.
    """

    intent: Intent
    rank_count: int
    fails: bool
    launched_s: int = 0
    setup_s: int = 0
    speed_milli: int = 1000
    running_s: int | None = None
    ends_s: int = 0
    ended: bool = False
    generation: int = 0
    saved_s: int = 0
    useful_s: int = 0
    warned_s: int | None = None
    leaves_s: int | None = None

    @property
    def key(self) -> Key:
        """(job, attempt)."""
        return self.intent.job.id, self.intent.attempt

    @property
    def gpus(self) -> float:
        """GPUs that it holds, shares of cards included."""
        return self.intent.job.gpu_milli / 1000


@dataclass(slots=True, kw_only=True)
class Losses:
    """What was held and not used over a run, in GPU-seconds."""

    setup_gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    useful_gpu_s: float = 0.0
