"""Who may call: with a token set, everything but the health checks needs it."""

from __future__ import annotations

import base64
import binascii
import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .problems import Problem

_OPEN = ("/healthz", "/readyz")
_HINT = "send the service's token as 'Authorization: Bearer TOKEN'"


class TokenCheck:
    """Lets requests through that carry the token.

    Programs send it as a bearer token. A browser may send it as the password of basic authentication, to read only:
    browsers add that by themselves, so a foreign page could otherwise make them write.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or not self._token or scope["path"] in _OPEN or self._allowed(scope):
            await self._app(scope, receive, send)
            return
        scheme = "Bearer" if scope["path"].startswith("/v1/") else 'Basic realm="Phalanx (any name, token as password)"'
        problem = Problem(401, f"no valid token; {_HINT}", headers={"WWW-Authenticate": scheme})
        await problem.response(scope["path"])(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        scheme, _, value = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._equal(value.strip().encode())
        if scheme.lower() == "basic" and scope["method"] in ("GET", "HEAD"):
            try:
                _, _, password = base64.b64decode(value, validate=True).partition(b":")
            except (binascii.Error, ValueError):
                return False
            return self._equal(password)
        return False

    def _equal(self, given: bytes) -> bool:
        return hmac.compare_digest(given, self._token)
