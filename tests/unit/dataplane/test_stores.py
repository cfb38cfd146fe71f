"""The three vendors' stores, each in its own dialect: data sets are read from them, checkpoints kept in them."""

from pathlib import Path

import pytest
import torch

from phalanx.dataplane import (
    Loader,
    Manifest,
    ObjectSource,
    ShardCache,
    ShardDataset,
    latest_checkpoint,
    load_latest,
    save_checkpoint,
)
from phalanx.dataplane.errors import CacheError, DatasetError

from .object_server import AZURE_ACCOUNT, ObjectServer

pytest.importorskip("obstore", reason="obstore is not installed")


@pytest.fixture(params=["s3", "gs", "az"])
def bucket(request: pytest.FixtureRequest, object_server: ObjectServer) -> tuple[str, str]:
    """A bucket's address, and where the server has it."""
    return f"{request.param}://bucket", (AZURE_ACCOUNT if request.param == "az" else "") + "bucket"


@pytest.fixture
def stored(stored_dataset: Manifest, bucket: tuple[str, str], object_server: ObjectServer, tmp_path: Path) -> str:
    for path in (tmp_path / "set").iterdir():
        object_server.objects[f"{bucket[1]}/set/{path.name}"] = path.read_bytes()
    return f"{bucket[0]}/set"


def test_a_data_set_is_read_in_ranges_through_the_cache(
    stored: str, bucket: tuple[str, str], object_server: ObjectServer, tmp_path: Path
) -> None:
    source = ObjectSource(stored, range_bytes=1000, pause_s=0.01)
    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(source, cache) as dataset, Loader(dataset, 16, tail="drop") as loader:
        assert sorted(sample for batch in loader for sample in batch["id"].tolist()) == list(range(96))
    assert object_server.requests["GET", f"{bucket[1]}/set/shard-000000.safetensors"] >= 5, "of 4,768 bytes"
    with ShardDataset(stored, cache) as again:
        assert again.gather([95])["id"].tolist() == [95]


def test_a_shard_or_data_set_that_is_not_there_is_named(
    stored: str, bucket: tuple[str, str], object_server: ObjectServer, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=f"{bucket[0]}/none: no data set here"):
        ShardDataset(f"{bucket[0]}/none", ShardCache(tmp_path / "cache", 10**6))
    del object_server.objects[f"{bucket[1]}/set/shard-000003.safetensors"]
    with (
        ShardDataset(stored, ShardCache(tmp_path / "cache", 10**6)) as dataset,
        pytest.raises(CacheError, match=f"shard-000003.safetensors is missing in {stored}"),
    ):
        dataset.gather(range(96))


def test_a_cut_answer_is_tried_again(stored: str, object_server: ObjectServer, tmp_path: Path) -> None:
    cut: list[str] = []

    def misdeed(key: str, body: bytes) -> bytes | None:
        if key.endswith(".safetensors") and key not in cut:
            cut.append(key)
            return None
        return body

    object_server.misdeed = misdeed
    with ShardDataset(ObjectSource(stored, pause_s=0.01), ShardCache(tmp_path / "cache", 10**6)) as dataset:
        assert dataset.gather(range(96))["id"].tolist() == list(range(96))
    assert len(cut) == 12


def test_checkpoints_large_enough_for_uploads_in_parts_are_found_loaded_and_pruned(
    bucket: tuple[str, str], object_server: ObjectServer
) -> None:
    folder = f"{bucket[0]}/run"
    assert latest_checkpoint(folder) is None
    weights = torch.arange(3_000_000, dtype=torch.float32)
    for step in (1, 2, 3):
        path = save_checkpoint(folder, {"weights": weights + step, "step": step}, step)
    assert object_server.uploads.completed == 3
    assert str(latest_checkpoint(folder)) == str(path)
    found = load_latest(folder)
    assert found is not None
    assert found[0] == 3
    assert torch.equal(found[1]["weights"], weights + 3)
    kept = [key for key in object_server.objects if key.startswith(f"{bucket[1]}/run/")]
    assert len(kept) == 2, "the last two stay"
