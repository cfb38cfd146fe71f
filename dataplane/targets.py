"""Where a data set is written to: its shards come one by one, the manifest last of all."""

import fcntl
import os
from pathlib import Path
from typing import Protocol

from .errors import DatasetError
from .files import fsync_folder, write_atomic
from .manifest import MANIFEST_NAME, MARKER_NAME, Manifest, Shard
from .remote import is_remote

SHARD_GLOB = "shard-*.safetensors"


def shard_name(number: int) -> str:
    """The file of the shard with this number, from 0 on."""
    return f"shard-{number:06d}.safetensors"


class Target(Protocol):
    """A place that one data set is written to, by one writer. All methods raise DatasetError and OSError."""

    def path(self, file: str) -> Path:
        """Where to write a shard before it is added."""
        ...

    def add(self, shard: Shard, path: Path) -> None:
        """Takes the shard written to `path`, which must be left alone from then on."""
        ...

    def finish(self, manifest: Manifest) -> None:
        """Makes all that was added durable, and then says with the manifest that the data set is whole."""
        ...

    def release(self) -> None:
        """Lets go of the place; without a manifest the data set stays unfinished."""
        ...


class FolderTarget:
    """A local or mounted folder, locked by its writer. An unfinished writer's shards are cleared first.

    Raises DatasetError if it holds a finished data set, or another writer is at work in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = _claim(folder)

    def __str__(self) -> str:
        return str(self._folder)

    def path(self, file: str) -> Path:
        return self._folder / f".{file}.tmp"

    def add(self, shard: Shard, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path.replace(self._folder / shard.file)

    def finish(self, manifest: Manifest) -> None:
        # The shards' names must be durable before anything says that they are there.
        fsync_folder(self._folder)
        write_atomic(self._folder / MANIFEST_NAME, manifest.to_bytes())
        (self._folder / MARKER_NAME).unlink()

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def open_target(location: str | Path) -> Target:
    """The target behind a folder, a file:// address, or an address of an object store (s3://, gs://, az://)."""
    text = str(location)
    if is_remote(text):
        from .store_target import StoreTarget

        return StoreTarget(text)
    if "://" in text and not text.startswith("file://"):
        raise DatasetError(f"{text}: data sets are written to folders, file://, s3://, gs:// and az:// addresses")
    return FolderTarget(Path(text.removeprefix("file://")))


def _claim(folder: Path) -> int:
    """Takes the folder for one writer, clears an unfinished one's shards, and returns the lock's descriptor."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = (folder / MARKER_NAME).exists()
    descriptor = os.open(folder / MARKER_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DatasetError(f"{folder}: another writer is at work here") from None
    # Only under the lock: a writer that finished a moment ago has put its manifest there by now.
    if (folder / MANIFEST_NAME).exists():
        (folder / MARKER_NAME).unlink(missing_ok=True)
        os.close(descriptor)
        raise DatasetError(f"{folder}: holds a finished data set; write to another folder")
    if unfinished:
        for left in [*folder.glob(SHARD_GLOB), *folder.glob(f".{SHARD_GLOB}.tmp")]:
            left.unlink()
    return descriptor
