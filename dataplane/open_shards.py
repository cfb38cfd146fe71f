"""Shards mapped into memory: checked on first sight, and pinned in the cache for as long as they are mapped.

Pins must not starve other processes that share a small cache. Nobody waits for room while holding a pin, and who
holds pins lets go of them when others wait: before each gather, and from the loader's read-ahead thread meanwhile.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .awaited import Awaited
from .cache import ShardCache
from .cold import ColdShards
from .errors import CacheError, CacheFull, CorruptShard, DataplaneError
from .fields import SPAN_SUFFIX, Field
from .forget import forget_rows
from .manifest import Manifest
from .order import distinct
from .row_ranges import Array, RowRanges, Rows
from .shard_file import Grow, in_memory, join, map_items, on_disk_only, open_checked, read_into_memory
from .source import FolderSource, Source
from .takes import Takes
from .unproved import Unproved

Shards = npt.NDArray[np.intp]

_A_MOMENT_S = 0.5


class OpenShards:
    """The shards of one data set that this process has mapped: at most `keep`, or as many as a batch needs.

    `sources` says for each shard where it comes from; without a cache these must be folders.

    With `verify`, the bytes of each shard are hashed the first time that this process opens it. With `prove_later`,
    which whoever calls `warm` may set, one that lies on the disk only gives up to a quarter of its rows before `warm`
    has hashed it; if it proves wrong, the next gather says so. While `awaited`, set by a loader that reads ahead, is
    hurried, gathers wait for shards to be read whole. Safe for threads; after a fork the child starts with none.
    """

    def __init__(
        self, manifest: Manifest, sources: Sequence[Source], cache: ShardCache | None, *, verify: bool, keep: int
    ) -> None:
        self._manifest = manifest
        self.sources = tuple(sources)
        self._cache = cache
        self.verify = verify
        self.prove_later = False
        self.keep = keep
        self.variable = tuple(field for field in manifest.fields if field.variable)
        self._fixed = tuple(field.name for field in manifest.fields if not field.variable)
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self.awaited: Awaited | None = None
        self._lock = threading.Lock()  # held to open and to let go
        self._takes = Takes()
        self._open: OrderedDict[int, ExitStack] = OrderedDict()
        self._waiting: dict[object, list[int]] = {}  # what each gather needs that waits for the lock
        self._verified: set[int] = set()
        self._unproved = Unproved()
        self.cold = ColdShards()
        self._ranges = RowRanges(self._manifest)
        self._items: dict[int, dict[str, Array]] = {}
        self._looked_s = dict.fromkeys(range(len(self._manifest.shards)), 0.0)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_manifest", "sources", "_cache", "verify", "prove_later", "keep", "variable", "_fixed")
        return {key: self.__dict__[key] for key in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def gather(self, shard_of: Shards, rows: Rows, out: Mapping[str, Array], grow: Grow) -> None:
        """Copies row rows[i] of shard shard_of[i] to out[field][i], for every fixed field and i.

        The items of a variable field go one sample after the other into `grow(name, number of items)`, and where
        each sample's begin, with their end, into out[name.offsets]. Raises CorruptShard naming the shard, CacheFull
        and CacheError.
        """
        if self._pid != os.getpid():
            self._reset()
        self._unproved.tell()
        needed = distinct(shard_of).tolist()
        spans = {field.name + SPAN_SUFFIX: np.empty((len(rows), 2), np.int64) for field in self.variable}
        fixed = {name: out[name] for name in self._fixed} | spans
        if self.awaited is not None and self.awaited.expects():
            self.awaited.wait([index for index in needed if self._comes_sooner_whole(index)])
        self._waiting[this := object()] = needed
        try:
            if not self._begin(this, needed, shard_of):
                # The cache cannot hold all of them now: with one at a time every process gets on.
                with self._lock:
                    self._one_by_one(needed, shard_of, rows, fixed, out, grow)
                return
            if len(cold := self.cold.among(shard_of)):
                self._ranges.will_need(shard_of[cold], rows[cold])
            self._ranges.take(shard_of, rows, fixed)
            for field in self.variable:
                join(self._views(field, shard_of, spans), field, out, grow)
        finally:
            self._waiting.pop(this, None)
            self._takes.end(this)

    def _begin(self, gather: object, needed: Collection[int], shard_of: Shards) -> bool:
        """Opens what a gather needs and keeps it open until its end; not if the cache cannot hold all of it."""
        with self._lock:
            del self._waiting[gather]
            if self._cache is not None and self._cache.pressed():
                self._drop(keep=0)
            if not self._open_all(needed):
                return False
            self._open_for_others()
            for index in self._unproved.beyond_share(shard_of):
                self._prove(index)
            self._unproved.tell()
            self._takes.begin(gather)
            return True

    def warm(self, index: int, stop: threading.Event, *, open_too: bool = False) -> None:
        """Fetches a shard if there is room and has the system read it into memory, by pieces, until `stop`.

        With `open_too` it is checked and mapped as well, so that no gather has to.
        """
        if self._just_seen_in_memory(index):
            return
        with ExitStack() as stack:
            path = stack.enter_context(self._pinned(index, wait=False))
            hurried = self.awaited is not None and self.awaited.hurried
            if hurried and index in self.cold:
                self._forget_rows(index, path)
            if not (open_too and self._unverified(index)):  # that reads it as well
                size = self._manifest.shards[index].size_bytes
                read_into_memory(path, size, stop, whole=hurried or index not in self._open)
            if open_too:
                self._open_early(index)
                if index in self._unproved:
                    self._prove(index)
        self.cold.forget(index)

    def _just_seen_in_memory(self, index: int) -> bool:
        """Whether a batch that came before has opened a shard a moment ago, and nothing is left to do."""
        done = index in self._open and index not in self.cold and index not in self._unproved
        return done and time.monotonic() < self._looked_s[index] + _A_MOMENT_S

    def give_way(self) -> None:
        """Lets go of all shards if other processes wait for room in the cache and no gather is under way."""
        if self._cache is not None and self._cache.pressed() and self._lock.acquire(blocking=False):
            try:
                self._drop(keep=0)
            finally:
                self._lock.release()

    def unproved(self) -> list[str]:
        """The files that gave rows and were not hashed yet. Raises CorruptShard for one that proved wrong."""
        self._unproved.tell()
        return [self._manifest.shards[index].file for index in self._unproved.left()]

    def close(self) -> None:
        """Lets go of all shards."""
        with self._lock:
            self._drop(keep=0)

    def _open_all(self, needed: Collection[int]) -> bool:
        missing = [index for index in needed if index not in self._open]
        for index in needed:
            if index in self._open:
                self._open.move_to_end(index)
        for index in missing:
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

    def _open_for_others(self) -> None:
        """Opens what gathers that wait for the lock need, if that is quick.

        Soon this one's rows are asked for: the first page of a shard opened later would queue behind them.
        """
        for index in [index for needed in list(self._waiting.values()) for index in needed]:
            if index in self._open or len(self._open) >= self.keep or not self._opens_quickly(index):
                continue
            try:
                self._open_one(index, wait=False)
            except (DataplaneError, OSError):
                return  # who needs it meets the same

    def _comes_sooner_whole(self, index: int) -> bool:
        """Whether single rows of a shard would be asked for from the disk."""
        return index in self.cold or (index not in self._open and self._is_here(index))

    def _forget_rows(self, index: int, path: Path) -> None:
        items = [(int(array.ctypes.data), array.nbytes) for array in self._items.get(index, {}).values()]
        with path.open("rb", buffering=0) as file:
            if not in_memory(file.fileno(), self._manifest.shards[index].size_bytes):
                forget_rows(file.fileno(), [*self._ranges.places(index), *items], self._takes)

    def _is_here(self, index: int) -> bool:
        return self._cache is None or self._cache.holds(self._manifest.shards[index])

    def _opens_quickly(self, index: int) -> bool:
        return self._is_here(index) and (self.prove_later or not self._unverified(index))

    def _one_by_one(
        self,
        needed: Collection[int],
        shard_of: Shards,
        rows: Rows,
        fixed: Mapping[str, Array],
        out: Mapping[str, Array],
        grow: Grow,
    ) -> None:
        pieces: dict[str, list[Any]] = {field.name: [None] * len(rows) for field in self.variable}
        for index in needed:
            self._drop(keep=0)
            self._open_one(index, wait=True)
            chosen = np.flatnonzero(shard_of == index)
            part = {name: np.empty((len(chosen), *array.shape[1:]), array.dtype) for name, array in fixed.items()}
            self._ranges.take(shard_of[chosen], rows[chosen], part)
            for name, array in fixed.items():
                array[chosen] = part[name]
            for field in self.variable:
                views = self._views(field, shard_of[chosen], part)
                for place, view in zip(chosen.tolist(), views, strict=True):
                    pieces[field.name][place] = view.copy()
        for field in self.variable:
            join(pieces[field.name], field, out, grow)

    def _views(self, field: Field, shard_of: Shards, spans: Mapping[str, Array]) -> list[Array]:
        bounds = spans[field.name + SPAN_SUFFIX].tolist()
        return [
            self._items[shard][field.name][begin:end]
            for shard, (begin, end) in zip(shard_of.tolist(), bounds, strict=True)
        ]

    def _open_one(self, index: int, *, wait: bool) -> None:
        """Opens a shard; the caller holds the lock."""
        with ExitStack() as stack:
            self._place(index, self._checked(index, stack, wait, later=self.prove_later), stack)

    def _open_early(self, index: int) -> None:
        """Opens a shard from another thread than those that gather, which it keeps waiting for a moment only."""
        if index in self._open:
            return
        with ExitStack() as stack:
            file = self._checked(index, stack, wait=False)
            with self._lock:
                if index not in self._open:
                    self._drop(keep=self.keep - 1)
                    self._place(index, file, stack)

    def _checked(self, index: int, stack: ExitStack, wait: bool, *, later: bool = False) -> FileIO:
        """A shard's file, pinned, and compared with its checksum if that is wanted, was not done yet, and may not
        come `later`."""
        shard, fields = self._manifest.shards[index], self._manifest.fields
        path = stack.enter_context(self._pinned(index, wait))
        verify = self._unverified(index)
        try:
            if verify and later and index not in self._unproved and on_disk_only(path):
                file = open_checked(shard, path, fields, verify=False)
                self._unproved.add(index, shard.rows)
                stack.callback(file.close)
                return file
            file = open_checked(shard, path, fields, verify)
        except CorruptShard as error:
            if index in self._unproved:
                raise self._wrong(index, error) from error
            if self._cache is None:
                raise
            # The copy on this host's disk has gone bad; the source may still be good.
            stack.close()
            self._cache.discard(shard)
            file = open_checked(shard, stack.enter_context(self._pinned(index, wait)), fields, verify=self.verify)
        stack.callback(file.close)
        self._verified.add(index)
        self._unproved.right(index)
        return file

    def _prove(self, index: int) -> None:
        """Hashes a shard of which rows were handed out. Raises CorruptShard, as does every later gather."""
        shard = self._manifest.shards[index]
        try:
            with self._pinned(index, wait=False) as path:
                open_checked(shard, path, self._manifest.fields, verify=True).close()
        except CorruptShard as error:
            raise self._wrong(index, error) from error
        except CacheError:
            self._unproved.tell()  # another thread has just found it wrong, and removed it
            raise
        self._verified.add(index)
        self._unproved.right(index)

    def _wrong(self, index: int, error: CorruptShard) -> CorruptShard:
        """Notes what every gather says from now on, and then removes the cache's copy."""
        told = self._unproved.wrong(index, error)
        if self._cache is not None:
            self._cache.discard(self._manifest.shards[index])
        return told

    def _unverified(self, index: int) -> bool:
        return self.verify and index not in self._verified

    def _place(self, index: int, file: FileIO, stack: ExitStack) -> None:
        shard = self._manifest.shards[index]
        self._ranges.place(index, file.fileno())
        stack.callback(self._ranges.clear, index)
        if shard.items:
            self._items[index] = map_items(file.fileno(), shard, self._manifest.fields)
            stack.callback(self._items.pop, index)
        self._looked_s[index] = time.monotonic()
        if not in_memory(file.fileno(), shard.size_bytes):
            self.cold.add(index, shard.rows)
            stack.callback(self.cold.forget, index)
        file.close()
        self._open[index] = stack.pop_all()

    def _drop(self, keep: int, but: Collection[int] = ()) -> None:
        """Lets go of the shards unused for longest until `keep` are left, but of none in `but`."""
        if len(self._open) <= keep:
            return
        self._takes.wait_for_none()
        for index in [index for index in self._open if index not in but]:
            if len(self._open) <= keep:
                break
            self._open.pop(index).close()

    def _pinned(self, index: int, wait: bool) -> AbstractContextManager[Path]:
        shard, source = self._manifest.shards[index], self.sources[index]
        if self._cache is not None:
            return self._cache.pin(shard, source, wait=wait)
        if not isinstance(source, FolderSource):
            raise CacheError(f"{source}: an object store is read through a cache; give one")
        return nullcontext(source.folder / shard.file)
