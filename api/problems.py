"""Every error of the HTTP API as problem+json (RFC 9457), never a trace."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..model.errors import IllegalTransition, InvalidInput, NotFound, StaleTerm

MEDIA_TYPE = "application/problem+json"
log = logging.getLogger(__name__)


class Problem(Exception):
    """An answer other than success: HTTP status, what is wrong, and where."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str = "about:blank",
        errors: Sequence[dict[str, str]] = (),
        headers: dict[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.errors = tuple(errors)
        self.headers = headers
        self.extra = extra

    def response(self, instance: str = "") -> JSONResponse:
        """The problem document."""
        body: dict[str, Any] = {"type": self.kind, "title": _title(self.status), "status": self.status}
        body |= {"detail": self.detail, "instance": instance}
        if self.errors:
            body["errors"] = list(self.errors)
        return JSONResponse(body | self.extra, self.status, self.headers, media_type=MEDIA_TYPE)


def invalid(fault: InvalidInput, status: int = 422) -> Problem:
    """The problem of a wrong input: where, what, and what would be right."""
    kind = "urn:phalanx:malformed" if status == 400 else "urn:phalanx:invalid-input"
    where = {"path": fault.path, "problem": fault.problem, "expected": fault.expected}
    return Problem(status, str(fault), kind=kind, errors=[where])


def install(app: FastAPI) -> None:
    """Makes the app answer each fault with its problem."""

    async def known(request: Request, fault: Exception) -> JSONResponse:
        return problem_of(fault).response(request.url.path)

    for fault in (Problem, InvalidInput, NotFound, IllegalTransition, StaleTerm, HTTPException, RequestValidationError):
        app.add_exception_handler(fault, known)
    app.add_middleware(LastResort)


def problem_of(fault: Exception) -> Problem:
    """The problem that tells of an exception; 500 without details for one that nobody expected."""
    match fault:
        case Problem():
            return fault
        case InvalidInput():
            return invalid(fault)
        case NotFound():
            return Problem(404, str(fault) or "no such thing", kind="urn:phalanx:not-found")
        case IllegalTransition():
            return Problem(409, str(fault), kind="urn:phalanx:illegal-transition")
        case StaleTerm():
            return Problem(409, str(fault) or "the lease has passed to another", kind="urn:phalanx:stale-term")
        case RequestValidationError():
            return validation_problem(fault.errors())
        case HTTPException():
            headers = dict(fault.headers) if fault.headers else None
            return Problem(fault.status_code, _http_detail(fault), headers=headers)
        case _:
            return _unexpected(fault)


def _http_detail(fault: HTTPException) -> str:
    if fault.status_code == 404:
        return "there is no such address; GET /docs lists those that exist"
    if fault.status_code == 405:
        return "this address does not take that method; GET /docs lists what it takes"
    return str(fault.detail)


def validation_problem(faults: Sequence[Any]) -> Problem:
    """The problem of what pydantic refused, each fault with its path."""
    errors = [
        {"path": _path(fault["loc"]), "problem": str(fault["msg"]), "expected": _expected(fault)} for fault in faults
    ]
    detail = "; ".join(f"{error['path']}: {error['problem']}" for error in errors[:3])
    return Problem(422, detail, kind="urn:phalanx:invalid-input", errors=errors)


def _path(location: Sequence[Any]) -> str:
    return ".".join(str(part) for part in location if part not in ("body", "query", "path", "header"))


def _expected(fault: Any) -> str:
    context = fault.get("ctx") or {}
    return ", ".join(f"{name} {value}" for name, value in context.items() if isinstance(value, str | int))


def _unexpected(fault: Exception) -> Problem:
    number = uuid.uuid4().hex[:12]
    log.error("request failed (incident %s)", number, exc_info=fault)
    detail = f"the service met a fault of its own; its log has it under incident {number}"
    return Problem(500, detail, kind="urn:phalanx:internal", incident=number)


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


class LastResort:
    """Turns what no handler caught into a 500 problem, as long as no answer has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except ClientDisconnect:
            # Nobody is left to answer; what the client sent in part was never acted on.
            return
        except Exception as fault:
            if begun or scope["type"] != "http":
                raise
            await _unexpected(fault).response(scope.get("path", ""))(scope, receive, send)
