import threading

import numpy as np
import pytest

from phalanx.dataplane import Order
from phalanx.dataplane.order import rank_share
from phalanx.dataplane.plan import Planner
from phalanx.dataplane.schedule import Schedule, Tail

SHARDS = [7, 9, 5, 8, 6, 3]
STARTS = np.cumsum([0, *SHARDS])


@pytest.mark.parametrize("tail", ["run_on", "drop", "pad"])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("sort", [True, False])
def test_pieces_are_those_worked_out_one_by_one(tail: Tail, world_size: int, sort: bool) -> None:
    order, schedule = Order(SHARDS, 3, shards_per_block=2, lanes=2), Schedule(sum(SHARDS), 6, tail)
    rank = world_size - 1
    planner = Planner(order, schedule, STARTS, rank, world_size, 12, sort=sort)
    g = schedule.start(12)
    for _ in range(40):
        piece = planner.piece(g)
        positions, real = schedule.positions(g)
        mine = rank_share(order.lane(positions), rank, world_size)
        if not sort:
            assert piece.positions.tolist() == positions[mine].tolist()
        assert sorted(piece.positions.tolist()) == sorted(positions[mine].tolist())
        assert int(piece.real.sum()) == int(real[mine].sum())
        assert piece.ids.tolist() == order.ids(piece.positions).tolist()
        if sort:
            assert (np.diff(piece.ids) >= 0).all()
        assert (STARTS[piece.shard_of] + piece.rows == piece.ids).all()
        assert all(row < SHARDS[shard] for shard, row in zip(piece.shard_of, piece.rows, strict=True))
        g = schedule.after(g)


def test_threads_that_ask_out_of_turn_get_what_they_ask_for() -> None:
    order, schedule = Order(SHARDS, 0), Schedule(sum(SHARDS), 4)
    planner = Planner(order, schedule, STARTS, 0, 1, 0, sort=True)
    got: dict[int, list[int]] = {}

    def take(first: int) -> None:
        for g in range(first, 800, 12):
            got[g] = planner.piece(g).ids.tolist()

    threads = [threading.Thread(target=take, args=(first,)) for first in (8, 4, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {g: order.rank_ids(g, 4, 0, 1).tolist() for g in got}
    assert len(got) == 200


def test_blocks_in_use_and_the_next_ones_are_asked_for_before_they_are_needed() -> None:
    order, schedule = Order([8] * 40, 0, shards_per_block=2, lanes=2), Schedule(320, 4)
    asked: set[int] = set()
    planner = Planner(order, schedule, np.arange(0, 321, 8), 0, 1, 0, sort=True, ahead=asked.update)
    for g in range(0, 640, 4):
        assert set(planner.piece(g).shard_of.tolist()) <= asked
        assert set(order.block_shards(np.arange(g, g + 4) + order.block_span)) <= asked
