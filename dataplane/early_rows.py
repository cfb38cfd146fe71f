"""The first batches from an object store: rows by ranged reads, while the whole shards are fetched behind them.

Waiting for every shard that a first batch touches would take as long as fetching a small data set. So a shard that is
not here yet gives single rows, a quarter of them at most, until a batch needs none of that: then the start is over.
What was read so is remembered by its checksum and compared with the shard once that is whole.
"""

import logging
import os
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import xxhash

from .dataset import ShardDataset
from .errors import CacheError, CorruptShard
from .fields import DTYPES, field_offsets
from .open_shards import Shards
from .remote import ObjectSource
from .row_ranges import Array, Rows
from .shard_file import Grow

_log = logging.getLogger(__name__)
_SHARE = 4


@dataclass(frozen=True, slots=True)
class _Read:
    """Bytes of a shard that were handed out before it was whole, and their checksum."""

    offset: int
    size: int
    digest: bytes


class EarlyRows:
    """Stands before the open shards of a data set from a store, for a loader that reads ahead.

    Fields of fixed shape only. Safe for threads.
    """

    def __init__(self, dataset: ShardDataset) -> None:
        assert dataset.cache is not None
        self._shards, self._manifest, self._cache = dataset.shards, dataset.manifest, dataset.cache
        self._fields = dataset.fields
        self._lock = threading.Lock()
        # One batch's requests go out together: the first batch must not queue between those of the second.
        self._asking = threading.Lock()
        self._rows_left = {
            index: shard.rows // _SHARE
            for index, (shard, source) in enumerate(zip(self._manifest.shards, self._shards.sources, strict=True))
            if isinstance(source, ObjectSource) and shard.size_bytes > source.range_bytes
        }
        self._unproved: dict[int, list[_Read]] = {}
        self._fault: CorruptShard | None = None
        self._over = not self._rows_left

    @staticmethod
    def fits(dataset: ShardDataset) -> bool:
        """Whether rows of this data set can be read by themselves."""
        return (
            dataset.cache is not None
            and not dataset.variable_fields
            and any(isinstance(source, ObjectSource) for source in set(dataset.shards.sources))
        )

    def gather(self, shard_of: Shards, rows: Rows, out: Mapping[str, Array], grow: Grow) -> None:
        """As OpenShards.gather; rows of shards that are not here come from their store by themselves.

        Raises as that does, and CorruptShard if rows handed out before differ from their shard.
        """
        self._tell()
        early = None if self._over else self._early(shard_of)
        if early is None or not early.any():
            if not self._over:
                self._over = True
                self.rest()
            self._shards.gather(shard_of, rows, out, grow)
            return
        places = np.flatnonzero(early)
        self._read(places, shard_of, rows, out)
        if len(others := np.flatnonzero(~early)):
            part = {name: np.empty((len(others), *array.shape[1:]), array.dtype) for name, array in out.items()}
            self._shards.gather(shard_of[others], rows[others], part, grow)
            for name, array in out.items():
                array[others] = part[name]

    def warm(self, index: int, stop: threading.Event, *, open_too: bool = False) -> None:
        """As OpenShards.warm; then compares the rows that were handed out before the shard was whole."""
        try:
            self._shards.warm(index, stop, open_too=open_too)
        except CorruptShard as error:
            with self._lock:
                if index in self._unproved:
                    self._fault = self._fault or error
            raise
        self.settle()

    def give_way(self) -> None:
        """As OpenShards.give_way; also compares what has become whole meanwhile."""
        self._shards.give_way()
        self.settle()

    def settle(self) -> None:
        """Compares rows handed out early with their shards, as far as these are whole; gather and finish tell."""
        with self._lock:
            waiting = [index for index in self._unproved if self._cache.holds(self._manifest.shards[index])]
            reads = {index: self._unproved.pop(index) for index in waiting}
        for index, done in reads.items():
            try:
                self._compare(index, done)
            except CorruptShard as error:
                with self._lock:
                    self._fault = self._fault or error
            except (CacheError, OSError) as error:
                _log.debug("rows of shard %s are compared later: %s", index, error)
                with self._lock:
                    self._unproved.setdefault(index, []).extend(done)

    def rest(self) -> None:
        """Lets go of the threads that read single rows."""
        for source in set(self._shards.sources):
            if isinstance(source, ObjectSource):
                source.rest()

    def finish(self) -> None:
        """Compares what can be compared. Raises CorruptShard; warns of rows whose shards never came."""
        self.settle()
        self._tell()
        with self._lock:
            names = [self._manifest.shards[index].file for index in sorted(self._unproved)]
        if names:
            _log.warning(
                "the loader was closed before %d shards (%s ...) were whole: their first rows, read by range, were "
                "not compared with a checksum",
                len(names),
                names[0],
            )

    def _tell(self) -> None:
        with self._lock:
            fault = self._fault
        if fault is not None:
            raise fault

    def _early(self, shard_of: Shards) -> Any:
        """Which rows of a batch are read by themselves; they count against their shard's share."""
        early = np.zeros(len(shard_of), bool)
        with self._lock:
            for index in dict.fromkeys(shard_of.tolist()):
                chosen = shard_of == index
                count = int(chosen.sum())
                left = self._rows_left.get(index, 0)
                if left < count or self._cache.holds(self._manifest.shards[index]):
                    self._rows_left.pop(index, None)
                    continue
                self._rows_left[index] = left - count
                early |= chosen
        return early

    def _read(self, places: Any, shard_of: Shards, rows: Rows, out: Mapping[str, Array]) -> None:
        """All shards at once, each in a request or a few."""
        jobs: list[tuple[int, Any, Any, Future[list[memoryview]]]] = []
        with self._asking:
            for index in dict.fromkeys(shard_of[places].tolist()):
                source = self._shards.sources[index]
                assert isinstance(source, ObjectSource)
                mine = places[shard_of[places] == index]
                starts, sizes = self._spans(index, rows[mine])
                file = self._manifest.shards[index].file
                jobs.append((index, mine, (starts, sizes), source.ranges(file, starts, sizes)))
        try:
            for index, mine, (starts, sizes), answer in jobs:
                self._take(index, mine, starts, sizes, self._answer(index, answer), out)
        finally:
            for *_, answer in jobs:
                answer.cancel()

    def _spans(self, index: int, rows: Rows) -> tuple[list[int], list[int]]:
        """Where the rows lie in the shard's file: field by field, row by row."""
        shard = self._manifest.shards[index]
        offsets = field_offsets(self._fields, shard.rows)
        starts = [offsets[field.name] + row * field.row_bytes for field in self._fields for row in rows.tolist()]
        return starts, [field.row_bytes for field in self._fields for _ in range(len(rows))]

    def _answer(self, index: int, answer: "Future[list[memoryview]]") -> list[memoryview]:
        shard, source = self._manifest.shards[index], self._shards.sources[index]
        try:
            return answer.result()
        except FileNotFoundError as error:
            raise CacheError(f"shard {shard.file} is missing in {source}") from error
        except PermissionError as error:
            raise CacheError(f"shard {shard.file} may not be read from {source}: {error}") from error
        except OSError as error:
            raise CacheError(
                f"shard {shard.file} from {source}: its first rows cannot be read: {error} "
                f"(host {socket.gethostname()})"
            ) from error

    def _take(
        self,
        index: int,
        mine: Any,
        starts: list[int],
        sizes: list[int],
        pieces: list[memoryview],
        out: Mapping[str, Array],
    ) -> None:
        reads = [
            _Read(start, size, xxhash.xxh3_128_digest(piece))
            for start, size, piece in zip(starts, sizes, pieces, strict=True)
        ]
        with self._lock:
            self._unproved.setdefault(index, []).extend(reads)
        following = iter(pieces)
        for field in self._fields:
            for place, piece in zip(mine.tolist(), islice(following, len(mine)), strict=True):
                out[field.name][place] = np.frombuffer(piece, DTYPES[field.dtype][1]).reshape(field.shape)

    def _compare(self, index: int, reads: list[_Read]) -> None:
        shard, source = self._manifest.shards[index], self._shards.sources[index]
        with self._cache.pin(shard, source, wait=False) as path, path.open("rb") as file:
            wrong = [
                each
                for each in reads
                if xxhash.xxh3_128_digest(os.pread(file.fileno(), each.size, each.offset)) != each.digest
            ]
        if wrong:
            raise CorruptShard(
                f"shard {shard.file} from {source}: {wrong[0].size} bytes at {wrong[0].offset}, handed out before the "
                f"shard was whole, are not those of the checked shard; {len(wrong)} of {len(reads)} such reads differ "
                f"(host {socket.gethostname()})"
            )
