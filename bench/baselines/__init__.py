"""The schedulers that Phalanx is measured against, each written as well as its authors would."""

from __future__ import annotations

from collections.abc import Callable

from .backfill import Conservative, easy, easy_preempt
from .decision import Scheduler, decision_of
from .fgd import Fgd
from .fifo import RandomFit, best_fit, best_fit_preempt, fifo, first_fit
from .gavel import Gavel
from .partitioned import FifoPartitioned
from .slurm import Slurm

BASELINES: dict[str, Callable[[], Scheduler]] = {
    "fifo_partitioned": FifoPartitioned,
    "fifo": lambda: fifo,
    "first_fit": lambda: first_fit,
    "random": RandomFit,
    "best_fit": lambda: best_fit,
    "best_fit_preempt": lambda: best_fit_preempt,
    "easy": lambda: easy,
    "easy_preempt": lambda: easy_preempt,
    "conservative": Conservative,
    "slurm": Slurm,
    "slurm_preempt": lambda: Slurm(preempt=True),
    "fgd": Fgd,
    "gavel": Gavel,
}
"""A factory for each; every run takes a fresh one, since some keep state from round to round."""

__all__ = ["BASELINES", "Fgd", "FifoPartitioned", "Scheduler", "decision_of"]
