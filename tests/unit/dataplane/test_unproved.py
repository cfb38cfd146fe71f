"""First batches from a cold disk come before their shards are hashed; a shard that proves wrong is told all the same."""

import logging
import threading
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import Loader, ShardCache, ShardDataset
from phalanx.dataplane import open_shards as module
from phalanx.dataplane.errors import CorruptShard
from phalanx.dataplane.source import FolderSource
from phalanx.dataplane.unproved import Unproved

from .conftest import MakeDataset

STOP = threading.Event()


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "on_disk_only", lambda _path: True)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def test_a_quarter_of_a_shards_rows_may_go_before_it_is_hashed() -> None:
    unproved = Unproved()
    assert unproved.beyond_share(np.array([1, 1])) == []
    unproved.add(1, 16)
    unproved.add(2, 16)
    assert unproved.beyond_share(np.array([1, 1, 2, 3])) == []
    assert unproved.beyond_share(np.array([1, 1, 2, 2])) == []
    assert unproved.beyond_share(np.array([1, 2])) == [1]
    unproved.right(1)
    assert unproved.beyond_share(np.array([1, 2])) == [2]
    assert unproved.left() == [2]


def test_rows_come_at_once_and_the_shard_is_compared_behind_them(
    cold: None, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    manifest = make_dataset(count=64, per_shard=32)
    with ShardDataset(tmp_path / "set") as dataset:
        dataset.shards.prove_later = True
        assert dataset.gather([3, 40])["id"].tolist() == [3, 40]
        assert dataset.shards.unproved() == [shard.file for shard in manifest.shards]
        for index in (0, 1):
            dataset.shards.warm(index, STOP, open_too=True)
        assert dataset.shards.unproved() == []


def test_a_shard_that_proves_wrong_ends_the_next_gather(cold: None, make_dataset: MakeDataset, tmp_path: Path) -> None:
    manifest = make_dataset(count=64, per_shard=32)
    flipped(tmp_path / "set" / manifest.shards[1].file)
    with ShardDataset(tmp_path / "set") as dataset:
        dataset.shards.prove_later = True
        assert dataset.gather([3, 40])["id"].tolist() == [3, 40]
        with pytest.raises(CorruptShard):
            dataset.shards.warm(1, STOP, open_too=True)
        with pytest.raises(CorruptShard, match=rf"{manifest.shards[1].file}.*rows of it were in the first batches"):
            dataset.gather([3])
        with pytest.raises(CorruptShard, match="go on from a checkpoint"):
            dataset.shards.unproved()


def test_more_rows_are_waited_for(cold: None, make_dataset: MakeDataset, tmp_path: Path) -> None:
    manifest = make_dataset(count=64, per_shard=32)
    flipped(tmp_path / "set" / manifest.shards[0].file)
    with ShardDataset(tmp_path / "set") as dataset:
        dataset.shards.prove_later = True
        assert dataset.gather(range(8))["id"].tolist() == list(range(8))
        with pytest.raises(CorruptShard, match=manifest.shards[0].file):
            dataset.gather([8])


def test_without_anybody_to_prove_it_later_a_shard_is_hashed_first(
    cold: None, make_dataset: MakeDataset, tmp_path: Path
) -> None:
    manifest = make_dataset(count=64, per_shard=32)
    flipped(tmp_path / "set" / manifest.shards[0].file)
    with ShardDataset(tmp_path / "set") as dataset, pytest.raises(CorruptShard, match="xxh3_128"):
        dataset.gather([0])


@pytest.mark.parametrize("cached", [False, True])
def test_a_loader_never_gets_through_an_epoch_with_a_wrong_shard(
    cold: None, make_dataset: MakeDataset, tmp_path: Path, cached: bool
) -> None:
    manifest = make_dataset(count=256, per_shard=32)
    cache = ShardCache(tmp_path / "cache", 10**7) if cached else None
    bad = tmp_path / "set" / manifest.shards[5].file
    if cache is not None:
        with ShardDataset(FolderSource(tmp_path / "set"), cache) as dataset:
            dataset.gather(range(256))
        bad = tmp_path / "cache" / "objects" / f"{manifest.shards[5].xxh3_128}.shard"
    flipped(bad)

    def epoch() -> list[int]:
        with ShardDataset(tmp_path / "set", cache) as dataset, Loader(dataset, 8, tail="drop") as loader:
            return sorted(sample for batch in loader for sample in batch["id"].tolist())

    with pytest.raises(CorruptShard, match=manifest.shards[5].file):
        epoch()
    if cached:
        assert epoch() == list(range(256)), "the bad copy is gone, the source is good"


def test_a_loader_closed_early_says_what_was_not_compared(
    cold: None,
    make_dataset: MakeDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_dataset(count=256, per_shard=32)
    monkeypatch.setattr(module.OpenShards, "warm", lambda *_, **__: None)
    with ShardDataset(tmp_path / "set") as dataset:
        with caplog.at_level(logging.WARNING), Loader(dataset, 4) as loader:
            next(loader)
        assert "were compared with their checksums" in caplog.text
        assert not dataset.shards.prove_later
