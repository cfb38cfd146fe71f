"""A linear relaxation in whole numbers: maximise over columns between 0 and their upper bounds, under `<=` rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ortools.math_opt import (
    callback_pb2,
    model_parameters_pb2,
    model_pb2,
    model_update_pb2,
    parameters_pb2,
    solution_pb2,
    sparse_containers_pb2,
)
from ortools.math_opt.core.python import solver as core

_PLACES = 44
"""Binary places that duals are rounded to: some are below one, and stand on coefficients of a billion."""

_FEW_STEPS = 8
"""A solve of fewer steps than one in so many rows was easy: presolve makes the next one easier than its basis does."""


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
    """GLOP over a model that only gains rows; a solve may start from where the last one ended."""

    def __init__(self, model: LpModel, effort: float) -> None:
        self._model, self._effort = model, effort
        self._scales: list[float] = []
        self._solver: core.Solver | None = None
        self._basis: solution_pb2.BasisProto | None = None
        self._asked: frozenset[int] = frozenset()

    def duals(self, objective: Mapping[int, int]) -> list[float] | None:
        """Duals of the rows at the maximum of the objective, as far as found; None where none were."""
        scale = float(max((abs(value) for value in objective.values()), default=1) or 1)
        solver = self._caught_up({column: value / scale for column, value in sorted(objective.items())})
        parameters, start = parameters_pb2.SolveParametersProto(), model_parameters_pb2.ModelSolveParametersProto()
        parameters.glop.max_deterministic_time = self._effort
        if self._basis is not None:
            # What is presolved cannot start from a basis.
            parameters.glop.use_preprocessing = False
            start.initial_basis.CopyFrom(self._basis)
            known = len(self._basis.constraint_status.ids)
            start.initial_basis.constraint_status.ids.extend(range(known, len(self._scales)))
            more = [solution_pb2.BASIS_STATUS_BASIC] * (len(self._scales) - known)
            start.initial_basis.constraint_status.values.extend(more)
        result = solver.solve(parameters, start, None, callback_pb2.CallbackRegistrationProto(), None, None)
        if not result.solutions or not result.solutions[0].HasField("dual_solution"):
            return None
        steps = result.solve_stats.simplex_iterations
        self._basis = result.solutions[0].basis if steps > len(self._scales) // _FEW_STEPS else None
        found = [0.0] * len(self._scales)
        values = result.solutions[0].dual_solution.dual_values
        for row, value in zip(values.ids, values.values, strict=True):
            found[row] = max(0.0, value) * scale / self._scales[row]
        return found

    def _caught_up(self, objective: Mapping[int, float]) -> core.Solver:
        """The solver with all rows, and this objective in place of the last."""
        if self._solver is None:
            whole = self._columns()
            self._rows(whole.linear_constraints, whole.linear_constraint_matrix)
            whole.objective.linear_coefficients.ids.extend(objective)
            whole.objective.linear_coefficients.values.extend(objective.values())
            self._solver = core.new(parameters_pb2.SOLVER_TYPE_GLOP, whole, parameters_pb2.SolverInitializerProto())
        else:
            more = model_update_pb2.ModelUpdateProto()
            self._rows(more.new_linear_constraints, more.linear_constraint_matrix_updates)
            terms = more.objective_updates.linear_coefficients
            terms.ids.extend(sorted(self._asked.union(objective)))
            terms.values.extend(objective.get(column, 0.0) for column in terms.ids)
            self._solver.update(more)
        self._asked = frozenset(objective)
        return self._solver

    def _columns(self) -> model_pb2.ModelProto:
        whole, number = model_pb2.ModelProto(), len(self._model.uppers)
        whole.objective.maximize = True
        whole.variables.ids.extend(range(number))
        whole.variables.lower_bounds.extend([0.0] * number)
        whole.variables.upper_bounds.extend(self._model.uppers)
        whole.variables.integers.extend([False] * number)
        return whole

    def _rows(
        self, rows: model_pb2.LinearConstraintsProto, matrix: sparse_containers_pb2.SparseDoubleMatrixProto
    ) -> None:
        """Enters the rows that the model has gained, each divided by its largest coefficient."""
        at, columns, coefficients = [], [], []
        first, model = len(self._scales), self._model
        for number in range(first, len(model.rows)):
            terms = model.rows[number]
            scale = float(max((abs(value) for value in terms.values()), default=1))
            for column in sorted(terms):
                at.append(number)
                columns.append(column)
                coefficients.append(terms[column] / scale)
            self._scales.append(scale)
        rows.ids.extend(range(first, len(model.rows)))
        rows.lower_bounds.extend([-math.inf] * (len(model.rows) - first))
        rows.upper_bounds.extend(
            limit / scale for limit, scale in zip(model.limits[first:], self._scales[first:], strict=True)
        )
        matrix.row_ids.extend(at)
        matrix.column_ids.extend(columns)
        matrix.coefficients.extend(coefficients)


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
