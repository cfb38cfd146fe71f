"""Who may call: with a token set, everything but the health checks needs it; foreign web pages may never write."""

from __future__ import annotations

import base64
import binascii
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .problems import Problem
from .settings import is_loopback

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


class OriginCheck:
    """Refuses what a browser sends on behalf of a page of another site.

    A service on loopback needs no token, but any web page that its user opens can send requests there: to write, or,
    by a name that it points to 127.0.0.1, to read too. `local_only` lets through only names of this machine.
    """

    def __init__(self, app: ASGIApp, local_only: bool) -> None:
        self._app = app
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        fault = self._fault(scope) if scope["type"] == "http" else ""
        if not fault:
            await self._app(scope, receive, send)
            return
        await Problem(403, fault).response(scope["path"])(scope, receive, send)

    def _fault(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        host = _host(f"//{headers.get('host', '')}")
        if self._local_only and host and not is_loopback(host):
            return f"this service has no token and answers to names of its own machine only, not to {host!r}"
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and foreign:
            return f"a page of {origin} may not change anything here"
        return ""


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return address
