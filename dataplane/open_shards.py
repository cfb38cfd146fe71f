"""Shards mapped into memory: checked on first sight, and pinned in the cache for as long as they are mapped.

Pins must not starve other processes that share a small cache. Nobody waits for room while holding a pin, and who
holds pins lets go of them when others wait: before each gather, and from the loader's read-ahead thread meanwhile.
"""

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from .cache import ShardCache
from .errors import CacheError, CacheFull, CorruptShard
from .fields import DTYPES, SPAN_SUFFIX, Field, field_offsets, fixed_fields, shard_header
from .manifest import Manifest, Shard
from .row_ranges import Array, RowRanges, Rows
from .source import FolderSource, Source

Grow = Callable[[str, int], Array]


class OpenShards:
    """The shards of one data set that this process has mapped: at most `keep`, or as many as a batch needs.

    `sources` says for each shard where it comes from; without a cache these must be folders.

    With `verify`, the bytes of each shard are hashed the first time that this process opens it. Safe for threads,
    one gather at a time; after a fork the child starts with none.
    """

    def __init__(
        self, manifest: Manifest, sources: Sequence[Source], cache: ShardCache | None, *, verify: bool, keep: int
    ) -> None:
        self._manifest = manifest
        self.sources = tuple(sources)
        self._cache = cache
        self.verify = verify
        self.keep = keep
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open: OrderedDict[int, ExitStack] = OrderedDict()
        self._verified: set[int] = set()
        self._ranges = RowRanges(self._manifest)
        self._items: dict[int, dict[str, Array]] = {}

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_lock", "_open", "_verified", "_ranges", "_items")
        return {key: value for key, value in self.__dict__.items() if key not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def gather(self, shard_of: npt.NDArray[np.intp], rows: Rows, out: Mapping[str, Array], grow: Grow) -> None:
        """Copies row rows[i] of shard shard_of[i] to out[field][i], for every fixed field and i.

        The items of a variable field go one sample after the other into `grow(name, number of items)`, and where
        each sample's begin, with their end, into out[name.offsets]. Raises CorruptShard naming the shard, CacheFull
        and CacheError.
        """
        if self._pid != os.getpid():
            self._reset()
        needed = dict.fromkeys(shard_of.tolist())
        variable = [field for field in self._manifest.fields if field.variable]
        spans = {field.name + SPAN_SUFFIX: np.empty((len(rows), 2), np.int64) for field in variable}
        fixed = {f.name: out[f.name] for f in fixed_fields(self._manifest.fields) if f.name not in spans} | spans
        with self._lock:
            if self._cache is not None and self._cache.pressed():
                self._drop(keep=0)
            if self._open_all(needed):
                self._ranges.take(shard_of, rows, fixed)
                for field in variable:
                    join(self._views(field, shard_of, spans), field, out, grow)
                return
            # The cache cannot hold all of them now: with one at a time every process gets on.
            pieces: dict[str, list[Any]] = {field.name: [None] * len(rows) for field in variable}
            for index in needed:
                self._drop(keep=0)
                self._open_one(index, wait=True)
                chosen = np.flatnonzero(shard_of == index)
                part = {name: np.empty((len(chosen), *array.shape[1:]), array.dtype) for name, array in fixed.items()}
                self._ranges.take(shard_of[chosen], rows[chosen], part)
                for name, array in fixed.items():
                    array[chosen] = part[name]
                for field in variable:
                    views = self._views(field, shard_of[chosen], part)
                    for place, view in zip(chosen.tolist(), views, strict=True):
                        pieces[field.name][place] = view.copy()
            for field in variable:
                join(pieces[field.name], field, out, grow)

    def _views(self, field: Field, shard_of: npt.NDArray[np.intp], spans: Mapping[str, Array]) -> list[Array]:
        bounds = spans[field.name + SPAN_SUFFIX].tolist()
        return [
            self._items[shard][field.name][begin:end]
            for shard, (begin, end) in zip(shard_of.tolist(), bounds, strict=True)
        ]

    def warm(self, index: int, stop: threading.Event, piece_bytes: int = 1 << 20) -> None:
        """Fetches a shard if there is room and asks the system to read it into memory, by pieces, until `stop`."""
        with self._pinned(index, wait=False) as path:
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
            path = stack.enter_context(self._pinned(index, wait))
            verify = self.verify and index not in self._verified
            with _open_checked(shard, path, self._manifest.fields, verify) as file:
                self._ranges.place(index, file.fileno())
                stack.callback(self._ranges.clear, index)
                if shard.items:
                    self._items[index] = _map_items(file.fileno(), shard, self._manifest.fields)
                    stack.callback(self._items.pop, index)
            self._open[index] = stack.pop_all()
        self._verified.add(index)

    def _drop(self, keep: int, but: Collection[int] = ()) -> None:
        """Lets go of the shards unused for longest until `keep` are left, but of none in `but`."""
        for index in [index for index in self._open if index not in but]:
            if len(self._open) <= keep:
                break
            self._open.pop(index).close()

    def _pinned(self, index: int, wait: bool) -> AbstractContextManager[Path]:
        shard, source = self._manifest.shards[index], self.sources[index]
        if self._cache is not None:
            return self._cache.pin(shard, source, wait=wait)
        if not isinstance(source, FolderSource):
            raise CacheError(f"{source}: shards of an object store are read through a cache; give one")
        return nullcontext(source.folder / shard.file)


def join(views: list[Array], field: Field, out: Mapping[str, Array], grow: Grow) -> None:
    """Copies the items of many samples into one array, and notes where each sample's begin, with their end."""
    offsets = out[field.name + ".offsets"]
    offsets[0] = 0
    np.cumsum([len(view) for view in views], out=offsets[1:])
    total = int(offsets[-1])
    target = grow(field.name, total)
    if views:
        np.concatenate(views, out=target[:total])


def _map_items(descriptor: int, shard: Shard, fields: tuple[Field, ...]) -> dict[str, Array]:
    """Arrays over the items of each variable field; the mapping lives as long as any of them."""
    items = dict(shard.items)
    offsets = field_offsets(fields, shard.rows, items)
    data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    return {
        field.name: np.ndarray(
            (items[field.name], *field.shape), DTYPES[field.dtype][1], buffer=data, offset=offsets[field.name]
        )
        for field in fields
        if field.variable
    }


def check_file(shard: Shard, path: Path, fields: tuple[Field, ...]) -> None:
    """Reads a whole shard. Raises CorruptShard if it is missing or not what the manifest says."""
    _open_checked(shard, path, fields, verify=True).close()


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
            header = shard_header(fields, shard.rows, dict(shard.items))
            fits = data[: len(header)] == header
        if digest != shard.xxh3_128:
            raise CorruptShard(f"shard {shard.file}: xxh3_128 {digest}, the manifest says {shard.xxh3_128} ({path})")
        if not fits:
            raise CorruptShard(f"shard {shard.file}: its header does not fit the manifest's fields and rows ({path})")
        on_error.pop_all()
    return file
