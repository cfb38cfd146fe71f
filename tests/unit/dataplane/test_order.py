import numpy as np
import pytest

from phalanx.dataplane.errors import LoaderError
from phalanx.dataplane.order import Order, distinct, rising_places


def test_the_stream_of_a_seed_never_changes() -> None:
    """A saved state must mean the same samples in every later version."""
    order = Order([5, 3, 4], seed=7, shards_per_block=2, lanes=2)
    first, second = order.ids(np.arange(24)).reshape(2, 12).tolist()
    assert first == [8, 0, 1, 11, 2, 3, 10, 5, 9, 7, 4, 6]
    assert second == [7, 8, 11, 2, 9, 4, 6, 3, 10, 1, 5, 0]


def test_without_shuffle_samples_come_as_written() -> None:
    order = Order([2, 3], seed=0, shuffle=False)
    assert order.ids(np.arange(7)).tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert order.rank_ids(3, 4, 0, 2).tolist() == [3, 4]
    assert order.rank_ids(3, 4, 1, 2).tolist() == [0, 1]


def test_epochs_and_seeds_differ() -> None:
    first, second = Order([64] * 4, seed=0).ids(np.arange(512)).reshape(2, 256).tolist()
    other = Order([64] * 4, seed=1).ids(np.arange(256)).tolist()
    assert first != second
    assert first != other


def test_a_rank_stays_in_few_lanes_and_so_in_few_shards() -> None:
    order = Order([16] * 64, seed=0, shards_per_block=2, lanes=8)
    touched = [set() for _ in range(4)]
    for g in range(0, order.rows, 32):
        for rank in range(4):
            touched[rank].update((order.rank_ids(g, 32, rank, 4) // 16).tolist())
    # Two lanes of eight: 16 of the 64 shards, none shared with another rank as no block spans two lanes here.
    assert [len(shards) for shards in touched] == [16] * 4


def test_a_huge_data_set_resumes_anywhere() -> None:
    order = Order([1024] * 100_000, seed=3)
    g = 7 * order.rows + 12_345_678
    ids = order.rank_ids(g, 256, 1, 2)
    assert len(set(ids.tolist())) == 128
    assert 0 <= ids.min() <= ids.max() < order.rows


def test_block_shards_hold_the_samples_and_block_span_leads_to_the_next_blocks() -> None:
    order = Order([10] * 24, seed=5, shards_per_block=3, lanes=2)
    here = np.arange(16)
    assert set((order.ids(here) // 10).tolist()) <= set(order.block_shards(here))
    ahead = order.block_shards(here + order.block_span)
    assert len(ahead) == 6
    assert not set(ahead) & set(order.block_shards(here))


@pytest.mark.parametrize(
    ("rank", "world_size", "global_batch"), [(0, 3, 4), (2, 2, 4), (-1, 2, 4), (0, 0, 4), (0, 1, 0)]
)
def test_a_batch_that_cannot_be_cut_equally_is_refused(rank: int, world_size: int, global_batch: int) -> None:
    with pytest.raises(LoaderError, match=str(world_size)):
        Order([4], 0).rank_ids(0, global_batch, rank, world_size)


@pytest.mark.parametrize(
    ("shard_rows", "options"),
    [([], {}), ([3, 0], {}), ([3], {"seed": -1}), ([3], {"lanes": 0}), ([3], {"shards_per_block": 0})],
)
def test_constants_out_of_range_are_refused(shard_rows: list[int], options: dict[str, int]) -> None:
    with pytest.raises(LoaderError, match=r"at least one|must be"):
        Order(shard_rows, **{"seed": 0, **options})


@pytest.mark.parametrize("most", [3, 1000, 2**62])
def test_fast_sorts_agree_with_numpys_stable_ones(most: int) -> None:
    ids = np.random.default_rng(most).integers(0, most, (7, 33))
    assert (rising_places(ids) == np.argsort(ids, axis=1, kind="stable")).all()
    assert distinct(ids.ravel()).tolist() == sorted(set(ids.ravel().tolist()))


def test_distinct_of_nothing_is_nothing() -> None:
    assert distinct(np.empty(0, np.int64)).tolist() == []
