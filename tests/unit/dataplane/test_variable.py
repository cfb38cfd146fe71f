"""Fields of variable length: written, gathered, padded, and through small caches."""

import json
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from phalanx.dataplane import Field, ShardCache, ShardDataset, ShardWriter
from phalanx.dataplane.errors import DatasetError
from phalanx.dataplane.samples import collate, padded

FIELDS = (
    Field("text", "uint8", (), variable=True),
    Field("id", "int64", ()),
    Field("x", "bfloat16", (3,), variable=True),
)


def texts(count: int) -> list[np.ndarray]:
    return [np.full(number * 7 % 12, number % 256, np.uint8) for number in range(count)]


def items(count: int) -> list[np.ndarray]:
    return [np.full((number % 4, 3), number, np.uint16) for number in range(count)]


def write(folder: Path, count: int = 120, cuts: tuple[int, ...] = (), shard_bytes: int = 700) -> None:
    bounds = [0, *cuts, count]
    with ShardWriter(folder, FIELDS, name="words", shard_bytes=shard_bytes) as writer:
        for begin, end in pairwise(bounds):
            writer.write({"text": texts(count)[begin:end], "id": np.arange(begin, end), "x": items(count)[begin:end]})


def right(batch: dict[str, np.ndarray], ids: np.ndarray, count: int = 120) -> bool:
    for name, wanted in (("text", texts(count)), ("x", items(count))):
        offsets = batch[f"{name}.offsets"]
        for place, sample in enumerate(ids.tolist()):
            if not np.array_equal(batch[name][offsets[place] : offsets[place + 1]], wanted[sample]):
                return False
    return batch["id"].tolist() == ids.tolist()


def test_items_come_back_in_any_order_with_repeats(tmp_path: Path) -> None:
    write(tmp_path)
    ids = np.random.default_rng(0).integers(0, 120, 300)
    with ShardDataset(tmp_path, open_shards=2) as dataset:
        assert len(dataset.manifest.shards) > 5
        assert right(dataset.gather(ids), ids)
        assert right(dataset.gather([]), np.array([], int))


def test_bytes_do_not_depend_on_how_samples_are_handed_over(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", cuts=(1, 2, 50, 51, 119))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_sample_larger_than_a_shard_gets_one_of_its_own(tmp_path: Path) -> None:
    fields = [Field("x", "int16", (), variable=True)]
    with ShardWriter(tmp_path, fields, name="n", shard_bytes=100) as writer:
        writer.write({"x": [np.zeros(5, np.int16), np.ones(500, np.int16), np.zeros(5, np.int16)]})
    with ShardDataset(tmp_path) as dataset:
        assert [shard.rows for shard in dataset.manifest.shards] == [1, 1, 1]
        assert dataset[1]["x"].tolist() == [1] * 500


def test_any_safetensors_reader_reads_the_items(tmp_path: Path) -> None:
    write(tmp_path, count=10, shard_bytes=10**6)
    loaded = load_file(tmp_path / "shard-000000.safetensors")
    assert loaded["text"].tolist() == np.concatenate(texts(10)).tolist()
    assert loaded["x"].dtype == torch.bfloat16
    assert loaded["text.span"].tolist()[:3] == [[0, 0], [0, 7], [7, 9]]


def test_a_cache_smaller_than_a_batch_is_enough(tmp_path: Path) -> None:
    write(tmp_path / "set")
    largest = max(path.stat().st_size for path in (tmp_path / "set").glob("shard-*"))
    ids = np.random.default_rng(1).permutation(120)
    with ShardDataset(tmp_path / "set", ShardCache(tmp_path / "cache", 2 * largest)) as dataset:
        assert right(dataset.gather(ids), ids)


def test_whole_batches_for_a_dataloader(tmp_path: Path) -> None:
    write(tmp_path)
    with ShardDataset(tmp_path) as dataset:
        loader = torch.utils.data.DataLoader(dataset, batch_size=16, collate_fn=collate)
        batches = [batch["id"].tolist() for batch in loader]
        assert list(chain.from_iterable(batches)) == list(range(120))
        samples = dataset.__getitems__([3, 5])
        assert [sample["text"].tolist() for sample in samples] == [texts(9)[3].tolist(), texts(9)[5].tolist()]
        assert samples[-1]["id"].item() == 5
        with pytest.raises(DatasetError, match="collate takes"):
            collate([{"id": torch.tensor(1)}])


def test_padding_says_what_is_real(tmp_path: Path) -> None:
    write(tmp_path)
    with ShardDataset(tmp_path) as dataset:
        batch = dataset.__getitems__([3, 4, 6]).batch
    values, real = padded(batch, "x", fill=-1)
    assert values.shape == (3, 3, 3)
    assert real.sum(1).tolist() == [3, 0, 2]
    assert values[2, :2, 0].view(torch.uint16).tolist() == [6, 6]
    assert values[2, 2].tolist() == [-1] * 3
    short, real = padded(batch, "x", length=1)
    assert short.shape == (3, 1, 3)
    assert real.sum(1).tolist() == [1, 0, 1]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, FIELDS, name="n") as writer:
        with pytest.raises(DatasetError, match="list with one array per sample"):
            writer.write({"text": np.zeros((2, 3), np.uint8), "id": np.arange(2), "x": items(2)})
        with pytest.raises(DatasetError, match="same number of rows"):
            writer.write({"text": texts(3), "id": np.arange(2), "x": items(2)})
        with pytest.raises(DatasetError, match="field 'x': shape"):
            writer.write({"text": texts(1), "id": np.arange(1), "x": [np.zeros((2, 4), np.uint16)]})
        writer.write({"text": texts(2), "id": np.arange(2), "x": items(2)})
    with pytest.raises(DatasetError, match="not end with"):
        Field("x.span", "int64", ())


def test_a_manifest_without_item_counts_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "manifest.json"
    content = json.loads(path.read_text())
    del content["shards"][2]["items"]
    path.write_text(json.dumps(content))
    with pytest.raises(DatasetError, match="not a readable manifest"):
        ShardDataset(tmp_path)
