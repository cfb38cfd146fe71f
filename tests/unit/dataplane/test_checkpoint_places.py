"""Checkpoints in object stores and where fsspec reaches, and those of which each rank holds a part."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from phalanx.dataplane import (
    latest_checkpoint,
    latest_sharded,
    load_checkpoint,
    load_latest,
    load_sharded,
    save_checkpoint,
    save_sharded,
)
from phalanx.dataplane.errors import CheckpointError

from .object_server import ObjectServer


def state(step: int) -> dict[str, object]:
    return {"weights": torch.full((1000,), step), "step": step}


@pytest.fixture(params=["s3", "memory", "file"])
def folder(request: pytest.FixtureRequest, object_server: ObjectServer, tmp_path: Path) -> str:
    if request.param == "s3":
        pytest.importorskip("obstore", reason="obstore is not installed")
        return "s3://bucket/run"
    return f"memory://{tmp_path}" if request.param == "memory" else f"file://{tmp_path}/run"


def test_saved_found_loaded_and_pruned(folder: str) -> None:
    assert latest_checkpoint(folder) is None
    assert load_latest(folder) is None
    for step in (1, 2, 3):
        path = save_checkpoint(folder, state(step), step)
    assert str(latest_checkpoint(folder)) == str(path)
    assert load_checkpoint(path)["step"] == 3
    found = load_latest(folder)
    assert found is not None
    assert found[0] == found[1]["step"] == 3
    with pytest.raises(CheckpointError):
        load_checkpoint(str(path).replace("0000000003", "0000000009"))


def test_a_corrupt_object_is_passed_over(object_server: ObjectServer) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    first, second = (save_checkpoint("s3://bucket/run", state(step), step) for step in (1, 2))
    key = second.removeprefix("s3://")
    object_server.objects[key] = object_server.objects[key][:-1] + b"!"
    assert latest_checkpoint("s3://bucket/run") == first
    found = load_latest("s3://bucket/run")
    assert found is not None
    assert found[0] == 1
    with pytest.raises(CheckpointError, match="missing or corrupt"):
        load_checkpoint(second)


def test_a_store_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.dataplane.places.time.sleep", lambda _: None)
    with pytest.raises(CheckpointError, match="no address that can be written to"):
        save_checkpoint("nosuch://place", state(1), 1)
    pytest.importorskip("obstore", reason="obstore is not installed")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with pytest.raises(CheckpointError, match="cannot save step-0000000001"):
        save_checkpoint("s3://bucket/run", state(1), 1)


def test_sharded_on_one_rank(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    for step in (1, 2, 3):
        with torch.no_grad():
            model.weight.fill_(step)
        path = save_sharded(tmp_path, {"model": model.state_dict(), "loader": {"samples": step}}, step)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["step-0000000002", "step-0000000003"]
    assert latest_sharded(tmp_path) == path
    part = next(path.glob("*.distcp"))
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    intact = latest_sharded(tmp_path)
    assert intact == tmp_path / "step-0000000002"
    loaded = {"model": nn.Linear(3, 2).state_dict(), "loader": {"samples": 0}}
    load_sharded(intact, loaded)
    assert loaded["model"]["weight"].tolist() == [[2.0] * 3] * 2
    assert loaded["loader"] == {"samples": 2}
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_sharded(tmp_path / "none", loaded)


SCRIPT = """
import os, sys, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from phalanx.dataplane import latest_sharded, load_sharded, save_sharded
folder, action = sys.argv[1:]
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
fully_shard(model, mesh=mesh)
if action == "save":
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(number + 1.0)
    save_sharded(folder, {"model": get_model_state_dict(model), "step": 7}, 7)
else:
    state = {"model": get_model_state_dict(model), "step": 0}
    load_sharded(latest_sharded(folder), state)
    set_model_state_dict(model, state["model"])
    whole = [p.full_tensor().unique().tolist() for p in model.parameters()]
    assert whole == [[1.0], [2.0], [3.0], [4.0]] and state["step"] == 7, whole
dist.destroy_process_group()
os._exit(0)  # on a busy machine torch's own threads may abort an interpreter that ends
"""


def run_ranks(world_size: int, port: int, *arguments: str) -> list[int]:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(world_size)
    ]
    return [rank.wait(120) for rank in ranks]


@pytest.mark.slow
def test_fsdp_saved_on_two_ranks_and_loaded_on_one(tmp_path: Path) -> None:
    import socket

    for world_size, action in ((2, "save"), (1, "load")):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        assert run_ranks(world_size, port, str(tmp_path), action) == [0] * world_size
