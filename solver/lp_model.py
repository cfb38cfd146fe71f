"""A linear relaxation in whole numbers: maximise over columns between 0 and their upper bounds, under `<=` rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ortools.linear_solver import pywraplp

_PLACES = 44
"""Binary places that duals are rounded to: some are below one, and stand on coefficients of a billion."""


@dataclass(slots=True)
class LpModel:
    """Columns with upper bounds, and rows: sum of coefficient * column <= limit. Integers, so that nothing rounds."""

    uppers: list[int] = field(default_factory=list)
    rows: list[dict[int, int]] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)

    def column(self, upper: int) -> int:
        """A new column between 0 and `upper`; returns its number."""
        self.uppers.append(upper)
        return len(self.uppers) - 1

    def at_most(self, terms: Mapping[int, int], limit: int) -> None:
        """A new row."""
        self.rows.append({column: coefficient for column, coefficient in terms.items() if coefficient})
        self.limits.append(limit)

    def holds(self, point: Sequence[int]) -> bool:
        """Whether a point keeps all bounds and rows."""
        return all(0 <= value <= upper for value, upper in zip(point, self.uppers, strict=True)) and all(
            sum(coefficient * point[column] for column, coefficient in row.items()) <= limit
            for row, limit in zip(self.rows, self.limits, strict=True)
        )


class LpSolver:
    """GLOP over a model that only gains rows; each solve starts from the basis of the last."""

    def __init__(self, model: LpModel, effort: float) -> None:
        self._model = model
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._solver.SetSolverSpecificParametersAsString(f"max_deterministic_time: {effort}")
        self._columns = [self._solver.NumVar(0, upper, "") for upper in model.uppers]
        self._rows: list[pywraplp.Constraint] = []
        self._scales: list[float] = []

    def duals(self, objective: Mapping[int, int]) -> list[float] | None:
        """Duals of the rows at the maximum of the objective, as far as found; None where none were."""
        self._catch_up()
        goal = self._solver.Objective()
        goal.Clear()
        scale = float(max((abs(value) for value in objective.values()), default=1) or 1)
        for column, value in objective.items():
            goal.SetCoefficient(self._columns[column], value / scale)
        goal.SetMaximization()
        status = self._solver.Solve()
        if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
            return None
        return [max(0.0, row.dual_value()) * scale / own for row, own in zip(self._rows, self._scales, strict=True)]

    def _catch_up(self) -> None:
        model = self._model
        for number in range(len(self._rows), len(model.rows)):
            terms = model.rows[number]
            scale = float(max((abs(value) for value in terms.values()), default=1))
            row = self._solver.Constraint(-self._solver.infinity(), model.limits[number] / scale)
            for column, value in terms.items():
                row.SetCoefficient(self._columns[column], value / scale)
            self._rows.append(row)
            self._scales.append(scale)


def certified(model: LpModel, objective: Mapping[int, int], duals: Sequence[float]) -> int:
    """A whole number that the objective exceeds at no point of the model, whatever the duals are.

    For any y >= 0 on the rows: objective <= y * limits + sum over columns of upper * max(0, objective - y * rows). The
    duals are rounded to fractions first; all that follows is exact.
    """
    whole = [round(max(0.0, dual) * (1 << _PLACES)) for dual in duals]
    reduced = [0] * len(model.uppers)
    for column, value in objective.items():
        reduced[column] = value << _PLACES
    total = 0
    for dual, row, limit in zip(whole, model.rows, model.limits, strict=True):
        if dual:
            total += dual * limit
            for column, value in row.items():
                reduced[column] -= dual * value
    total += sum(value * upper for value, upper in zip(reduced, model.uppers, strict=True) if value > 0)
    return total >> _PLACES
