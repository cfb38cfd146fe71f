import json
import multiprocessing
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import ShardDataset, read_manifest
from phalanx.dataplane.errors import CorruptShard, DatasetError
from phalanx.dataplane.source import FolderSource

from .conftest import MakeDataset, rows


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def same(batch: dict[str, np.ndarray], ids: np.ndarray) -> bool:
    return all(np.array_equal(batch[name], value) for name, value in rows(ids).items())


def test_gather_in_any_order_with_repeats(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset(count=100)
    ids = np.random.default_rng(0).integers(0, 100, 500)
    with ShardDataset(tmp_path / "set") as dataset:
        assert same(dataset.gather(ids), ids)
        assert same(dataset.gather([]), np.array([], int))


def test_gather_into_given_arrays(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset()
    with ShardDataset(tmp_path / "set" / "manifest.json") as dataset:
        out = dataset.empty(30)
        ids = np.arange(30, 60)
        assert dataset.gather(ids, out) is out
        assert same(out, ids)
        with pytest.raises(DatasetError, match=r"out\['id'\] must be"):
            dataset.gather(np.arange(5), out)
        with pytest.raises(DatasetError, match=r"out\['wave'\] must be"):
            dataset.gather(ids, {**out, "wave": np.asfortranarray(out["wave"])})


def test_samples_by_index(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset(count=21)
    with ShardDataset(f"file://{tmp_path / 'set'}") as dataset:
        assert len(dataset) == 21
        assert [int(sample["id"]) for sample in dataset] == list(range(21))
        assert dataset[-1]["target"].tolist() == [20, -20, 10]
        for index in (21, -22):
            with pytest.raises(IndexError, match="21"):
                dataset[index]
        with pytest.raises(IndexError, match="from -1 to 3"):
            dataset.gather([3, -1])


def test_few_open_shards_are_enough(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset(count=100)
    with ShardDataset(tmp_path / "set", open_shards=1) as dataset:
        ids = np.random.default_rng(1).permutation(100)
        assert same(dataset.gather(ids), ids)


@pytest.mark.parametrize("offset", [20, 4096 + 3])
def test_a_flipped_byte_is_found_at_the_first_open(make_dataset: MakeDataset, tmp_path: Path, offset: int) -> None:
    make_dataset()
    flip(tmp_path / "set" / "shard-000003.safetensors", offset)
    with ShardDataset(tmp_path / "set") as dataset:
        assert int(dataset[0]["id"]) == 0
        with pytest.raises(CorruptShard, match=r"shard-000003\.safetensors: xxh3_128 \w+, the manifest says"):
            dataset.gather([0, 24, 30])


def test_without_verification_a_header_that_does_not_fit_is_still_found(
    make_dataset: MakeDataset, tmp_path: Path
) -> None:
    make_dataset()
    flip(tmp_path / "set" / "shard-000003.safetensors", 20)
    with (
        ShardDataset(tmp_path / "set", verify=False) as dataset,
        pytest.raises(CorruptShard, match=r"shard-000003.*header"),
    ):
        dataset.gather([24])


def test_a_short_or_missing_shard_is_named(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset()
    short = tmp_path / "set" / "shard-000001.safetensors"
    short.write_bytes(short.read_bytes()[:-1])
    (tmp_path / "set" / "shard-000002.safetensors").unlink()
    with ShardDataset(tmp_path / "set") as dataset:
        with pytest.raises(CorruptShard, match=r"shard-000001.safetensors: \d+ bytes, the manifest says"):
            dataset.gather([8])
        with pytest.raises(CorruptShard, match=r"shard-000002.safetensors is missing"):
            dataset.gather([16])


def test_no_data_set_and_no_readable_address(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no data set here"):
        ShardDataset(tmp_path)
    with pytest.raises(DatasetError, match="no local folder and no file://"):
        ShardDataset("ftp://bucket/set")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2; this version reads"),
        ({"rows": 5}, "differ from the shards'"),
        ({"shards": [{"file": "../x", "rows": 1, "bytes": 1, "xxh3_128": "0" * 32}]}, "plain visible name"),
        ({"shards": [{"file": "x", "rows": 0, "bytes": 1, "xxh3_128": "0" * 32}]}, "must be positive"),
        ({"shards": [{"file": "x", "rows": 1, "bytes": 1, "xxh3_128": "../../x"}]}, "no xxh3_128"),
        ({"shards": 3}, "not a readable manifest"),
        ({"fields": [{"name": "x"}]}, "not a readable manifest"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(
    make_dataset: MakeDataset, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    make_dataset()
    path = tmp_path / "set" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DatasetError, match=message):
        read_manifest(tmp_path / "set")


def test_a_pickled_data_set_starts_with_nothing_open(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset()
    with ShardDataset(tmp_path / "set") as dataset:
        dataset.gather([5])
        with pickle.loads(pickle.dumps(dataset)) as copy:
            assert same(copy.gather([5, 50]), np.array([5, 50]))


def _gather_in_child(dataset: ShardDataset, answer: "multiprocessing.SimpleQueue[list[int]]") -> None:
    answer.put(dataset.gather([5, 50])["id"].tolist())
    os._exit(0)


def test_a_forked_child_reads_on(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset()
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    with ShardDataset(tmp_path / "set") as dataset:
        dataset.gather([5])
        child = context.Process(target=_gather_in_child, args=(dataset, answer))
        child.start()
        assert answer.get() == [5, 50]
        child.join()


def test_a_folder_written_by_a_later_version_is_refused_with_its_place(
    make_dataset: MakeDataset, tmp_path: Path
) -> None:
    make_dataset()
    path = tmp_path / "set" / "manifest.json"
    later = {**json.loads(path.read_text()), "version": 7, "fields": {"of": "another form"}, "codec": "new"}
    path.write_text(json.dumps(later))
    for location in (tmp_path / "set", path, f"file://{tmp_path}/set", FolderSource(tmp_path / "set")):
        with pytest.raises(DatasetError, match=rf"{path}.*version 7; this version reads 'phalanx-shards' version 1"):
            ShardDataset(location)
