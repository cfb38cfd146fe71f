"""What every route needs, built once by `create_app` and handed to routes by FastAPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from ..adapters.ports import Clock, RoundRecord, Store
from ..model.policy import Policy
from . import engine
from .forecasts import Forecasts
from .prestage import OpenOrders
from .settings import Settings
from .summary import Tally
from .whys import Whys


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of the running API. `solve` and `admit` are the solver's, or stand-ins in tests."""

    settings: Settings
    store: Store
    policy: Policy
    clock: Clock
    tally: Tally
    forecasts: Forecasts
    orders: OpenOrders
    whys: Whys
    solve: engine.Solver
    admit: engine.Admitter

    def newest_round(self) -> RoundRecord | None:
        """The newest recorded round, or None before the first."""
        newest = self.store.rounds(limit=1)
        return newest[0] if newest else None


def _of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Ctx = Annotated[Context, Depends(_of)]
