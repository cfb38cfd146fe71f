"""`phalanx demo`, which is `make run`: every job of the mix finishes, and Ctrl-C in the middle leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def start(data: Path) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PHALANX_", "COV_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "phalanx.api.cli", "demo", "--data", str(data), "--limit", "240"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def left_behind(data: Path) -> list[str]:
    """Processes that mention the data folder in their command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            told = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(str(data) in text for text in told):
            found.append(f"{process.pid} {' '.join(process.cmdline()[:4])}")
    return found


@pytest.mark.timeout(280)
def test_every_job_of_the_mix_finishes(tmp_path: Path) -> None:
    demo = start(tmp_path / "data")
    told, _ = demo.communicate(timeout=270)
    assert demo.returncode == 0, told
    assert "Status page: http://127.0.0.1:" in told
    assert "too-large is refused at submission" in told
    assert "large-sweep is queued: " in told
    assert "steps of torch.distributed training on two hosts" in told
    assert "reach-ddp: preempted for incident at a loss of" in told
    assert "went on from its checkpoint after step" in told
    assert "pair: south1, south2 drained for it; started " in told
    assert "short ran there meanwhile" in told
    assert "borrower: preempted for owner reclaiming its team's guarantee" in told
    assert "jobs        14 succeeded" in told
    assert "violation" not in told
    assert left_behind(tmp_path) == []


@pytest.mark.timeout(200)
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = start(tmp_path / "data")
    deadline = time.monotonic() + 150
    assert demo.stdout
    before = []
    for line in demo.stdout:
        before.append(line)
        if "is running" in line or time.monotonic() > deadline:
            break
    assert demo.poll() is None, "".join(before)
    os.killpg(demo.pid, signal.SIGINT)
    told, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, told
    assert "Traceback" not in told
    assert left_behind(tmp_path) == []
