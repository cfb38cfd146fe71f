"""Checkpoints of states that no single rank holds (FSDP and its like), through torch.distributed.checkpoint.

step-0000000400/        one folder per step, renamed when it is whole
    __0_0.distcp ...    what each rank wrote
    checksums.json      the xxh3_128 of each of these, written last
"""

import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as distributed
import torch.distributed.checkpoint as dcp
import xxhash
from torch.distributed.checkpoint.api import CheckpointException

from .errors import CheckpointError
from .files import fsync_folder, write_atomic
from .places import PIECE_BYTES
from .saved_log import report_checkpoint

_NAME = re.compile(r"step-(\d{10})")
_CHECKSUMS = "checksums.json"


def save_sharded(folder: str | Path, state: Mapping[str, Any], step: int, *, keep: int = 2) -> Path:
    """Saves a state of which each rank holds a part, in a folder that all ranks see; every rank must call it.

    Returns the checkpoint's folder once it is durable. Of the checkpoints up to `step`, the last `keep` stay. Raises
    CheckpointError, on every rank, if it cannot be written; what was there before then still is.
    """
    if keep < 1 or not 0 <= step < 10**10:
        raise CheckpointError(f"step {step} must be 0 to 10^10 - 1 and keep {keep} at least 1")
    folder, begun_s = Path(folder), time.time()
    final, temporary = folder / f"step-{step:010d}", folder / f".step-{step:010d}.tmp"
    cause = ""
    if _rank() == 0:
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        except OSError as error:
            cause = str(error)
    _agree(cause, final)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*assuming the intent is to save in a single process")
            dcp.save(dict(state), checkpoint_id=temporary, no_dist=not _together())
    except (Exception, CheckpointException) as error:  # one rank's full disk reaches the others as torch's own error
        cause = _cause(error)
    if _rank() == 0 and not cause:
        try:
            _seal(temporary, final)
            report_checkpoint(step, begun_s)
            _prune(folder, step, keep)
        except OSError as error:
            cause = str(error)
    _agree(cause, final)
    return final


def latest_sharded(folder: str | Path) -> Path | None:
    """The newest checkpoint whose files are those that were saved; the same on every rank. None if there is none."""
    found: list[Path | None] = [None]
    if _rank() == 0:
        paths = sorted((path for path in Path(folder).glob("step-*") if _NAME.fullmatch(path.name)), reverse=True)
        found = [next((path for path in paths if _intact(path)), None)]
    if _together():
        distributed.broadcast_object_list(found)
    return found[0]


def load_sharded(path: str | Path, state: dict[str, Any]) -> None:
    """Fills `state` in place from a checkpoint, on any number of ranks; every rank must call it.

    `state` must have the keys and shapes that were saved. Raises CheckpointError if it cannot be read.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*assuming the intent is to load in a single process")
            dcp.load(state, checkpoint_id=Path(path), no_dist=not _together())
    except (Exception, CheckpointException) as error:  # torch raises what its planner or reader of the day raises
        raise CheckpointError(f"{path}: cannot be loaded: {_cause(error)}") from error


def _seal(temporary: Path, final: Path) -> None:
    sums = {}
    for path in sorted(temporary.iterdir()):
        sums[path.name] = _hash(path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    write_atomic(temporary / _CHECKSUMS, json.dumps(sums).encode())
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    fsync_folder(final.parent)


def _prune(folder: Path, step: int, keep: int) -> None:
    older = [path for path in folder.glob("step-*") if (m := _NAME.fullmatch(path.name)) and int(m[1]) <= step]
    for path in [*sorted(older, reverse=True)[keep:], *folder.glob(".step-*.tmp")]:
        shutil.rmtree(path, ignore_errors=True)


def _intact(path: Path) -> bool:
    try:
        sums = json.loads((path / _CHECKSUMS).read_bytes())
        return bool(sums) and all(_hash(path / name) == told for name, told in sums.items())
    except (OSError, ValueError, AttributeError):
        return False


def _hash(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _cause(error: BaseException) -> str:
    """What happened, without the traces that torch puts into its message; that of the lowest rank that failed."""
    failures = getattr(error, "failures", None)
    if failures:
        rank, (inner, *_) = sorted(failures.items())[0]
        return f"rank {rank}: {' '.join(str(inner).split())[:300]}"
    return " ".join(str(error).split())[:300] or type(error).__name__


def _together() -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def _rank() -> int:
    return distributed.get_rank() if _together() else 0


def _agree(cause: str, final: Path) -> None:
    """Raises on every rank what went wrong on any: none may wait for one that has given up."""
    causes = [cause]
    if _together():
        gathered: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(gathered, cause)
        causes = gathered
    told = next(filter(None, causes), "")
    if told:
        raise CheckpointError(f"cannot save {final}: {told}")
