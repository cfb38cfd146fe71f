"""Gathering from shards of any fields, row sizes and lengths, through however few open shards."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.dataplane import Field, ShardDataset, ShardWriter
from phalanx.dataplane.fields import DTYPES

shapes = st.lists(st.integers(1, 70), max_size=2).map(tuple)


@st.composite
def some_fields(draw: st.DrawFn) -> list[Field]:
    kinds = draw(st.lists(st.tuples(st.sampled_from(sorted(DTYPES)), shapes), min_size=1, max_size=4))
    return [Field(f"f{number}", dtype, shape) for number, (dtype, shape) in enumerate(kinds)]


@given(some_fields(), st.integers(1, 300), st.integers(1, 200_000), st.integers(1, 3), st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_every_row_is_the_one_that_was_written(
    fields: list[Field], count: int, shard_bytes: int, open_shards: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    written = {
        field.name: random.integers(0, 2, (count, *field.shape), np.uint8).astype(DTYPES[field.dtype][1])
        if field.dtype == "bool"
        else np.frombuffer(random.bytes(count * field.row_bytes), DTYPES[field.dtype][1]).reshape(count, *field.shape)
        for field in fields
    }
    ids = random.integers(0, count, 40)
    with tempfile.TemporaryDirectory() as folder:
        with ShardWriter(Path(folder), fields, name="any", shard_bytes=shard_bytes) as writer:
            writer.write(written)
        with ShardDataset(folder, open_shards=open_shards) as dataset:
            for _ in range(2):
                batch = dataset.gather(ids)
                for name, array in written.items():
                    assert batch[name].tobytes() == array[ids].tobytes()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=80), st.integers(1, 4000), shapes, st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_items_of_variable_fields_are_those_that_were_written(
    lengths: list[int], shard_bytes: int, shape: tuple[int, ...], seed: int
) -> None:
    random = np.random.default_rng(seed)
    dtype = str(random.choice(sorted(set(DTYPES) - {"bool"})))
    fields = [Field("v", dtype, shape, variable=True), Field("odd", "uint8", (3,))]
    code = DTYPES[dtype][1]
    written = [
        np.frombuffer(random.bytes(length * fields[0].row_bytes), code).reshape(length, *shape) for length in lengths
    ]
    odd = random.integers(0, 255, (len(lengths), 3), np.uint8)
    ids = random.integers(0, len(lengths), 50)
    with tempfile.TemporaryDirectory() as folder:
        with ShardWriter(Path(folder), fields, name="any", shard_bytes=shard_bytes) as writer:
            half = len(lengths) // 2
            writer.write({"v": written[:half], "odd": odd[:half]})
            writer.write({"v": written[half:], "odd": odd[half:]})
        with ShardDataset(folder, open_shards=2) as dataset:
            batch = dataset.gather(ids)
            assert batch["odd"].tobytes() == odd[ids].tobytes()
            assert batch["v"].tobytes() == b"".join(written[sample].tobytes() for sample in ids)
            assert np.diff(batch["v.offsets"]).tolist() == [lengths[sample] for sample in ids]
