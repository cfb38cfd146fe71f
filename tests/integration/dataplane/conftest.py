"""A real S3 server: a process of its own on a free port of this host, which checks the signature of each request."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ACCESS_KEY, SECRET_KEY, REGION = "phalanx-tests", "known-to-these-tests-only", "us-east-1"
START_S, STARTS = 60.0, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """Where the server answers, and the folder in which each bucket is a folder and each object a file."""

    url: str
    folder: Path


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server, started once and killed at the end of the tests."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    pytest.importorskip("nanio", reason="nanio, the S3 server, is not installed")
    scratch = tmp_path_factory.mktemp("s3")
    folder = scratch / "data"
    folder.mkdir()
    for _ in range(STARTS):  # another process may take the free port first
        process, url = _start(folder, scratch / "server.log")
        try:
            if _answers(process, url):
                yield S3Server(url=url, folder=folder)
                return
        finally:
            process.kill()
            process.wait(30)
    pytest.fail(f"the S3 server did not start in {STARTS} tries: {(scratch / 'server.log').read_text()}")


@pytest.fixture
def bucket(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a new bucket, s3://<its name>, to which this test's credentials lead."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {
        "AWS_ENDPOINT_URL": s3_server.url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    made = s3_server.folder / f"bucket-{len(list(s3_server.folder.iterdir()))}"
    made.mkdir()
    return made


def _start(folder: Path, log: Path) -> tuple["subprocess.Popen[bytes]", str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = {"NANIO_ACCESS_KEY": ACCESS_KEY, "NANIO_SECRET_KEY": SECRET_KEY, "NANIO_REGION": REGION}
    where = ["--host", "127.0.0.1", "--port", str(port), "--data-dir", str(folder), "--no-access-log"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "nanio", "serve", *where],
            env={**os.environ, **keys},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return process, f"http://127.0.0.1:{port}"


def _answers(process: "subprocess.Popen[bytes]", url: str) -> bool:
    """Whether the server answers before it ends; waits START_S seconds at most."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            opener.open(url, timeout=5).close()
        except urllib.error.HTTPError as error:  # an unsigned request is refused, by a server that is there
            error.close()
            return process.poll() is None
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False
