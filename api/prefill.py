"""Pre-stage orders carried out by the dataplane: the cache of a host filled with a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.decision import Prefetch

if TYPE_CHECKING:
    from ..dataplane.bandwidth import Bandwidth
    from ..dataplane.source import FolderSource

BYTES_PER_MBIT = 125_000


class _Stopped(Exception):
    """The order no longer stands, or the agent ends."""


class _Slowly:
    """A folder read within a bandwidth, as object stores are by themselves."""

    def __init__(self, source: FolderSource, bandwidth: Bandwidth) -> None:
        self._source, self._bandwidth = source, bandwidth

    def __str__(self) -> str:
        return str(self._source)

    def stream(self, file: str) -> Iterator[memoryview]:
        for piece in self._source.stream(file):
            self._bandwidth.take(len(piece))
            yield piece

    def read(self, file: str) -> bytes:
        return self._source.read(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFiller:
    """Fills `cache` (at most `budget` bytes) from the data set of the ordered name in `datasets`, a folder or address.

    Called with an order and what says that it is to end; returns what keeps it from loading, in words, or nothing.
    `bandwidth` in bytes per second bounds what orders allow.
    """

    cache: Path
    datasets: str | None
    budget: int | None
    threads: int = 4
    bandwidth: int | None = None

    def __call__(self, order: Prefetch, stop: Callable[[], bool]) -> str:
        """See the class."""
        if not self.datasets or not self.budget:
            lacking = [name for name in ("datasets", "budget") if not getattr(self, name)]
            return f"this agent was started without {' and '.join(f'--{name}' for name in lacking)}"
        name = order.dataset.name
        if "://" in name or name.startswith("/") or ".." in name.split("/"):
            return f"its name is no place below {self.datasets}"
        try:
            from ..dataplane.errors import DataplaneError
        except ImportError as fault:  # the folder is always there; only a broken install gets here
            return f"the dataplane cannot be loaded: {fault}"
        try:
            return self._fill(f"{self.datasets.rstrip('/')}/{name}", self.budget, order, stop)
        except _Stopped:
            return ""
        except ModuleNotFoundError as fault:
            return f"the package {fault.name} is missing; install it with: pip install 'phalanx[train]'"
        except (DataplaneError, OSError) as fault:
            return str(fault)

    def _fill(self, address: str, budget: int, order: Prefetch, stop: Callable[[], bool]) -> str:
        from ..dataplane.bandwidth import Bandwidth
        from ..dataplane.cache import ShardCache
        from ..dataplane.prestage import prefetch
        from ..dataplane.remote import open_dataset_source
        from ..dataplane.source import FolderSource

        def go_on(done: int, total: int) -> None:
            if stop():
                raise _Stopped

        dataset = order.dataset
        speed = order.mbps * BYTES_PER_MBIT
        speed = min(speed, self.bandwidth) if self.bandwidth else speed
        source, manifest = open_dataset_source(address, bytes_per_s=speed)
        if dataset.digest and manifest.digest != dataset.digest:
            return f"{address} has the digest {manifest.digest}; the job asks for {dataset.digest}"
        if not dataset.digest and manifest.name != dataset.name:
            return f"{address} is a data set named {manifest.name!r}, by which no job asks for it"
        if isinstance(source, FolderSource):
            source = _Slowly(source, Bandwidth(speed))
        cache = ShardCache(self.cache, budget)
        missing = [number for number, shard in enumerate(manifest.shards) if not cache.holds(shard)]
        if not missing or stop():
            return ""
        wanted = missing[: _share(len(missing), len(manifest.shards), order)]
        got = prefetch(manifest, source, cache, shards=wanted, threads=self.threads, progress=go_on)
        return f"{got.left_out} of {len(wanted)} shards did not fit into the cache" if got.left_out else ""


def _share(missing: int, shards: int, order: Prefetch) -> int:
    """How many of the missing shards the order means; at least one, or nothing would ever be loaded of large ones."""
    lacking_mib = -(-order.dataset.size_mib * missing // shards)
    return missing if order.mib >= lacking_mib else max(1, missing * order.mib // lacking_mib)
