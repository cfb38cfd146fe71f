"""Orders in a simulation: in their order, one at a time, given up when they no longer stand, and never twice."""

from phalanx.bench.heap import Heap, Loaded
from phalanx.bench.prefill import Prefills
from phalanx.bench.shard_cache import ShardCaches
from phalanx.model.decision import Prefetch
from phalanx.model.job import DatasetRef


def order(name: str, size_mib: int = 100, mib: int | None = None, mbps: int = 9_000) -> Prefetch:
    data = DatasetRef(name=name, size_mib=size_mib)
    return Prefetch(host="h", dataset=data, job="j", start_s=9, mib=size_mib if mib is None else mib, mbps=mbps)


def site(fetch_mib_s: int = 10) -> tuple[Heap, ShardCaches, Prefills]:
    heap, caches = Heap(), ShardCaches(1_000)
    return heap, caches, Prefills(heap, caches, fetch_mib_s)


def ends(heap: Heap) -> list[tuple[int, Loaded]]:
    return [heap.pop() for _ in range(len(heap))]


def test_loads_follow_one_another() -> None:
    heap, caches, prefills = site()
    prefills.order([order("a"), order("b", 50)], 0)
    ((at_s, first),) = ends(heap)
    assert at_s == 10
    assert prefills.loaded(first, 10)
    ((at_s, second),) = ends(heap)
    assert at_s == 15
    assert prefills.loaded(second, 15)
    assert [each.dataset for each in caches.inventory("h")[0]] == ["a", "b"]
    prefills.order([order("a"), order("b", 50)], 20)
    assert ends(heap) == [], "both are there"


def test_an_order_repeated_goes_on_and_one_given_up_keeps_its_shards() -> None:
    heap, caches, prefills = site()
    prefills.order([order("a")], 0)
    prefills.order([order("a", mib=100)], 3)
    ((at_s, load),) = ends(heap)
    assert at_s == 10
    prefills.order([], 4)
    assert not prefills.loaded(load, 10), "it was given up"
    prefills.order([order("a")], 20)
    ((at_s, load),) = ends(heap)
    assert at_s == 26, "60 of 100 MiB were missing"
    assert prefills.loaded(load, 26)
    assert caches.holds("h", DatasetRef(name="a", size_mib=100))


def test_a_gang_takes_over_what_was_loaded_ahead() -> None:
    heap, _, prefills = site()
    prefills.order([order("a"), order("b")], 0)
    ((_, load),) = ends(heap)
    assert prefills.taken("h", "a", 7) == 70
    assert prefills.taken("h", "a", 7) == 0
    assert not prefills.loaded(load, 10)
    ((at_s, load),) = ends(heap)
    assert at_s == 17, "b follows at once"
    prefills.forget("h")
    assert not prefills.loaded(load, 17)
    assert prefills.taken("h", "b", 17) == 0


def test_room_and_bandwidth_bound_it() -> None:
    heap, caches, prefills = site()
    prefills.order([order("a", mib=30)], 0)
    ((at_s, load),) = ends(heap)
    assert at_s == 3
    assert not prefills.loaded(load, 3), "the rest has no room"
    assert not caches.holds("h", DatasetRef(name="a", size_mib=100))
    heap, _, prefills = site(fetch_mib_s=1_000)
    prefills.order([order("a", mbps=42)], 0)
    assert ends(heap)[0][0] == 20
