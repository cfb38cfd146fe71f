"""The simulated shard cache: whole data sets, the least recently used goes first."""

from phalanx.bench.shard_cache import ShardCaches
from phalanx.model.job import DatasetRef


def data(name: str, size_mib: int) -> DatasetRef:
    return DatasetRef(name=name, digest=name, size_mib=size_mib)


def test_a_second_use_loads_nothing_and_the_oldest_use_makes_room() -> None:
    caches = ShardCaches(100)
    assert [caches.load("h", data(name, 40)) for name in "abab"] == [40, 40, 0, 0]
    assert caches.load("h", data("a", 40)) == 0
    assert caches.load("h", data("c", 40)) == 40
    cached, free_mib = caches.inventory("h")
    assert [each.dataset for each in cached] == ["a", "c"]
    assert free_mib == 20


def test_what_is_larger_than_the_cache_passes_by() -> None:
    caches = ShardCaches(100)
    caches.load("h", data("a", 60))
    assert [caches.load("h", data("big", 101)) for _ in range(2)] == [101, 101]
    assert [each.dataset for each in caches.inventory("h")[0]] == ["a"]


def test_hosts_have_caches_of_their_own_and_lose_them_with_the_disk() -> None:
    caches = ShardCaches(100)
    assert caches.load("h", data("a", 60)) == caches.load("i", data("a", 60)) == 60
    caches.forget("h")
    assert (caches.load("h", data("a", 60)), caches.load("i", data("a", 60))) == (60, 0)
    assert caches.inventory("nowhere") == ((), 100)
