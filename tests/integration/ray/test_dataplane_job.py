"""The offline job as tasks of a real local cluster: the same bytes as in one process, and failures that say which."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.ray


def made(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "phalanx.api.cli", "shard", "make", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def test_units_as_ray_tasks_give_the_same_bytes_and_failures_are_told(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for number in range(6):
        data = np.arange(4 * 400, dtype=np.int16).reshape(4, -1) + 1000 * number
        np.save(tmp_path / "raw" / f"r{number}.npy", data)
    options = ("--from", "raw", "--window", "20", "--unit-size", "4K", "--shard-size", "4K", "--name", "n", "--json")
    one, cluster = made(tmp_path, "one", *options, "--workers", "1"), made(tmp_path, "two", *options, "--ray", "local")
    assert (one.returncode, cluster.returncode) == (0, 0), cluster.stderr
    told = json.loads(cluster.stdout)
    assert told["units"] == 6
    shards = sorted(path.name for path in (tmp_path / "one").glob("*.safetensors"))
    assert len(shards) >= 6
    for name in (*shards, "manifest.json"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()

    (tmp_path / "raw" / "r3.npy").write_bytes(b"no array")
    failed = made(tmp_path, "three", *options, "--ray", "local")
    assert failed.returncode not in (0, 1)
    assert "r3.npy" in failed.stderr
    assert not (tmp_path / "three" / "manifest.json").exists()
