"""Shards mapped into memory: checked on first sight, and pinned in the cache for as long as they are mapped.

Pins must not starve other processes that share a small cache. Nobody waits for room while holding a pin, and who
holds pins lets go of them when others wait: before each gather, and from the loader's read-ahead thread meanwhile.
"""

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from .cache import ShardCache
from .errors import CacheFull, CorruptShard
from .fields import Field, shard_header
from .manifest import Manifest, Shard
from .row_ranges import Array, RowRanges, Rows
from .source import FolderSource


class OpenShards:
    """The shards of one data set that this process has mapped: at most `keep`, or as many as a batch needs.

    With `verify`, the bytes of each shard are hashed the first time that this process opens it. Safe for threads,
    one gather at a time; after a fork the child starts with none.
    """

    def __init__(self, manifest: Manifest, folder: Path, cache: ShardCache | None, *, verify: bool, keep: int) -> None:
        self._manifest = manifest
        self._folder = folder
        self._source = FolderSource(folder)
        self._cache = cache
        self._verify = verify
        self.keep = keep
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open: OrderedDict[int, ExitStack] = OrderedDict()
        self._verified: set[int] = set()
        self._ranges = RowRanges(self._manifest)

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_lock", "_open", "_verified", "_ranges")
        return {key: value for key, value in self.__dict__.items() if key not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def gather(self, shard_of: npt.NDArray[np.intp], rows: Rows, out: Mapping[str, Array]) -> None:
        """Copies row rows[i] of shard shard_of[i] to out[field][i], for every field and i.

        Raises CorruptShard naming the shard, CacheFull and CacheError.
        """
        if self._pid != os.getpid():
            self._reset()
        needed = dict.fromkeys(shard_of.tolist())
        with self._lock:
            if self._cache is not None and self._cache.pressed():
                self._drop(keep=0)
            if self._open_all(needed):
                self._ranges.take(shard_of, rows, out)
                return
            # The cache cannot hold all of them now: with one at a time every process gets on.
            for index in needed:
                self._drop(keep=0)
                self._open_one(index, wait=True)
                chosen = np.flatnonzero(shard_of == index)
                part = {name: np.empty((len(chosen), *array.shape[1:]), array.dtype) for name, array in out.items()}
                self._ranges.take(shard_of[chosen], rows[chosen], part)
                for name, array in out.items():
                    array[chosen] = part[name]

    def warm(self, index: int, stop: threading.Event, piece_bytes: int = 1 << 20) -> None:
        """Fetches a shard if there is room and asks the system to read it into memory, by pieces, until `stop`."""
        with self._pinned(self._manifest.shards[index], wait=False) as path:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for offset in range(0, self._manifest.shards[index].size_bytes, piece_bytes):
                    if stop.is_set():
                        return
                    os.posix_fadvise(descriptor, offset, piece_bytes, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def give_way(self) -> None:
        """Lets go of all shards if other processes wait for room in the cache and no gather is under way."""
        if self._cache is not None and self._cache.pressed() and self._lock.acquire(blocking=False):
            try:
                self._drop(keep=0)
            finally:
                self._lock.release()

    def close(self) -> None:
        """Lets go of all shards."""
        with self._lock:
            self._drop(keep=0)

    def _open_all(self, needed: Collection[int]) -> bool:
        for index in needed:
            if index in self._open:
                self._open.move_to_end(index)
        for index in needed:
            if index in self._open:
                continue
            self._drop(keep=max(self.keep, len(needed)) - 1, but=needed)
            try:
                self._open_one(index, wait=False)
            except CacheFull:
                self._drop(keep=0, but=needed)
                try:
                    self._open_one(index, wait=False)
                except CacheFull:
                    return False
        return True

    def _open_one(self, index: int, *, wait: bool) -> None:
        shard = self._manifest.shards[index]
        try:
            self._map(index, shard, wait)
        except CorruptShard:
            if self._cache is None:
                raise
            # The copy on this host's disk has gone bad; the source may still be good.
            self._cache.discard(shard)
            self._map(index, shard, wait)

    def _map(self, index: int, shard: Shard, wait: bool) -> None:
        with ExitStack() as stack:
            path = stack.enter_context(self._pinned(shard, wait))
            verify = self._verify and index not in self._verified
            with _open_checked(shard, path, self._manifest.fields, verify) as file:
                self._ranges.place(index, file.fileno())
            stack.callback(self._ranges.clear, index)
            self._open[index] = stack.pop_all()
        self._verified.add(index)

    def _drop(self, keep: int, but: Collection[int] = ()) -> None:
        """Lets go of the shards unused for longest until `keep` are left, but of none in `but`."""
        for index in [index for index in self._open if index not in but]:
            if len(self._open) <= keep:
                break
            self._open.pop(index).close()

    def _pinned(self, shard: Shard, wait: bool) -> AbstractContextManager[Path]:
        if self._cache is None:
            return nullcontext(self._folder / shard.file)
        return self._cache.pin(shard, self._source, wait=wait)


def _open_checked(shard: Shard, path: Path, fields: tuple[Field, ...], verify: bool) -> Any:
    """Opens a shard's file. Raises CorruptShard if it is missing or not what the manifest says."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        raise CorruptShard(f"shard {shard.file} is missing ({path})") from None
    with ExitStack() as on_error:
        on_error.callback(file.close)
        size = os.fstat(file.fileno()).st_size
        if size != shard.size_bytes:
            raise CorruptShard(f"shard {shard.file}: {size} bytes, the manifest says {shard.size_bytes} ({path})")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            digest = xxhash.xxh3_128_hexdigest(data) if verify else shard.xxh3_128
            header = shard_header(fields, shard.rows)
            fits = data[: len(header)] == header
        if digest != shard.xxh3_128:
            raise CorruptShard(f"shard {shard.file}: xxh3_128 {digest}, the manifest says {shard.xxh3_128} ({path})")
        if not fits:
            raise CorruptShard(f"shard {shard.file}: its header does not fit the manifest's fields and rows ({path})")
        on_error.pop_all()
    return file
