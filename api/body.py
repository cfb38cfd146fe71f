"""Request bodies: read no further than their limit, and parsed strictly."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from ..model import codec
from ..model.errors import InvalidInput
from .problems import Problem, invalid, validation_problem

Shape = TypeVar("Shape", bound=BaseModel)
SMALL = 64 * 2**10
JOB = 2 * 2**20
SOLVE = 64 * 2**20


class JsonBody:
    """A dependency that gives the request's JSON as plain values, or answers 400, 413 or 415. `limit` in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    async def __call__(self, request: Request) -> Any:
        """Reads one body."""
        # Never guessed: a foreign web page can send a body of no type, or of three types that are not JSON, unasked.
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json" and not media.endswith("+json"):
            raise Problem(415, f"the body is {media or 'of no type'}; expected Content-Type: application/json")
        raw = await self._read(request)
        if not raw:
            raise Problem(400, "the body is empty; expected a JSON document", kind="urn:phalanx:malformed")
        try:
            return codec.parse_json(raw)
        except InvalidInput as fault:
            raise invalid(fault, 400) from None

    async def _read(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._limit:
            raise self._too_large()
        raw = bytearray()
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > self._limit:
                raise self._too_large()
        return bytes(raw)

    def _too_large(self) -> Problem:
        # The rest of the body is left unread, so the connection cannot be used again.
        return Problem(413, f"the body is larger than {self._limit} bytes", headers={"Connection": "close"})


def read_as(data: Any, shape: type[Shape]) -> Shape:
    """Plain values in the shape of a small request. Raises Problem 422 naming the path."""
    try:
        return shape.model_validate(data, strict=True)
    except ValidationError as fault:
        raise validation_problem(fault.errors()) from None


class OptionalJsonBody(JsonBody):
    """As `JsonBody`, but an empty body is an empty object."""

    async def __call__(self, request: Request) -> Any:
        """Reads one body."""
        if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
            return {}
        return await super().__call__(request)
