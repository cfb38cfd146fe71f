"""The command line in this process: its exit code and what it printed, against the app of the fixtures above."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from phalanx.api.cli.root import run


@dataclass(frozen=True)
class Outcome:
    """What one command line came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def bare(capsys, monkeypatch):
    """Runs a command line that talks to no service."""
    monkeypatch.delenv("PHALANX_URL", raising=False)
    monkeypatch.delenv("PHALANX_TOKEN", raising=False)

    def call(*argv: object) -> Outcome:
        capsys.readouterr()
        code = run([str(arg) for arg in argv])
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return Outcome(int(code), told.out, told.err)

    return call


@pytest.fixture
def phalanx(bare, app, monkeypatch):
    """Runs a command line against the app, without a socket."""

    class Wire:
        def __init__(self, *, base_url: str, headers: dict[str, str], **_: Any) -> None:
            self._options = {"base_url": base_url, "headers": headers}

        def request(self, method: str, path: str, **more: Any) -> httpx.Response:
            async def call() -> httpx.Response:
                transport = httpx.ASGITransport(app, raise_app_exceptions=False)
                async with httpx.AsyncClient(transport=transport, **self._options) as http:
                    return await http.request(method, path, **more)

            return asyncio.run(call())

    monkeypatch.setattr("phalanx.api.cli.client.httpx.Client", Wire)
    return bare
