"""Checkpoints that are whole or absent: one file per step, its checksum in its name."""

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
import xxhash

from .errors import CheckpointError
from .files import fsync_folder

_NAME = re.compile(r"step-(\d{10})-([0-9a-f]{32})\.pt")
_PIECE_BYTES = 4 << 20


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


def save_checkpoint(folder: str | Path, state: Mapping[str, Any], step: int, *, keep: int = 2) -> Path | None:
    """Saves a state for `torch.load(weights_only=True)` and returns its path once it is durable.

    With torch.distributed initialised only rank 0 writes; the others return None at once. Of the checkpoints up to
    `step` (>= 0), the last `keep` (>= 1) stay. Raises CheckpointError for values out of range or if it cannot be
    written; what was there before then still is.
    """
    if keep < 1 or not 0 <= step < 10**10:
        raise CheckpointError(f"step {step} must be 0 to 10^10 - 1 and keep {keep} at least 1")
    if distributed.is_available() and distributed.is_initialized() and distributed.get_rank() != 0:
        return None
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".step-{step:010d}.tmp"
    try:
        path = folder / f"step-{step:010d}-{_write(temporary, state)}.pt"
        temporary.replace(path)
        fsync_folder(folder)
    except OSError as error:
        raise CheckpointError(f"cannot save a checkpoint of step {step} in {folder}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    _prune(folder, path, step, keep)
    return path


def latest_checkpoint(folder: str | Path) -> Path | None:
    """The newest checkpoint whose bytes are those that were saved; None if there is none."""
    for _, path in sorted(_checkpoints(Path(folder)), reverse=True):
        if _intact(path):
            return path
    return None


def load_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:
    """The state saved in a checkpoint. Raises CheckpointError if its bytes are not those that were saved."""
    path = Path(path)
    if not _intact(path):
        raise CheckpointError(f"{path}: missing or corrupt; latest_checkpoint() finds the newest intact one")
    state: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
    return state


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


def _prune(folder: Path, saved: Path, step: int, keep: int) -> None:
    """Removes older checkpoints, and what crashed writers left.

    Later ones stay: a run that goes on from an old checkpoint must not destroy another's future.
    """
    older = [path for at, path in sorted(_checkpoints(folder), reverse=True) if at <= step and path != saved]
    for path in [*older[keep - 1 :], *folder.glob(".step-*.tmp")]:
        path.unlink(missing_ok=True)


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    matches = [(_NAME.fullmatch(path.name), path) for path in folder.glob("step-*.pt")]
    return [(int(match[1]), path) for match, path in matches if match]


def _intact(path: Path) -> bool:
    match = _NAME.fullmatch(path.name)
    digest = xxhash.xxh3_128()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    except OSError:
        return False
    return match is not None and digest.hexdigest() == match[2]
