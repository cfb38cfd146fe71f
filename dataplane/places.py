"""Where checkpoints are kept: a folder, an object store, or anything that fsspec reaches. Files appear whole or not."""

import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from .errors import CheckpointError, DatasetError
from .files import fsync_folder
from .remote import is_remote, note_use, object_store

PIECE_BYTES = 4 << 20
_TRIES = 4
Answer = TypeVar("Answer")


class Place(Protocol):
    """A flat set of files. All methods raise OSError or the store's own errors, which `tried` tells from bugs."""

    def names(self) -> list[str]: ...

    def put(self, name: str, path: Path) -> None:
        """Stores a local file under a name, whole or not at all."""
        ...

    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a file."""
        ...

    def delete(self, name: str) -> None: ...


class FolderPlace:
    """A local or mounted folder. The files to put already lie in it: a rename is all that is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []

    def put(self, name: str, path: Path) -> None:
        path.replace(self.folder / name)
        fsync_folder(self.folder)

    def pieces(self, name: str) -> Iterator[bytes]:
        with (self.folder / name).open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def delete(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


class ObjectPlace:
    """An address of an object store, where an upload becomes visible when it is complete."""

    def __init__(self, url: str) -> None:
        self._store = object_store(url, timeout_s=120.0)
        note_use()

    def names(self) -> list[str]:
        import obstore

        return sorted(meta["path"] for page in obstore.list(self._store) for meta in page if "/" not in meta["path"])

    def put(self, name: str, path: Path) -> None:
        import obstore

        obstore.put(self._store, name, path)

    def pieces(self, name: str) -> Iterator[bytes]:
        import obstore

        for piece in obstore.get(self._store, name).stream(min_chunk_size=PIECE_BYTES):
            yield bytes(piece)

    def delete(self, name: str) -> None:
        import obstore

        obstore.delete(self._store, name)


class FsspecPlace:
    """Any other address that fsspec knows: written under a temporary name, and then moved."""

    def __init__(self, url: str) -> None:
        try:
            fsspec = import_module("fsspec")
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise CheckpointError(f"{url}: no address that can be written to ({error})") from error

    def names(self) -> list[str]:
        if not self._files.exists(self._root):
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in self._files.ls(self._root, detail=False))

    def put(self, name: str, path: Path) -> None:
        self._files.makedirs(self._root, exist_ok=True)
        temporary = f"{self._root}/.{name}.{os.getpid()}.tmp"
        self._files.put_file(str(path), temporary)
        self._files.mv(temporary, f"{self._root}/{name}")

    def pieces(self, name: str) -> Iterator[bytes]:
        with self._files.open(f"{self._root}/{name}", "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def delete(self, name: str) -> None:
        self._files.rm_file(f"{self._root}/{name}")


def open_place(folder: str | Path) -> Place:
    """The place behind a folder, a file:// address, or an address of a store. Raises CheckpointError for others."""
    text = str(folder)
    if is_remote(text):
        try:
            return ObjectPlace(text)
        except DatasetError as error:
            raise CheckpointError(str(error)) from error
    if "://" in text and not text.startswith("file://"):
        return FsspecPlace(text)
    return FolderPlace(Path(text.removeprefix("file://")))


def tried(what: str, action: Callable[[], Answer], *, tries: int = _TRIES, pause_s: float = 0.5) -> Answer:
    """The result of an action on a store, tried again with growing pauses. Raises CheckpointError after the last."""
    for attempt in range(tries):
        try:
            return action()
        except Exception as error:  # every store has errors of its own
            if attempt == tries - 1 or isinstance(error, FileNotFoundError | PermissionError | TypeError):
                cause = " ".join(str(error).split())[:300] or type(error).__name__
                raise CheckpointError(f"{what}: {cause}") from error
            time.sleep(pause_s * 2**attempt)
    raise AssertionError("unreachable")


def describe(folder: str | Path, name: str) -> Any:
    """The name's full address: a Path for a folder, a text for the rest."""
    text = str(folder)
    if "://" in text and not text.startswith("file://"):
        return f"{text.rstrip('/')}/{name}"
    return Path(text.removeprefix("file://")) / name
