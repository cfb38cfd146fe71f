"""Order and resume by brute force: world sizes, steps, epochs, workers, prefetch depth (D7, D10, D11, D12, D19, D26)."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.dataplane import Loader, Order, ShardDataset

Make = Callable[..., Any]
WORLDS = (1, 2, 3, 4, 6, 8, 12)


def ids(loader: Loader, count: int) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader.batches(count)]


def test_d7_resume_after_every_number_of_batches(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset(count=53, per_shard=5)
    with ShardDataset(tmp_path / "set") as dataset:
        with Loader(dataset, 7, seed=1) as loader:
            whole = ids(loader, 20)
        for step in range(21):
            with Loader(dataset, 7, seed=1) as loader:
                seen = ids(loader, step)
                state = json.loads(json.dumps(loader.state_dict()))
            with Loader(dataset, 7, seed=1) as loader:
                loader.load_state_dict(state)
                assert seen + ids(loader, 20 - step) == whole


def test_d10_and_d19_any_world_size_at_any_step_over_epochs() -> None:
    """Every (world size before, step, world size after) over three epochs, for two shapes of data."""
    for rows, batch in (([7, 5, 1, 9, 2], 24), ([4] * 30, 24)):
        order = Order(rows, 3, shards_per_block=2, lanes=4)
        steps = 3 * order.rows // batch + 2
        reference = [sorted(order.ids(np.arange(g, g + batch)).tolist()) for g in range(0, steps * batch, batch)]
        for world in WORLDS:
            if batch % world:
                continue
            fresh = Order(rows, 3, shards_per_block=2, lanes=4)  # a rank that has seen nothing before
            for step in range(steps):
                pieces = [fresh.rank_ids(step * batch, batch, rank, world).tolist() for rank in range(world)]
                assert {len(piece) for piece in pieces} == {batch // world}
                assert sorted(chain.from_iterable(pieces)) == reference[step]
        counts = Counter(chain.from_iterable(reference))
        assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (1, 12), (3, 1)])
def test_d10_ranks_change_in_the_middle_of_an_epoch(
    make_dataset: Make, tmp_path: Path, before: int, after: int
) -> None:
    make_dataset(count=120, per_shard=8)
    seen: list[int] = []
    with ShardDataset(tmp_path / "set") as dataset:
        for rank in range(before):
            with Loader(dataset, 12, rank, before, seed=2) as loader:
                seen += chain.from_iterable(ids(loader, 4))
                state = loader.state_dict()
        for rank in range(after):
            with Loader(dataset, 12, rank, after, seed=2) as loader:
                loader.load_state_dict(state)
                seen += chain.from_iterable(ids(loader, 6))
    assert sorted(seen) == list(range(120))


def test_d11_fewer_shards_than_ranks(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset(count=64, per_shard=64)
    for tail in ("run_on", "drop", "pad"):
        seen: list[int] = []
        with ShardDataset(tmp_path / "set") as dataset:
            assert len(dataset.manifest.shards) == 1
            for rank in range(16):
                with Loader(dataset, 32, rank, 16, tail=tail) as loader:
                    batches = ids(loader, 2)
                    assert [len(batch) for batch in batches] == [2, 2]
                    seen += chain.from_iterable(batches)
        assert sorted(seen) == list(range(64))


def test_d12_uneven_shards_give_equal_counts_and_repeats_are_marked(make_dataset: Make, tmp_path: Path) -> None:
    from phalanx.dataplane import Field, ShardWriter, read_manifest

    with ShardWriter(tmp_path / "set", [Field("id", "int64", ())], name="n", shard_bytes=7 * 8) as writer:
        writer.write({"id": np.arange(13)})
    assert [shard.rows for shard in read_manifest(tmp_path / "set").shards] == [7, 6]
    with ShardDataset(tmp_path / "set") as dataset:
        counts, real, marked = [], Counter[int](), 0
        for rank in range(2):
            with Loader(dataset, 4, rank, 2, tail="pad") as loader:
                batches = [(batch["id"].clone(), batch["mask"].clone()) for batch in loader]
            counts.append(len(batches))
            for sample, mask in batches:
                real.update(sample[mask].tolist())
                marked += int((~mask).sum())
    assert counts == [4, 4]
    assert real == Counter(range(13))
    assert marked == 3


@pytest.mark.parametrize("depth", [1, 3, 9])
def test_d26_only_batches_that_were_handed_out_count(make_dataset: Make, tmp_path: Path, depth: int) -> None:
    make_dataset(count=50, per_shard=8)
    with ShardDataset(tmp_path / "set") as dataset, Loader(dataset, 10, seed=1) as plain:
        expected = ids(plain, 12)
        for tail in ("run_on", "drop", "pad"):
            with Loader(dataset, 10, seed=1, depth=depth, tail=tail) as loader:
                seen: list[list[int]] = []
                for _ in range(12):  # with the end of epochs at 5 and 10
                    state = loader.state_dict()
                    with Loader(dataset, 10, seed=1, tail=tail) as other:
                        other.load_state_dict(state)
                        assert other.state_dict() == state
                    batch = next(iter(loader))
                    seen.append(batch["id"].tolist())
                assert seen == expected
                assert loader.epoch == 2


def shuffle_distance(order: Order) -> float:
    """How far, on average, neighbours in the order lie apart in the data, against a full shuffle (1)."""
    sequence = order.ids(np.arange(order.rows))
    return float(np.abs(np.diff(sequence)).mean() / (order.rows / 3))


def test_the_quality_of_the_shuffle_is_near_that_of_a_full_one() -> None:
    rows = [64] * 256
    default = Order(rows, 0)
    full = Order(rows, 0, shards_per_block=256, lanes=1)
    assert shuffle_distance(full) == pytest.approx(1.0, abs=0.02)
    assert shuffle_distance(default) == pytest.approx(1.0, abs=0.05)
    batches = default.ids(np.arange(order_rows := default.rows)).reshape(-1, 256) // 64
    shards_in_a_batch = float(np.mean([len(set(batch.tolist())) for batch in batches[: order_rows // 256]]))
    assert 55 < shards_in_a_batch < 65  # of 64 in the eight blocks being read; a full shuffle touches about 162
