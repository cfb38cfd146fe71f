"""The HTTP API and the pages as one FastAPI application."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from ..adapters.ports import Clock, Store
from ..model.policy import Policy
from . import engine, problems
from .auth import OriginCheck, TokenCheck
from .context import Context
from .forecasts import Forecasts
from .prestage import OpenOrders
from .routes import ROUTERS
from .schemas import ProblemShape
from .settings import Settings
from .summary import Tally
from .ui.render import environment
from .whys import Whys

SOLVE_GUARD_S = 120.0
"""Wall seconds after which POST /v1/solve answers with the best decision it has."""

_PROBLEM: dict[str, Any] = {"content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemShape"}}}}
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not a JSON document.", **_PROBLEM},
    401: {"description": "The token is missing or wrong.", **_PROBLEM},
    404: {"description": "No such job, host or round.", **_PROBLEM},
    422: {"description": "The request is wrong; `errors` says where, what, and what would be right.", **_PROBLEM},
    500: {"description": "A fault of the service; its log has the incident.", **_PROBLEM},
}


def create_app(
    settings: Settings,
    store: Store,
    policy: Policy,
    clock: Clock,
    *,
    solve: engine.Solver | None = None,
    admit: engine.Admitter = engine.admit,
) -> FastAPI:
    """The application over a store; it starts nothing and holds no truth of its own."""
    app = FastAPI(
        title="Phalanx",
        version=_version(),
        summary="Places training gangs on a shared, multi-site GPU fleet.",
        responses=_ERRORS,
        redoc_url=None,
    )
    app.state.context = Context(
        settings=settings,
        store=store,
        policy=policy,
        clock=clock,
        tally=Tally(store),
        forecasts=Forecasts(store, policy, clock),
        orders=OpenOrders(store, policy, clock),
        whys=Whys(store, policy),
        solve=solve or engine.guarded(SOLVE_GUARD_S),
        admit=admit,
    )
    app.state.templates = environment()
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(GZipMiddleware, minimum_size=4_096)
    app.add_middleware(TokenCheck, token=settings.token)
    app.add_middleware(OriginCheck, local_only=not settings.token)
    problems.install(app)
    _describe_problems(app)
    return app


def _describe_problems(app: FastAPI) -> None:
    """Adds the error document, which no route returns by type, to the OpenAPI schema."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        schema = original()
        schema["components"]["schemas"].setdefault("ProblemShape", ProblemShape.model_json_schema())
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _version() -> str:
    try:
        return version("phalanx")
    except PackageNotFoundError:
        return "0"
