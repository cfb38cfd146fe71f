from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from phalanx.dataplane import Field, ShardDataset, ShardWriter, read_manifest
from phalanx.dataplane.errors import DatasetError, UnfinishedDataset
from phalanx.dataplane.fields import DTYPES

from .conftest import FIELDS, MakeDataset, rows


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_any_safetensors_reader_reads_a_shard(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset(count=20, per_shard=8)
    last = load_file(tmp_path / "set" / "shard-000002.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in last.items()} == {
        "id": (4,),
        "wave": (4, 4, 8),
        "target": (4, 3),
    }
    assert last["id"].tolist() == [16, 17, 18, 19]
    with safe_open(tmp_path / "set" / "shard-000000.safetensors", "pt") as shard:
        assert shard.metadata() == {"format": "phalanx-shard-1"}


def test_data_starts_at_a_page(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset()
    data = (tmp_path / "set" / "shard-000000.safetensors").read_bytes()
    assert (8 + int.from_bytes(data[:8], "little")) % 4096 == 0


def test_bytes_do_not_depend_on_how_rows_are_handed_over(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset("set", count=50)
    with ShardWriter(tmp_path / "again" / "set", FIELDS, name="set", shard_bytes=8 * 84) as writer:
        for start in range(0, 50, 7):
            writer.write(rows(np.arange(start, min(50, start + 7))))
    assert files(tmp_path / "set") == files(tmp_path / "again" / "set")
    assert "manifest.json" in files(tmp_path / "set")


def test_manifest_counts_and_provenance(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, FIELDS, name="n", shard_bytes=84 * 8, provenance={"raw": ["a.nwb"]}) as writer:
        writer.write(rows(np.arange(20)))
    manifest = read_manifest(tmp_path)
    assert (manifest.rows, len(manifest.shards)) == (20, 3)
    assert manifest.size_bytes == sum((tmp_path / s.file).stat().st_size for s in manifest.shards)
    assert dict(manifest.provenance) == {"raw": ["a.nwb"]}
    assert manifest.fields == FIELDS


def test_the_digest_ignores_provenance_but_not_content(tmp_path: Path, make_dataset: MakeDataset) -> None:
    first = make_dataset("set", count=20)
    with ShardWriter(tmp_path / "b", FIELDS, name="set", shard_bytes=84 * 8, provenance={"day": 2}) as writer:
        writer.write(rows(np.arange(20)))
        same = writer.close()
    with ShardWriter(tmp_path / "c", FIELDS, name="set", shard_bytes=84 * 8) as writer:
        writer.write(rows(np.arange(1, 21)))
        other = writer.close()
    assert first.digest == same.digest != other.digest


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_every_dtype_comes_back_as_it_went_in(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(5 * int(np.prod(shape, dtype=int))).reshape(5, *shape).to(getattr(torch, dtype))
    with ShardWriter(tmp_path, [Field("x", dtype, shape), Field("odd", "uint8", ())], name="n") as writer:
        writer.write({"x": tensor, "odd": torch.arange(5, dtype=torch.uint8)})
    with ShardDataset(tmp_path) as dataset:
        samples = [dataset[index] for index in range(5)]
    assert torch.equal(torch.stack([sample["x"].double() for sample in samples]), tensor.double())
    assert {sample["x"].dtype for sample in samples} == {tensor.dtype}


def test_bfloat16_is_also_taken_as_raw_bits(tmp_path: Path) -> None:
    values = torch.tensor([1.5, -2.25], dtype=torch.bfloat16)
    with ShardWriter(tmp_path, [Field("x", "bfloat16", ())], name="n") as writer:
        writer.write({"x": values.view(torch.uint16).numpy()})
    assert torch.equal(load_file(tmp_path / "shard-000000.safetensors")["x"], values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wave": np.zeros((2, 4, 8), np.int32)}, "field 'wave': dtype int32 given, int16 declared"),
        ({"wave": np.zeros((2, 4, 9), np.int16)}, "field 'wave': shape"),
        ({"wave": np.zeros((3, 4, 8), np.int16)}, "same number of rows"),
        ({"extra": np.zeros(2)}, "fields"),
    ],
)
def test_rows_that_do_not_fit_are_refused_whole(tmp_path: Path, change: dict[str, np.ndarray], message: str) -> None:
    with ShardWriter(tmp_path, FIELDS, name="n") as writer:
        with pytest.raises(DatasetError, match=message):
            writer.write({**rows(np.arange(2)), **change})
        writer.write(rows(np.arange(2)))
        assert writer.close().rows == 2


def test_a_tensor_of_another_dtype_is_not_taken_for_bfloat16(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, [Field("x", "bfloat16", ())], name="n")
    with pytest.raises(DatasetError, match=r"torch\.float32"):
        writer.write({"x": torch.zeros(2)})
    writer.abort()


def test_an_unfinished_data_set_says_so_and_can_be_written_again(tmp_path: Path, make_dataset: MakeDataset) -> None:
    def crash() -> None:
        with ShardWriter(tmp_path / "set", FIELDS, name="set", shard_bytes=84) as writer:
            writer.write(rows(np.arange(300)))
            raise KeyError("raw file")

    with pytest.raises(KeyError, match="raw file"):
        crash()
    with pytest.raises(UnfinishedDataset, match=r"unfinished data set.*again"):
        ShardDataset(tmp_path / "set")
    make_dataset("set", count=10)
    assert sorted(files(tmp_path / "set")) == [
        "manifest.json",
        "shard-000000.safetensors",
        "shard-000001.safetensors",
    ]


def test_one_writer_at_a_time_and_never_over_a_finished_data_set(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, FIELDS, name="n") as writer:
        with pytest.raises(DatasetError, match="another writer"):
            ShardWriter(tmp_path, FIELDS, name="n")
        writer.write(rows(np.arange(3)))
    before = files(tmp_path)
    with pytest.raises(DatasetError, match="finished data set"):
        ShardWriter(tmp_path, FIELDS, name="n")
    assert files(tmp_path) == before
    with pytest.raises(DatasetError, match="closed"):
        writer.write(rows(np.arange(3)))


def test_a_data_set_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="at least one sample"), ShardWriter(tmp_path, FIELDS, name="n"):
        pass
    with pytest.raises(UnfinishedDataset):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [("", "int16", ()), ("__metadata__", "int16", ()), ("x", "int17", ()), ("x", "int8", (0,))],
)
def test_fields_that_cannot_be_are_refused(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(DatasetError, match="field"):
        Field(name, dtype, shape)


def test_field_names_are_unique(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="name of its own"):
        ShardWriter(tmp_path, [Field("x", "int8", ()), Field("x", "int16", ())], name="n")
