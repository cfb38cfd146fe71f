"""Shards on the host's own disk: fetched once a host, whole or absent, within a byte budget.

    objects/<xxh3_128>.shard   a whole shard; .part while it is being fetched
    locks/<xxh3_128>.lock      flocked shared by readers, exclusively to fetch or remove; never removed itself
    locks/evict.lock           held to count bytes, remove, reserve and rename
    locks/pressure.lock        touched while somebody waits for readers to let go
    datasets/<digest>.json     what each data set consists of, for the inventory

Shards are named by their content, so data sets that use the same file names cannot meet, and data sets that share
shards share them here.
"""

import fcntl
import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .cache_room import Room, try_exclusive, try_shared
from .errors import CacheError, CacheFull, CorruptShard
from .files import write_atomic
from .inventory import DATASETS
from .manifest import Manifest, Shard
from .source import Source, copy_checked
from .stall import StallWatch, lock_within, note_holder

_TOUCH_EVERY_S = 1.0
_LOOK_AGAIN_S = 0.005
_RACES = 8


class ShardCache:
    """A cache folder shared by all processes of a host, at once and one after another.

    `budget_bytes` bounds whole and half-fetched shards together. A fetch that finds no room, because other
    processes are reading everything there is, waits `wait_s` seconds before it raises CacheFull. A fetch whose
    bytes are wrong or that breaks off is tried `attempts` times. Who waits for another process's fetch waits as long
    as it makes progress, and `stall_s` seconds longer. Only files that the cache made are ever removed. With
    `shared`, other users of the host may use the same folder; all of them must say so. Raises CacheError for a folder
    that cannot be used.
    """

    def __init__(
        self,
        root: str | Path,
        budget_bytes: int,
        *,
        wait_s: float = 60.0,
        attempts: int = 3,
        stall_s: float = 120.0,
        shared: bool = False,
    ) -> None:
        if budget_bytes < 1 or attempts < 1:
            raise CacheError(f"budget_bytes {budget_bytes} and attempts {attempts} must be positive")
        self.root = Path(root)
        self.budget_bytes = budget_bytes
        self._wait_s = wait_s
        self._attempts = attempts
        self._stall_s = stall_s
        self._room = Room(self.root, budget_bytes, stall_s, shared=shared)
        self._room.sweep()

    def register(self, manifest: Manifest) -> None:
        """Tells the inventory what a data set consists of.

        Raises CacheError if its largest shard alone is over the budget: no training on it could ever go on.
        """
        largest = max(manifest.shards, key=lambda shard: shard.size_bytes)
        if largest.size_bytes > self.budget_bytes:
            raise CacheError(
                f"cache {self.root}: the budget of {self.budget_bytes} bytes cannot hold even one shard of "
                f"{manifest.name!r} ({largest.file}, {largest.size_bytes} bytes); raise it or write smaller shards"
            )
        record = self.root / DATASETS / f"{manifest.digest}.json"
        if not record.exists():
            shards = [[shard.xxh3_128, shard.size_bytes] for shard in manifest.shards]
            write_atomic(record, json.dumps({"name": manifest.name, "shards": shards}).encode())

    @contextmanager
    def pin(self, shard: Shard, source: Source, *, wait: bool = True) -> Iterator[Path]:
        """The path of a whole shard, fetched if absent, that is not evicted while the context is open.

        Raises CacheFull, CacheError if the source cannot be read, and CorruptShard if its bytes are wrong. Who holds
        other pins must not `wait`: then CacheFull comes at once, or when others begin to wait for room.
        """
        path = self._room.path(shard)
        deadline = time.monotonic() + (self._wait_s if wait else 0.0)
        races = 0
        lock = self._room.open_lock(shard.xxh3_128)
        try:
            self._share(lock, shard, wait)
            while not _is_whole(path, shard):
                # Whether it succeeds or not, asking for the exclusive lock gives the shared one up, and so does the
                # way back: what was true before may not be true after, in both directions.
                if try_exclusive(lock):
                    note_holder(lock)
                    if not _is_whole(path, shard):
                        self._fetch(shard, source, deadline)
                elif races < _RACES:  # others, too, have just found it absent
                    races += 1
                    time.sleep(random.uniform(0, _LOOK_AGAIN_S))
                else:
                    self._room.wait_for_readers(f"shard {shard.file} was removed under its readers", deadline)
                self._share(lock, shard, wait)
            _touch(path)
            yield path
        finally:
            os.close(lock)

    def holds(self, shard: Shard) -> bool:
        """Whether a shard is whole here at this moment; it may be evicted in the next."""
        return _is_whole(self._room.path(shard), shard)

    def discard(self, shard: Shard) -> None:
        """Removes a shard whose bytes have gone bad on this disk; who has it mapped keeps what is mapped."""
        self._room.remove(shard)

    def pressed(self) -> bool:
        """Whether somebody has just been waiting for readers to let go of their pins."""
        return self._room.pressed()

    def used_bytes(self) -> int:
        """Bytes of all whole and half-fetched shards."""
        return self._room.used_bytes()

    def _share(self, lock: int, shard: Shard, wait: bool) -> None:
        """Takes the shared lock, once whoever is fetching the shard is done."""
        if try_shared(lock):
            return
        watch, what = StallWatch(self._room.part(shard), self._stall_s), f"cache {self.root}: shard {shard.file}"
        if wait:
            lock_within(lock, fcntl.LOCK_SH, watch, what)
            return
        while not try_shared(lock):
            # It may be the fetch that waits for room, and then for the caller's other pins.
            if self.pressed():
                raise CacheFull(f"{what} is being fetched while others wait for room")
            watch.look(lock, what)
            time.sleep(_LOOK_AGAIN_S)

    def _fetch(self, shard: Shard, source: Source, deadline: float) -> None:
        """Makes the shard present; the caller holds its exclusive lock."""
        fault = None
        for _ in range(self._attempts):
            target = self._room.reserve(shard, deadline)
            try:
                fault = copy_checked(shard, source, target)
                if fault is None:
                    self._room.publish(shard)
                    return
            finally:
                os.close(target)
                self._room.give_up(shard)
        assert fault is not None
        kind = CorruptShard if fault.wrong else CacheError
        raise kind(
            f"shard {shard.file} from {source}: {fault.reason}, {self._attempts} times in a row "
            f"(host {socket.gethostname()})"
        )


def _is_whole(path: Path, shard: Shard) -> bool:
    try:
        return path.stat().st_size == shard.size_bytes
    except FileNotFoundError:
        return False


def _touch(path: Path) -> None:
    """Notes the use of a shard; `discard` may have removed it in this very moment."""
    try:
        if time.time() - path.stat().st_mtime > _TOUCH_EVERY_S:
            os.utime(path)
    except FileNotFoundError:
        return
