"""The example as a user runs it: two ranks, a stop in the middle, and a resume on one."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_ddp.py"
STEPS = 24

pytestmark = pytest.mark.slow


class Gang:
    """One process per rank, as torchrun or Phalanx starts them; none outlives the context."""

    def __init__(self, world_size: int, data: Path, checkpoints: Path, *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, str(EXAMPLE), "--data", str(data), "--steps", str(STEPS), *arguments]
        shared = {
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "PHALANX_CHECKPOINT_DIR": str(checkpoints),
            "PHALANX_GRACE_S": "60",
        }
        self.ranks = [
            subprocess.Popen(
                command,
                env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(world_size)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()

    def stop_after(self, step: int) -> list[dict[str, float]]:
        """Sends SIGTERM to the last rank alone once rank 0 has reported `step`; returns the lines until then."""
        output = self.ranks[0].stdout
        assert output is not None
        lines = []
        for text in output:
            lines.append(json.loads(text))
            if lines[-1].get("step") == step:
                break
        self.ranks[-1].send_signal(signal.SIGTERM)
        return lines

    def finish(self) -> tuple[list[int], list[dict[str, float]]]:
        """Exit codes, and rank 0's remaining lines."""
        texts = [rank.communicate(timeout=120)[0] for rank in self.ranks]
        return [rank.returncode for rank in self.ranks], [json.loads(line) for line in texts[0].splitlines()]


def losses(lines: list[dict[str, float]]) -> dict[int, float]:
    return {int(line["step"]): line["loss"] for line in lines if "loss" in line}


def test_stopped_on_two_ranks_and_resumed_on_one_trains_as_if_never_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Gang(2, data, tmp_path / "whole") as gang:
        codes, whole = gang.finish()
    assert codes == [0, 0]
    assert whole[-1] == {"done": STEPS}
    assert list(losses(whole)) == list(range(1, STEPS + 1))

    with Gang(2, data, tmp_path / "stopped", "--step-ms", "50") as gang:
        before = gang.stop_after(7)
        codes, rest = gang.finish()
    before += rest
    assert codes == [143, 143]
    stopped_after = int(before[-1]["stopped_after"])
    assert 7 <= stopped_after < STEPS
    assert before[-1]["grace_left_s"] is None  # rank 0 itself was not asked; the other told it

    with Gang(1, data, tmp_path / "stopped") as gang:
        codes, after = gang.finish()
    assert codes == [0]
    assert after[0] == {"resumed_after": stopped_after}
    assert list(losses(after)) == list(range(stopped_after + 1, STEPS + 1))
    assert losses(before + after) == pytest.approx(losses(whole), rel=1e-3)
