"""A real service in processes of its own: SQLite, the real solver, and executors that only pretend to run gangs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

FLEET = """
[[sites]]
id = "north"
[[sites.hosts]]
name = "n{n}"
count = 2
gpus = 2
gpu_type = "H100"
gpu_memory = "80GiB"
cpu = 16
memory = "64GiB"
[[sites]]
id = "south"
[[sites.hosts]]
name = "s{n}"
count = 1
gpus = 4
gpu_type = "T4"
gpu_memory = "16GiB"
cpu = 32
memory = "64GiB"
[[teams]]
id = "vision"
"""
PROGRAM = "import sys\nfrom phalanx.api.serve import serve\nfrom phalanx.api.settings import load_settings\nsys.exit(serve(load_settings()))"


class Service:
    """One `phalanx serve` and a client of it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.data = folder / "data"
        self.url = f"http://127.0.0.1:{port}"
        fleet = folder / "fleet.toml"
        fleet.write_text(FLEET)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
        self.environment = {
            **clean,
            "PHALANX_DATA": str(self.data),
            "PHALANX_PORT": str(port),
            "PHALANX_FLEET": str(fleet),
            "PHALANX_EXECUTOR": "fake",
            "PHALANX_ROUND_INTERVAL": "1s",
        }
        self.process: subprocess.Popen[str] | None = None
        self.http = httpx.Client(base_url=self.url, timeout=10.0, trust_env=False)

    def start(self) -> None:
        self.process = self.spawn()
        self.until(self.ready)

    def spawn(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> bool:
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def workers(self) -> dict[str, int]:
        """The service's processes by what they do."""
        found = {}
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
                if "phalanx.api.worker" in line and process.environ().get("PHALANX_DATA") == str(self.data):
                    found[" ".join(line[line.index("phalanx.api.worker") + 1 :])] = process.pid
            except (psutil.Error, OSError):
                continue
        return found

    def submit(self, name: str, **more) -> str:
        body = {"name": name, "team": "vision", "gpus": 1, "cpu": 1, "memory": "1GiB", "command": ["true"], **more}
        answer = self.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": name})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()["job"]

    def job(self, job: str) -> dict:
        return self.http.get(f"/v1/jobs/{job}").json()

    def until(self, condition, seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the service ended: {self.process.communicate()}")
            assert time.monotonic() < deadline, f"it did not come about; logs:\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.data.glob("log/*.log")))

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        assert self.process is not None
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def end(self) -> None:
        self.http.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        for pid in self.workers().values():
            psutil.Process(pid).kill()


@pytest.fixture
def service(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = Service(tmp_path, port)
    yield made
    made.end()
