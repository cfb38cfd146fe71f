"""The order of samples against a brute-force statement of it, for any data set and any change of world size."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.dataplane.order import Order

shard_rows = st.lists(st.integers(1, 9), min_size=1, max_size=9)


@st.composite
def orders(draw: st.DrawFn) -> Order:
    return Order(
        draw(shard_rows),
        draw(st.integers(0, 5)),
        shards_per_block=draw(st.integers(1, 4)),
        lanes=draw(st.integers(1, 6)),
        shuffle=draw(st.booleans()),
    )


@given(orders())
@settings(deadline=None)
def test_each_epoch_is_a_permutation_and_epochs_have_no_gap(order: Order) -> None:
    ids = order.ids(np.arange(3 * order.rows)).reshape(3, order.rows)
    for epoch in ids:
        assert sorted(epoch.tolist()) == list(range(order.rows))


@given(orders())
@settings(deadline=None)
def test_lanes_are_equal_runs_of_blocks_read_round_robin(order: Order) -> None:
    """The definition spelled out: the epoch's sequence, block after block, cut into lanes."""
    one_lane = Order(
        order._shard_rows.tolist(), order.seed, shards_per_block=order.shards_per_block, lanes=1, shuffle=order.shuffle
    )
    sequence = one_lane.ids(np.arange(order.rows)).tolist()
    length, longer = divmod(order.rows, order.lanes)
    lanes = []
    for lane in range(order.lanes):
        size = length + (lane < longer)
        lanes.append(sequence[:size])
        sequence = sequence[size:]
    expected = [lane[turn] for turn in range(length + 1) for lane in lanes if turn < len(lane)]
    assert order.ids(np.arange(order.rows)).tolist() == expected


@given(orders())
@settings(deadline=None)
def test_a_block_is_read_through_before_the_next(order: Order) -> None:
    one_lane = Order(order._shard_rows.tolist(), order.seed, shards_per_block=order.shards_per_block, lanes=1)
    shard_of = np.repeat(np.arange(len(order._shard_rows)), order._shard_rows)
    seen = shard_of[one_lane.ids(np.arange(order.rows))]
    start = 0
    while start < order.rows:
        shards = one_lane.block_shards([start])
        size = int(order._shard_rows[shards].sum())
        assert set(seen[start : start + size].tolist()) == set(shards)
        start += size


@given(orders(), st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), min_size=1, max_size=12))
@settings(deadline=None)
def test_any_sequence_of_world_sizes_and_batches_reads_the_same_stream(
    order: Order, plan: list[tuple[int, int]]
) -> None:
    g = 0
    for world_size, per_rank in plan:
        global_batch = world_size * per_rank
        pieces = [order.rank_ids(g, global_batch, rank, world_size) for rank in range(world_size)]
        assert {len(piece) for piece in pieces} == {per_rank}
        reference = order.ids(np.arange(g, g + global_batch))
        assert sorted(np.concatenate(pieces).tolist()) == sorted(reference.tolist())
        g += global_batch


@given(orders(), st.integers(0, 200), st.integers(1, 4), st.integers(1, 5))
@settings(deadline=None)
def test_a_fresh_order_agrees_with_one_that_has_read_everything_before(
    order: Order, g: int, world_size: int, per_rank: int
) -> None:
    fresh = Order(
        order._shard_rows.tolist(),
        order.seed,
        shards_per_block=order.shards_per_block,
        lanes=order.lanes,
        shuffle=order.shuffle,
    )
    order.ids(np.arange(g + 1))
    for rank in range(world_size):
        cut = (g, world_size * per_rank, rank, world_size)
        assert order.rank_ids(*cut).tolist() == fresh.rank_ids(*cut).tolist()
