"""How CP-SAT is asked to search: the strategies of the exact stages, each on one thread and so deterministic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Prepare = Callable[[Any], None]
"""Sets a solver's parameters."""


def max_lp(parameters: Any) -> None:
    """One strategy that branches on the LP: tight bounds, quick proofs."""
    parameters.subsolvers.append("max_lp")
    parameters.cp_model_probing_level = 0
    parameters.symmetry_level = 0


def quickly(parameters: Any) -> None:
    """The same where most of the time is spent before the search begins: presolved once, and never simplified again."""
    max_lp(parameters)
    parameters.max_presolve_iterations = 1
    parameters.inprocessing_dtime_ratio = 0.0
    parameters.inprocessing_probing_dtime = 0.0
    parameters.inprocessing_minimization_dtime = 0.0


def portfolio(parameters: Any) -> None:
    """All strategies and neighbourhood searches in turn, on one thread and so deterministic."""
    parameters.interleave_search = True
