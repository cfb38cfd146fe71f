"""The schedulers that Phalanx is measured against, each written as well as its authors would."""

from __future__ import annotations

from collections.abc import Callable

from .backfill import Conservative, easy
from .decision import Scheduler, decision_of
from .fgd import Fgd
from .fifo import RandomFit, best_fit, fifo, first_fit
from .gavel import Gavel
from .partitioned import FifoPartitioned
from .slurm import Slurm

BASELINES: dict[str, Callable[[], Scheduler]] = {
    "fifo_partitioned": FifoPartitioned,
    "fifo": lambda: fifo,
    "first_fit": lambda: first_fit,
    "random": RandomFit,
    "best_fit": lambda: best_fit,
    "easy": lambda: easy,
    "conservative": Conservative,
    "slurm": Slurm,
    "fgd": Fgd,
    "gavel": Gavel,
}
"""A factory for each; every run takes a fresh one, since some keep state from round to round."""

__all__ = ["BASELINES", "Fgd", "FifoPartitioned", "Scheduler", "decision_of"]
