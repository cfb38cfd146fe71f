"""Cutting sample numbers into batches, and mixing orders, against brute force."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.dataplane.mixture import MixedOrder
from phalanx.dataplane.order import Order
from phalanx.dataplane.schedule import Schedule


@given(st.integers(1, 40), st.integers(1, 50), st.sampled_from(["run_on", "drop", "pad"]), st.integers(1, 4))
@settings(deadline=None)
def test_epochs_are_covered_as_their_tail_says(epoch: int, batch: int, tail: str, epochs: int) -> None:
    if tail == "drop" and batch > epoch:
        return
    schedule = Schedule(epoch, batch, tail)  # type: ignore[arg-type]
    g, seen, batches = schedule.start(0), Counter[int](), 0
    while g < epochs * epoch:
        positions, real = schedule.positions(g)
        assert len(positions) == len(real) == batch
        if tail != "run_on":
            assert len(set((positions // epoch).tolist())) == 1
        seen.update(positions[real].tolist())
        assert schedule.start(g) == g < schedule.after(g)
        g, batches = schedule.after(g), batches + 1
    assert max(seen.values()) == 1
    if tail == "run_on":
        assert sorted(seen) == list(range(batches * batch))
    else:
        per_epoch = epoch // batch * batch if tail == "drop" else epoch
        assert Counter(g // epoch for g in seen) == dict.fromkeys(range(epochs), per_epoch)
        assert batches == epochs * schedule.batches_per_epoch


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 5)), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(1, 4),
)
@settings(deadline=None)
def test_a_mixture_is_its_parts_interleaved(parts: list[tuple[list[int], int]], seed: int, cycles: int) -> None:
    orders = [Order(rows, seed + number, shards_per_block=2, lanes=3) for number, (rows, _) in enumerate(parts)]
    weights = [weight for _, weight in parts]
    starts = np.concatenate(([0], np.cumsum([order.rows for order in orders]))).tolist()
    mixed = MixedOrder(orders, weights, starts, [0] * len(parts), seed)
    ids = mixed.ids(np.arange(cycles * sum(weights)))
    again = [int(mixed.ids([g])[0]) for g in range(cycles * sum(weights) - 1, -1, -1)][::-1]
    assert ids.tolist() == again
    for number, order in enumerate(orders):
        mine = ids[(ids >= starts[number]) & (ids < starts[number + 1])] - starts[number]
        assert mine.tolist() == order.ids(np.arange(cycles * weights[number])).tolist()
