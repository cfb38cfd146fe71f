"""Shards on the host's own disk: fetched once a host, whole or absent, within a byte budget.

    objects/<xxh3_128>.shard   a whole shard; .part while it is being fetched
    locks/<xxh3_128>.lock      flocked shared by readers, exclusively to fetch or remove; never removed itself
    locks/evict.lock           held to count bytes, remove, reserve and rename
    datasets/<digest>.json     what each data set consists of, for the inventory

Shards are named by their content, so data sets that use the same file names cannot meet, and data sets that share
shards share them here. Locks die with their process. A process holding a shard's lock may wait for the evict lock;
under the evict lock shard locks are only tried, never waited for, so nobody waits in a circle.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from .errors import CacheError, CacheFull, CorruptShard
from .files import fsync_folder, write_atomic
from .inventory import DATASETS, LOCKS, OBJECT_SUFFIX, OBJECTS
from .manifest import Manifest, Shard
from .source import Source

PART_SUFFIX = ".part"
_TOUCH_EVERY_S = 1.0
_LOOK_AGAIN_S = 0.02


class ShardCache:
    """A cache folder shared by all processes of a host, at once and one after another.

    `budget_bytes` bounds whole and half-fetched shards together. A fetch that finds no room, because other
    processes are reading everything there is, waits `wait_s` seconds before it raises CacheFull. A fetch whose
    bytes are wrong or that breaks off is tried `attempts` times. Only files that the cache made are ever removed.
    """

    def __init__(self, root: str | Path, budget_bytes: int, *, wait_s: float = 60.0, attempts: int = 3) -> None:
        if budget_bytes < 1 or attempts < 1:
            raise CacheError(f"budget_bytes {budget_bytes} and attempts {attempts} must be positive")
        self.root = Path(root)
        self.budget_bytes = budget_bytes
        self._wait_s = wait_s
        self._attempts = attempts
        self._objects, self._locks = self.root / OBJECTS, self.root / LOCKS
        for folder in (self._objects, self._locks, self.root / DATASETS):
            folder.mkdir(parents=True, exist_ok=True)
        self.sweep()

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
    def pin(self, shard: Shard, source: Source) -> Iterator[Path]:
        """The path of a whole shard, fetched if absent, that nobody removes while the context is open.

        Raises CacheFull, CacheError if the source cannot be read, and CorruptShard if its bytes are wrong.
        """
        path = self._objects / (shard.xxh3_128 + OBJECT_SUFFIX)
        lock = self._open_lock(shard.xxh3_128)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            while not _is_whole(path, shard):
                # flock gives the shared lock up before it waits for the exclusive one, and once more on the way
                # back; what was true before may not be true after, in both directions.
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not _is_whole(path, shard):
                    self._fetch(shard, source, path)
                fcntl.flock(lock, fcntl.LOCK_SH)
            _touch(path)
            yield path
        finally:
            os.close(lock)

    def discard(self, shard: Shard) -> None:
        """Removes a shard whose bytes have gone bad on this disk, once its readers are done."""
        lock = self._open_lock(shard.xxh3_128)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (self._objects / (shard.xxh3_128 + OBJECT_SUFFIX)).unlink(missing_ok=True)
        finally:
            os.close(lock)

    def used_bytes(self) -> int:
        """Bytes of all whole and half-fetched shards."""
        with self._evicting():
            return sum(size for _, size, _ in self._files())

    def sweep(self) -> None:
        """Removes what fetches left behind whose process died."""
        with self._evicting():
            self._reap()

    def _fetch(self, shard: Shard, source: Source, path: Path) -> None:
        """Makes the shard present; the caller holds its exclusive lock."""
        part = path.with_suffix(PART_SUFFIX)
        reasons = []
        for _ in range(self._attempts):
            target = self._reserve(shard, part)
            try:
                reason = _download(shard, source, target)
                if reason is None:
                    # Under the evict lock: a count meanwhile could see neither the old name nor the new one.
                    with self._evicting():
                        part.rename(path)
                    fsync_folder(self._objects)
                    return
                reasons.append(reason)
            finally:
                os.close(target)
                part.unlink(missing_ok=True)
        raise CorruptShard(f"shard {shard.file} from {source}: {reasons[-1]}, {self._attempts} times in a row")

    def _reserve(self, shard: Shard, part: Path) -> int:
        """An open file of the shard's size that counts against the budget."""
        deadline = time.monotonic() + self._wait_s
        while True:
            with self._evicting():
                part.unlink(missing_ok=True)
                used = self._make_room(shard.size_bytes)
                if used + shard.size_bytes <= self.budget_bytes:
                    return self._allocate(shard, part)
            if time.monotonic() >= deadline:
                raise CacheFull(
                    f"cache {self.root}: no room for shard {shard.file} ({shard.size_bytes} bytes): {used} of "
                    f"{self.budget_bytes} bytes are in use by readers and fetches; raise the budget"
                )
            time.sleep(_LOOK_AGAIN_S)

    def _allocate(self, shard: Shard, part: Path) -> int:
        target = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            os.posix_fallocate(target, 0, shard.size_bytes)
        except OSError as error:
            os.close(target)
            part.unlink(missing_ok=True)
            raise CacheError(
                f"cache {self.root}: cannot reserve {shard.size_bytes} bytes on the disk: {error}"
            ) from error
        return target

    def _make_room(self, wanted: int) -> int:
        """Removes least recently used shards until `wanted` bytes fit or none is left that nobody reads.

        The caller holds the evict lock. Returns the bytes still in use.
        """
        self._reap()
        files = sorted(self._files())
        used = sum(size for _, size, _ in files)
        for _, size, path in files:
            if used + wanted <= self.budget_bytes:
                break
            if path.suffix == OBJECT_SUFFIX and self._remove_if_idle(path):
                used -= size
        return used

    def _reap(self) -> None:
        for _, _, path in self._files():
            if path.suffix == PART_SUFFIX:
                self._remove_if_idle(path)

    def _files(self) -> list[tuple[int, int, Path]]:
        """(time of last use, bytes, path) of every file here that the cache made."""
        files = []
        with os.scandir(self._objects) as entries:
            for entry in entries:
                path = Path(entry.path)
                if path.suffix in (OBJECT_SUFFIX, PART_SUFFIX) and (self._locks / f"{path.stem}.lock").exists():
                    state = entry.stat(follow_symlinks=False)
                    files.append((state.st_mtime_ns, state.st_size, path))
        return files

    def _remove_if_idle(self, path: Path) -> bool:
        lock = self._open_lock(path.stem)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            path.unlink(missing_ok=True)
            return True
        finally:
            os.close(lock)

    @contextmanager
    def _evicting(self) -> Iterator[None]:
        lock = self._open_lock("evict")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _open_lock(self, name: str) -> int:
        return os.open(self._locks / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _is_whole(path: Path, shard: Shard) -> bool:
    try:
        return path.stat().st_size == shard.size_bytes
    except FileNotFoundError:
        return False


def _touch(path: Path) -> None:
    if time.time() - path.stat().st_mtime > _TOUCH_EVERY_S:
        os.utime(path)


def _download(shard: Shard, source: Source, target: int) -> str | None:
    """Copies a shard, hashing on the way, and makes it durable. Returns what is wrong with it, if anything."""
    digest, size = xxhash.xxh3_128(), 0
    try:
        for piece in source.stream(shard.file):
            size += len(piece)
            if size > shard.size_bytes:
                return f"more than the promised {shard.size_bytes} bytes"
            digest.update(piece)
            _write_all(target, piece)
    except FileNotFoundError as error:
        raise CacheError(f"shard {shard.file} is missing in {source}") from error
    except OSError as error:
        return f"broke off after {size} bytes ({error})"
    if size != shard.size_bytes or digest.hexdigest() != shard.xxh3_128:
        return f"{size} bytes with xxh3_128 {digest.hexdigest()}, promised {shard.size_bytes} with {shard.xxh3_128}"
    os.fsync(target)
    return None


def _write_all(target: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(target, piece) :]
