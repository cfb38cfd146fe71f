"""Filling a host's cache before a job needs it."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from .cache import ShardCache
from .errors import CacheError, CacheFull
from .manifest import Manifest, Shard
from .source import Source

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Prefetched:
    """What the cache holds afterwards: shards and bytes of the data set, and shards for which there was no room."""

    shards: int
    size_bytes: int
    left_out: int


def prefetch(
    manifest: Manifest,
    source: Source,
    cache: ShardCache,
    *,
    shards: Sequence[int] | None = None,
    threads: int = 4,
    progress: Progress = lambda _done, _total: None,
) -> Prefetched:
    """Fetches shards (numbers in the manifest; default all) that are not there yet, `threads` at a time.

    Only as many as fit in the budget, in the given order: fetching more would evict what was fetched first.
    `progress(done, total)` is called after each. Raises CacheError and CorruptShard as `ShardCache.pin` does.
    """
    if threads < 1:
        raise CacheError(f"threads {threads} must be at least 1")
    cache.register(manifest)
    wanted = [manifest.shards[index] for index in (range(len(manifest.shards)) if shards is None else shards)]
    fitting: list[Shard] = []
    room = cache.budget_bytes
    for shard in wanted:
        room -= shard.size_bytes
        if room < 0:
            break
        fitting.append(shard)
    done: list[Shard] = []
    with ThreadPoolExecutor(threads, "phalanx-prefetch") as pool:
        futures = {pool.submit(_fetch, cache, shard, source): shard for shard in fitting}
        try:
            for future in as_completed(futures):
                if future.result():
                    done.append(futures[future])
                progress(len(done), len(fitting))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return Prefetched(len(done), sum(shard.size_bytes for shard in done), len(wanted) - len(done))


def _fetch(cache: ShardCache, shard: Shard, source: Source) -> bool:
    """Whether there was room: what running jobs read is not pushed out for a job that is yet to come."""
    try:
        with cache.pin(shard, source, wait=False):
            return True
    except CacheFull:
        return False
