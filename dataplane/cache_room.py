"""Room in a shard cache: what is there, within which budget, and who has to let go.

Locks die with their process. A process holding a shard's lock may wait for the evict lock; under the evict lock
shard locks are only tried, never waited for, so nobody waits in a circle.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import CacheError, CacheFull
from .files import fsync_folder
from .inventory import DATASETS, LOCKS, OBJECT_SUFFIX, OBJECTS
from .manifest import Shard
from .stall import StallWatch, lock_within, note_holder

PART_SUFFIX = ".part"

_EVICT, _PRESSURE = "evict", "pressure"
_LOOK_AGAIN_S = 0.02
_PRESSED_FOR_S = 0.5


class Room:
    """The files of one cache folder and their locks. `budget_bytes` bounds whole and half-fetched shards together."""

    def __init__(self, root: Path, budget_bytes: int, stall_s: float, *, shared: bool) -> None:
        self._root = root
        self._shared = shared
        self._stall_s = stall_s
        self._budget = budget_bytes
        self._objects, self._locks = root / OBJECTS, root / LOCKS
        with self._told():
            for folder in (root, self._objects, self._locks, root / DATASETS):
                folder.mkdir(parents=True, exist_ok=True)
                self._open_to_all(folder, 0o777)

    def path(self, shard: Shard) -> Path:
        """Where a shard stands once it is whole."""
        return self._objects / (shard.xxh3_128 + OBJECT_SUFFIX)

    def part(self, shard: Shard) -> Path:
        """Where a shard stands while it is being fetched."""
        return self.path(shard).with_suffix(PART_SUFFIX)

    def open_lock(self, name: str) -> int:
        """An open descriptor of a lock file, which is never removed: two processes must never lock different ones."""
        path = self._lock_file(name)
        with self._told():
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._open_to_all(path, 0o666)
        return lock

    def reserve(self, shard: Shard, deadline: float) -> int:
        """An open .part file of the shard's size, counted from now on; the caller holds the shard's exclusive lock.

        Raises CacheFull if there is no room by `deadline` (of time.monotonic), and CacheError if the disk is full.
        """
        part = self.part(shard)
        while True:
            with self._evicting():
                part.unlink(missing_ok=True)
                used = self._make_room(shard.size_bytes)
                if used + shard.size_bytes <= self._budget:
                    return self._allocate(shard, part)
            needed = f"no room for shard {shard.file} ({shard.size_bytes} bytes)"
            in_use = f"{used} of {self._budget} bytes are in use by readers and fetches; raise the budget"
            self.wait_for_readers(f"{needed}: {in_use}", deadline)

    def publish(self, shard: Shard) -> None:
        """Makes a whole and durable .part file visible as the shard."""
        path = self.path(shard)
        # Under the evict lock: a count meanwhile could see neither the old name nor the new one.
        with self._evicting():
            self._open_to_all(path.with_suffix(PART_SUFFIX), 0o666)
            path.with_suffix(PART_SUFFIX).rename(path)
        fsync_folder(self._objects)

    def give_up(self, shard: Shard) -> None:
        """Removes a .part file; the caller holds the shard's exclusive lock."""
        self.part(shard).unlink(missing_ok=True)

    def remove(self, shard: Shard) -> None:
        """Removes a shard even under its readers, who keep what they have mapped."""
        with self._evicting():
            self.path(shard).unlink(missing_ok=True)

    def wait_for_readers(self, reason: str, deadline: float) -> None:
        """Asks readers to let go and gives them a moment. Raises CacheFull when it is too late for that."""
        if time.monotonic() >= deadline:
            raise CacheFull(f"cache {self._root}: {reason}")
        self._lock_file(_PRESSURE).touch()
        time.sleep(_LOOK_AGAIN_S)

    def pressed(self) -> bool:
        """Whether somebody has just been waiting for readers to let go."""
        try:
            return time.time() - self._lock_file(_PRESSURE).stat().st_mtime < _PRESSED_FOR_S
        except FileNotFoundError:
            return False

    def used_bytes(self) -> int:
        """Bytes of all whole and half-fetched shards."""
        with self._evicting():
            return sum(size for _, size, _ in self._files())

    def sweep(self) -> None:
        """Removes what fetches left behind whose process died."""
        with self._evicting():
            self._reap()

    def _open_to_all(self, path: Path, mode: int) -> None:
        """In a shared cache other users may read, lock, fill and evict, whatever this user's umask is."""
        if self._shared:
            with suppress(PermissionError):  # it is another user's, who has done the same
                if path.stat().st_mode & 0o777 != mode:
                    path.chmod(mode)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise CacheError(
                f"cache {self._root}: may not be written by user {os.geteuid()} ({error}); give each user a cache of "
                "its own, or let all of them use ShardCache(..., shared=True)"
            ) from error
        except OSError as error:
            raise CacheError(f"cache {self._root}: {error}") from error

    def _lock_file(self, name: str) -> Path:
        return self._locks / f"{name}.lock"

    def _allocate(self, shard: Shard, part: Path) -> int:
        target = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            os.posix_fallocate(target, 0, shard.size_bytes)
        except OSError as error:
            os.close(target)
            part.unlink(missing_ok=True)
            raise CacheError(f"cache {self._root}: cannot reserve {shard.size_bytes} bytes on disk: {error}") from error
        return target

    def _make_room(self, wanted: int) -> int:
        """Removes least recently used shards until `wanted` bytes fit or none is left that nobody reads.

        The caller holds the evict lock. Returns the bytes still in use.
        """
        self._reap()
        files = sorted(self._files())
        used = sum(size for _, size, _ in files)
        for _, size, path in files:
            if used + wanted <= self._budget:
                break
            if path.suffix == OBJECT_SUFFIX and self._remove_if_idle(path):
                used -= size
        return used

    def _reap(self) -> None:
        for _, _, path in self._files():
            if path.suffix == PART_SUFFIX:
                self._remove_if_idle(path)

    def _files(self) -> list[tuple[int, int, Path]]:
        """(time of last use, bytes, path) of every file here that the cache made: nothing else has a lock."""
        files = []
        with os.scandir(self._objects) as entries:
            for entry in entries:
                path = Path(entry.path)
                if path.suffix in (OBJECT_SUFFIX, PART_SUFFIX) and self._lock_file(path.stem).exists():
                    state = entry.stat(follow_symlinks=False)
                    files.append((state.st_mtime_ns, state.st_size, path))
        return files

    def _remove_if_idle(self, path: Path) -> bool:
        lock = self.open_lock(path.stem)
        try:
            idle = try_exclusive(lock)
            if idle:
                path.unlink(missing_ok=True)
            return idle
        finally:
            os.close(lock)

    @contextmanager
    def _evicting(self) -> Iterator[None]:
        lock = self.open_lock(_EVICT)
        try:
            if not try_exclusive(lock):
                watch = StallWatch(self._lock_file(_EVICT), self._stall_s)
                lock_within(lock, fcntl.LOCK_EX, watch, f"cache {self._root}: its evict lock")
            note_holder(lock)
            yield
        finally:
            os.close(lock)


def try_exclusive(lock: int) -> bool:
    """Asks for an exclusive flock without waiting. A shared one on the same descriptor is gone either way."""
    return _try(lock, fcntl.LOCK_EX)


def try_shared(lock: int) -> bool:
    """Asks for a shared flock without waiting."""
    return _try(lock, fcntl.LOCK_SH)


def _try(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
