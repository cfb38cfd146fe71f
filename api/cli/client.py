"""The service as commands see it: plain values in and out, every failure a `Stop` with the right exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from ..settings import is_loopback
from .exit_codes import Exit, Stop

TIMEOUT_S = 30.0
_REFUSALS = {401, 403, 409, 412}


class Service:
    """The HTTP API at `url`. Raises Stop: 2 for what is wrong with the request, 3 unreachable, 4 refused."""

    def __init__(self, url: str, token: str = "", *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url.rstrip("/")
        host = urlsplit(url).hostname or ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            # A proxy of the environment is for other machines: on loopback it would only be in the way.
            self._client = httpx.Client(
                base_url=self._url, headers=headers, timeout=timeout_s, trust_env=not is_loopback(host)
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise Stop(Exit.BAD_INPUT, f"--url {url}: not an address ({error}); expected http://host:port") from None

    def get(self, path: str, **query: Any) -> Any:
        """The answer to GET, as plain values; parameters that are None are left out."""
        return self._ask("GET", path, params={key: value for key, value in query.items() if value is not None})

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The answer to POST, as plain values."""
        return self._ask("POST", path, json={} if body is None else body, headers=dict(headers or {}))

    def submit(self, body: Any, key: str) -> Any:
        """Submits under a client key: an answer that was lost on the way is asked for once more, safely."""
        try:
            return self._send("POST", "/v1/jobs", json=body, headers={"Idempotency-Key": key})
        except (httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError):
            return self.post("/v1/jobs", body, {"Idempotency-Key": key})

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            return self._send(method, path, **request)
        except (httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError) as error:
            raise self._unreachable(error) from None

    def _send(self, method: str, path: str, **request: Any) -> Any:
        try:
            answer = self._client.request(method, path, **request)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise Stop(Exit.BAD_INPUT, f"--url {self._url}: {error}; expected http://host:port") from None
        except (httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError):
            raise
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if answer.is_success:
            try:
                return answer.json()
            except ValueError:
                raise Stop(Exit.UNREACHABLE, f"{self._url} answers, but is no Phalanx service") from None
        raise _refusal(answer)

    def _unreachable(self, error: httpx.HTTPError) -> Stop:
        told = f"no answer from {self._url} ({error or type(error).__name__})"
        return Stop(Exit.UNREACHABLE, f"{told}; is `phalanx serve` running there? --url or PHALANX_URL names another")


def job_path(job: str, action: str = "") -> str:
    """The path of a job, whatever characters its name has."""
    return f"/v1/jobs/{quote(job, safe='')}{action and '/'}{action}"


def host_path(host: str, action: str = "") -> str:
    """The path of a host."""
    return f"/v1/hosts/{quote(host, safe='')}{action and '/'}{action}"


def _refusal(answer: httpx.Response) -> Stop:
    try:
        problem = answer.json()
        detail = str(problem.get("detail") or problem.get("title"))
        kind = str(problem.get("type", ""))
    except (ValueError, AttributeError):
        detail, kind = f"HTTP status {answer.status_code}", ""
    if answer.status_code >= 500:
        return Stop(Exit.UNREACHABLE, detail)
    if answer.status_code in _REFUSALS or kind.endswith("never-fits"):
        return Stop(Exit.REFUSED, detail)
    return Stop(Exit.BAD_INPUT, detail)
