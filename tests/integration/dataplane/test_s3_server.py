"""Data sets and checkpoints on a real S3 server: signed requests, ranges, uploads in parts, listings and deletions."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from phalanx.dataplane import (
    Loader,
    ObjectSource,
    ShardCache,
    ShardDataset,
    ShardWriter,
    latest_checkpoint,
    load_checkpoint,
    load_latest,
    prefetch,
    save_checkpoint,
)
from phalanx.dataplane.early_rows import EarlyRows
from phalanx.dataplane.errors import CacheError, CheckpointError, CorruptShard, DatasetError
from phalanx.dataplane.places import open_place
from phalanx.dataplane.remote import object_store
from tests.unit.dataplane.conftest import FIELDS, rows

obstore = pytest.importorskip("obstore", reason="obstore is not installed")

ROWS, PER_SHARD = 12 * 64, 64
RANGE = 1024  # a shard takes several requests, and so gives single rows early


@pytest.fixture
def stored(bucket: Path, tmp_path: Path) -> str:
    """The address of twelve shards of 64 samples, uploaded from tmp_path/set."""
    with ShardWriter(tmp_path / "set", FIELDS, name="set", shard_bytes=PER_SHARD * 84) as writer:
        writer.write(rows(np.arange(ROWS)))
        writer.close()
    address = f"s3://{bucket.name}/train/set"
    place = open_place(address)
    for path in sorted((tmp_path / "set").iterdir()):
        place.put(path.name, path)
    return address


def opened(address: str, cache: Path) -> ShardDataset:
    source = ObjectSource(address, range_bytes=RANGE, pause_s=0.01)
    return ShardDataset(source, ShardCache(cache, 10**7, attempts=2))


def whole_shards(cache: Path) -> int:
    return len(list((cache / "objects").glob("*.shard")))


def batches(loader: Loader, count: int) -> list[dict[str, torch.Tensor]]:
    return [{name: tensor.clone() for name, tensor in batch.items()} for batch in loader.batches(count)]


def same(left: list[dict[str, torch.Tensor]], right: list[dict[str, torch.Tensor]]) -> bool:
    pairs = zip(left, right, strict=True)
    return all(one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one) for one, other in pairs)


def test_a_cold_epoch_from_its_first_batch_on_is_the_folder_s(stored: str, bucket: Path, tmp_path: Path) -> None:
    with ShardDataset(tmp_path / "set") as plain, Loader(plain, 16, seed=3) as loader:
        expected = batches(loader, 48)
    with opened(stored, tmp_path / "cache") as dataset:
        with Loader(dataset, 16, seed=3) as loader:
            assert same(batches(loader, 48), expected)
        assert dataset.gather(np.arange(ROWS))["id"].tolist() == list(range(ROWS))
    assert whole_shards(tmp_path / "cache") == 12
    for shard in (bucket / "train" / "set").glob("*.safetensors"):
        shard.unlink()
    with opened(stored, tmp_path / "cache") as again, Loader(again, 16, seed=3) as loader:
        assert same(batches(loader, 48), expected), "the second epoch needs no shard of the store"


def test_early_rows_come_before_their_shard_and_are_compared_with_it(stored: str, tmp_path: Path) -> None:
    with opened(stored, tmp_path / "cache") as dataset:
        assert EarlyRows.fits(dataset)
        early = EarlyRows(dataset)
        numbers = np.array([3, 40, 63, 0, 21])
        out = dataset.empty(len(numbers))
        early.gather(np.full(len(numbers), 7), numbers, out, lambda _name, _count: out["id"])
        for name, values in rows(7 * PER_SHARD + numbers).items():
            assert np.array_equal(out[name], values)
        assert whole_shards(tmp_path / "cache") == 0
        assert dataset.gather([7 * PER_SHARD])["id"].tolist() == [7 * PER_SHARD]
        early.finish()
    assert whole_shards(tmp_path / "cache") == 1


def test_resume_from_another_host_with_an_empty_cache(stored: str, bucket: Path, tmp_path: Path) -> None:
    with ShardDataset(tmp_path / "set") as plain, Loader(plain, 24, seed=5) as loader:
        expected = batches(loader, 40)  # the second epoch begins at the 33rd
    run = f"s3://{bucket.name}/run"
    with opened(stored, tmp_path / "first") as dataset, Loader(dataset, 24, seed=5) as loader:
        seen = batches(loader, 7)
        save_checkpoint(run, {"loader": loader.state_dict()}, 7)
    found = load_latest(run)
    assert found is not None
    assert found[0] == 7
    with opened(stored, tmp_path / "second") as dataset, Loader(dataset, 24, seed=5) as loader:
        loader.load_state_dict(json.loads(json.dumps(found[1]["loader"])))
        assert same(seen + batches(loader, 33), expected)


def test_prefetch_fills_the_cache(stored: str, tmp_path: Path) -> None:
    cache = ShardCache(tmp_path / "cache", 10**7)
    with opened(stored, tmp_path / "cache") as dataset:
        got = prefetch(dataset.manifest, ObjectSource(stored, range_bytes=RANGE), cache, threads=3)
    assert (got.shards, got.left_out, whole_shards(tmp_path / "cache")) == (12, 0, 12)


def test_checkpoints_go_up_in_parts_and_are_found_loaded_and_pruned(bucket: Path) -> None:
    run = f"s3://{bucket.name}/run"
    assert latest_checkpoint(run) is None
    weights = torch.arange(3_000_000, dtype=torch.float32)
    saved = [save_checkpoint(run, {"weights": weights + step, "step": step}, step, keep=2) for step in (1, 2, 3)]
    names = [address.rpartition("/")[2] for address in saved]
    assert open_place(run).names() == names[1:], "the last two stay"
    parts = obstore.head(object_store(run, timeout_s=30.0), names[2])["e_tag"].strip('"').partition("-")[2]
    assert int(parts) >= 2, "S3 marks an object that came in parts with their number"
    assert latest_checkpoint(run) == saved[2]
    found = load_latest(run)
    assert found is not None
    assert found[0] == found[1]["step"] == 3
    assert torch.equal(found[1]["weights"], weights + 3)
    with (bucket / "run" / names[2]).open("r+b") as file:
        file.seek(6_000_000)
        file.write(b"other bytes")
    assert latest_checkpoint(run) == saved[1]
    with pytest.raises(CheckpointError, match=f"{names[2]}: missing or corrupt"):
        load_checkpoint(saved[2])
    assert torch.equal(load_checkpoint(saved[1])["weights"], weights + 2)


def test_a_shard_with_other_bytes_is_never_used(stored: str, bucket: Path, tmp_path: Path) -> None:
    shard = bucket / "train" / "set" / "shard-000004.safetensors"
    right = shard.read_bytes()
    shard.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    with opened(stored, tmp_path / "cache") as dataset:
        with pytest.raises(CorruptShard, match=rf"shard-000004\.safetensors from {stored}: its bytes have"):
            dataset.gather([4 * PER_SHARD])
        assert whole_shards(tmp_path / "cache") == 0
        shard.write_bytes(right)
        assert dataset.gather([4 * PER_SHARD])["id"].tolist() == [4 * PER_SHARD]


def test_what_is_not_there_is_named(stored: str, bucket: Path, tmp_path: Path) -> None:
    for address in (f"s3://{bucket.name}/none", f"s3://{bucket.name}-none/set"):
        with pytest.raises(DatasetError, match=f"{address}: no data set here"):
            opened(address, tmp_path / "cache")
    (bucket / "train" / "set" / "shard-000009.safetensors").unlink()
    with (
        opened(stored, tmp_path / "cache") as dataset,
        pytest.raises(CacheError, match=rf"shard-000009\.safetensors is missing in {stored}"),
    ):
        dataset.gather([9 * PER_SHARD])
    gone = f"s3://{bucket.name}/run/step-0000000001-{'0' * 32}.pt"
    with pytest.raises(CheckpointError, match=f"{gone}: cannot be read"):
        load_checkpoint(gone)


def test_another_secret_is_refused(stored: str, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.dataplane.places.time.sleep", lambda _: None)
    with opened(stored, tmp_path / "cache") as dataset:
        assert dataset.gather([1])["id"].tolist() == [1]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(DatasetError, match=r"manifest\.json cannot be read.*access refused"):
        opened(stored, tmp_path / "cache")
    with pytest.raises(CheckpointError, match=r"cannot save step-0000000001-.* in s3://"):
        save_checkpoint(f"s3://{bucket.name}/run", {"step": 1}, 1)
    assert not (bucket / "run").exists()
