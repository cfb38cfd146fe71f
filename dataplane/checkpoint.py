"""Checkpoints that are whole or absent: one file per step, its checksum in its name."""

import io
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
import xxhash

from .errors import CheckpointError
from .places import FolderPlace, Place, describe, open_place, tried
from .saved_log import report_checkpoint

_log = logging.getLogger(__name__)
_NAME = re.compile(r"step-(\d{10})-([0-9a-f]{32})\.pt")


class _HashingFile(io.RawIOBase):
    """Hashes what goes through to a file, so that bytes lost on the way to the disk are noticed when read."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.digest = xxhash.xxh3_128()
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        self.digest.update(rest)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self.failure = error
            raise
        return size


def save_checkpoint(folder: str | Path, state: Mapping[str, Any], step: int, *, keep: int = 2) -> Any:
    """Saves a state for `torch.load(weights_only=True)` and returns where, once it is durable.

    `folder` is a folder, or an address of an object store (s3://, gs://, az://) or of anything that fsspec reaches;
    the answer is a Path, or the full address. With torch.distributed initialised only rank 0 writes; the others return
    None at once. Of the checkpoints up to `step` (>= 0), the last `keep` (>= 1) stay. Raises CheckpointError for
    values out of range or if it cannot be written; what was there before then still is.
    """
    if keep < 1 or not 0 <= step < 10**10:
        raise CheckpointError(f"step {step} must be 0 to 10^10 - 1 and keep {keep} at least 1")
    if distributed.is_available() and distributed.is_initialized() and distributed.get_rank() != 0:
        return None
    place, begun_s = open_place(folder), time.time()
    try:
        with _temporary(place, step) as temporary:
            name = f"step-{step:010d}-{_write(temporary, state)}.pt"
            if isinstance(place, FolderPlace):
                place.put(name, temporary)
            else:
                tried(f"cannot save {name} in {folder}", lambda: place.put(name, temporary))
    except OSError as error:
        raise CheckpointError(f"cannot save a checkpoint of step {step} in {folder}: {error}") from error
    report_checkpoint(step, begun_s)
    _prune(place, name, step, keep)
    return describe(folder, name)


def latest_checkpoint(folder: str | Path) -> Any:
    """Where the newest checkpoint is whose bytes are those that were saved (Path or address); None if there is none."""
    place = open_place(folder)
    for _, name in _newest_first(place, folder):
        if _digest(place, name) == _NAME.fullmatch(name)[2]:  # type: ignore[index]
            return describe(folder, name)
    return None


def load_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:
    """The state saved in a checkpoint. Raises CheckpointError if its bytes are not those that were saved."""
    folder, _, name = str(path).rpartition("/")
    match = _NAME.fullmatch(name)
    place = open_place(folder or ".")
    with tempfile.TemporaryFile() as spooled:
        digest = xxhash.xxh3_128()
        try:
            for piece in place.pieces(name) if match else ():
                digest.update(piece)
                spooled.write(piece)
        except Exception as error:  # every store has errors of its own
            raise CheckpointError(f"{path}: cannot be read: {' '.join(str(error).split())[:300]}") from error
        if match is None or digest.hexdigest() != match[2]:
            raise CheckpointError(f"{path}: missing or corrupt; latest_checkpoint() finds the newest intact one")
        spooled.seek(0)
        state: dict[str, Any] = torch.load(spooled, map_location=map_location, weights_only=True)
    return state


def load_latest(folder: str | Path, map_location: Any = "cpu") -> tuple[int, dict[str, Any]] | None:
    """Step and state of the newest intact checkpoint, each read once; None if there is none."""
    for step, name in _newest_first(open_place(folder), folder):
        try:
            return step, load_checkpoint(describe(folder, name), map_location)
        except CheckpointError:
            continue
    return None


@contextmanager
def _temporary(place: Place, step: int) -> Iterator[Path]:
    """A file to write to, in the place itself where it is a folder; gone afterwards."""
    if not isinstance(place, FolderPlace):
        with tempfile.TemporaryDirectory(prefix="phalanx-checkpoint-") as scratch:
            yield Path(scratch) / "state.pt"
        return
    place.folder.mkdir(parents=True, exist_ok=True)
    temporary = place.folder / f".step-{step:010d}.tmp"
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write(temporary: Path, state: Mapping[str, Any]) -> str:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        file = _HashingFile(descriptor)
        try:
            torch.save(dict(state), file)
        except RuntimeError:
            # torch reports that its books are wrong, and not the full disk that made them so.
            if file.failure is not None:
                raise file.failure from None
            raise
        os.fsync(descriptor)
        return str(file.digest.hexdigest())
    finally:
        os.close(descriptor)


def _prune(place: Place, saved: str, step: int, keep: int) -> None:
    """Removes older checkpoints, and what crashed writers left.

    Later ones stay: a run that goes on from an old checkpoint must not destroy another's future.
    """
    names = tried("cannot list checkpoints", place.names)
    older = [name for at, name in sorted(_steps(names), reverse=True) if at <= step and name != saved]
    left = [name for name in names if name.startswith(".step-") and name.endswith(".tmp")]
    for name in [*older[keep - 1 :], *left]:
        try:
            tried(f"cannot remove {name}", lambda name=name: place.delete(name), tries=2)  # type: ignore[misc]
        except CheckpointError as error:  # the new one is safe: no reason to end training
            _log.warning("an old checkpoint stays: %s", error)


def _steps(names: list[str]) -> list[tuple[int, str]]:
    matches = [(_NAME.fullmatch(name), name) for name in names]
    return [(int(match[1]), name) for match, name in matches if match]


def _newest_first(place: Place, folder: str | Path) -> list[tuple[int, str]]:
    return sorted(_steps(tried(f"cannot list checkpoints in {folder}", place.names)), reverse=True)


def _digest(place: Place, name: str) -> str:
    digest = xxhash.xxh3_128()
    try:
        for piece in place.pieces(name):
            digest.update(piece)
    except Exception:  # one that cannot be read is not intact, whatever the store calls it
        return ""
    return digest.hexdigest()
