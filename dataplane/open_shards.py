"""Shards mapped into memory, checked on first sight, and pinned in the cache while their rows are read."""

import mmap
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from .cache import ShardCache
from .errors import CorruptShard
from .fields import DTYPES, Field, field_offsets, shard_header
from .manifest import Manifest, Shard
from .source import FolderSource

Array = np.ndarray[Any, np.dtype[Any]]

_LOOK_FOR_REMOVED_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Mapped:
    identity: tuple[int, int]
    path: Path
    arrays: Mapping[str, Array]


class OpenShards:
    """The shards of one data set that this process has mapped, at most `keep` of them.

    With `verify`, the bytes of each shard are hashed the first time that this process opens it. Safe for threads;
    after a fork the child starts with none.
    """

    def __init__(self, manifest: Manifest, folder: Path, cache: ShardCache | None, *, verify: bool, keep: int) -> None:
        self._manifest = manifest
        self._folder = folder
        self._source = FolderSource(folder)
        self._cache = cache
        self._verify = verify
        self._keep = keep
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._mapped: OrderedDict[int, _Mapped] = OrderedDict()
        self._verified: set[int] = set()
        self._looked_s = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_lock", "_mapped", "_verified")
        return {key: value for key, value in self.__dict__.items() if key not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @contextmanager
    def rows(self, index: int) -> Iterator[Mapping[str, Array]]:
        """The arrays of one shard, (rows, *field.shape) each, while the context is open.

        Raises CorruptShard naming the shard, CacheFull and CacheError.
        """
        if self._pid != os.getpid():
            self._reset()
        shard = self._manifest.shards[index]
        for may_fetch_again in (self._cache is not None, False):
            with self._pinned(shard) as path:
                try:
                    arrays = self._arrays(index, shard, path)
                except CorruptShard:
                    if not may_fetch_again:
                        raise
                else:
                    yield arrays
                    return
            # The copy on this host's disk has gone bad; the source may still be good.
            if self._cache is not None:
                self._cache.discard(shard)

    def warm(self, index: int, stop: threading.Event, piece_bytes: int = 1 << 20) -> None:
        """Fetches a shard if need be and asks the system to read it into memory, piece by piece, until `stop`."""
        with self._pinned(self._manifest.shards[index]) as path:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for offset in range(0, self._manifest.shards[index].size_bytes, piece_bytes):
                    if stop.is_set():
                        return
                    os.posix_fadvise(descriptor, offset, piece_bytes, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Lets go of every mapping; rows already copied out stay valid."""
        with self._lock:
            self._mapped.clear()

    def _pinned(self, shard: Shard) -> AbstractContextManager[Path]:
        if self._cache is None:
            return nullcontext(self._folder / shard.file)
        return self._cache.pin(shard, self._source)

    def _arrays(self, index: int, shard: Shard, path: Path) -> Mapping[str, Array]:
        with self._lock:
            self._drop_removed()
            mapped = self._mapped.get(index)
            if mapped is not None and (self._cache is None or _identity(os.stat(path)) == mapped.identity):
                self._mapped.move_to_end(index)
                return mapped.arrays
            mapped = _map(shard, path, self._manifest.fields, verify=self._verify and index not in self._verified)
            self._verified.add(index)
            self._mapped[index] = mapped
            self._mapped.move_to_end(index)
            while len(self._mapped) > self._keep:
                self._mapped.popitem(last=False)
            return mapped.arrays

    def _drop_removed(self) -> None:
        """A mapping keeps an evicted shard on the disk, where the cache no longer counts it: let go of such."""
        now = time.monotonic()
        if self._cache is None or now - self._looked_s < _LOOK_FOR_REMOVED_EVERY_S:
            return
        self._looked_s = now
        for index, mapped in list(self._mapped.items()):
            try:
                removed = _identity(os.stat(mapped.path)) != mapped.identity
            except FileNotFoundError:
                removed = True
            if removed:
                del self._mapped[index]


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


def _map(shard: Shard, path: Path, fields: tuple[Field, ...], *, verify: bool) -> _Mapped:
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            if state.st_size != shard.size_bytes:
                raise CorruptShard(
                    f"shard {shard.file}: {state.st_size} bytes, the manifest says {shard.size_bytes} ({path})"
                )
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise CorruptShard(f"shard {shard.file} is missing ({path})") from None
    if verify:
        digest = xxhash.xxh3_128_hexdigest(data)
        if digest != shard.xxh3_128:
            raise CorruptShard(f"shard {shard.file}: xxh3_128 {digest}, the manifest says {shard.xxh3_128} ({path})")
    header = shard_header(fields, shard.rows)
    if data[: len(header)] != header:
        raise CorruptShard(f"shard {shard.file}: its header does not fit the manifest's fields and rows ({path})")
    offsets = field_offsets(fields, shard.rows)
    arrays = {
        f.name: np.ndarray((shard.rows, *f.shape), DTYPES[f.dtype][1], buffer=data, offset=offsets[f.name])
        for f in fields
    }
    return _Mapped(_identity(state), path, arrays)
