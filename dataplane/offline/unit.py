"""One unit of a job: a few recordings through the cleaning function into a part, a small data set per split.

A part is whole when its part.json stands there; whatever a crash left is made anew.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DatasetError, OfflineError
from ..fields import DTYPES, Field
from ..files import write_atomic
from ..writer import ShardWriter
from .recordings import Input, Recording
from .splits import WHOLE, Splits, select
from .steps import Drop

Clean = Callable[[Recording], Iterable[Mapping[str, Any] | Drop]]
PART_NAME = "part.json"
_NO_SPLIT = "all"


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker needs for one unit. `drop_failing` drops recordings whose cleaning raises, with the error."""

    folder: Path
    inputs: tuple[Input, ...]
    splits: Splits
    shard_bytes: int
    drop_failing: bool

    @property
    def stamp(self) -> str:
        """Changes when a recording of the unit does."""
        named = json.dumps([[each.name, each.stamp] for each in self.inputs])
        return hashlib.sha256(named.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Part:
    """What became of a unit: samples per split, and samples or recordings dropped by reason."""

    stamp: str
    recordings: int
    samples: dict[str, int]
    dropped: dict[str, int]


def read_part(folder: Path) -> Part | None:
    """The finished part in a folder, or None."""
    try:
        return Part(**json.loads((folder / PART_NAME).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def part_folder(folder: Path, split: str) -> Path:
    """Where the shards of a split stand in a part."""
    return folder / (split or _NO_SPLIT)


def run_unit(task: Task, clean: Clean) -> Part:
    """Makes a part. Raises OfflineError, naming the recording, if its cleaning fails."""
    shutil.rmtree(task.folder, ignore_errors=True)
    task.folder.mkdir(parents=True)
    dropped: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    with ExitStack() as stack:
        sink = _Sink(task, stack, samples)
        for each in task.inputs:
            _clean_one(each, clean, sink, dropped, task.drop_failing)
    part = Part(task.stamp, len(task.inputs), dict(sorted(samples.items())), dict(sorted(dropped.items())))
    write_atomic(task.folder / PART_NAME, json.dumps(asdict(part)).encode())
    return part


def _clean_one(each: Input, clean: Clean, sink: "_Sink", dropped: Counter[str], drop_failing: bool) -> None:
    given = 0
    try:
        with each.open() as recording:
            # All of it before anything is written: a recording that fails in its middle is dropped whole.
            output = list(clean(recording)) if drop_failing else clean(recording)
            draw = sink.splits.drawer(each.label)
            for item in output:
                if isinstance(item, Drop):
                    dropped[item.reason] += item.samples
                else:
                    given += sink.write(dict(item), draw.draw)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:
        if drop_failing and not given and not isinstance(error, DatasetError | ImportError):
            dropped[f"{type(error).__name__}: {error}"] += 1
            return
        raise OfflineError(f"recording {each.name}: {type(error).__name__}: {error}") from error


class _Sink:
    """Writers per split, opened with the first samples."""

    def __init__(self, task: Task, stack: ExitStack, samples: Counter[str]) -> None:
        self.splits = task.splits
        self._task, self._stack, self._samples = task, stack, samples
        self._writers: dict[str, ShardWriter] = {}
        self._fields: tuple[Field, ...] | None = None

    def write(self, rows: dict[str, Any], draw: Callable[[int], Any]) -> int:
        count = len(next(iter(rows.values()))) if rows else 0
        if not count:
            return 0
        if self._fields is None:
            self._fields = infer_fields(rows)
        drawn = draw(count)
        for number, split in enumerate(self.splits.names):
            chosen = drawn == number
            if not chosen.any():
                continue
            writer = self._writers.get(split)
            if writer is None:
                folder = part_folder(self._task.folder, split)
                opened = ShardWriter(folder, self._fields, name=split or WHOLE, shard_bytes=self._task.shard_bytes)
                writer = self._writers[split] = self._stack.enter_context(opened)
            writer.write(rows if chosen.all() else select(rows, chosen))
            self._samples[split] += int(chosen.sum())
        return count


def infer_fields(rows: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields of samples as a cleaning function gives them: an array or tensor with rows first, or for a field of
    variable length a list of arrays. Raises OfflineError for anything else."""
    return tuple(_infer(name, value) for name, value in rows.items())


def _infer(name: str, value: Any) -> Field:
    variable = not hasattr(value, "shape")
    if variable and (not isinstance(value, Sequence) or not all(hasattr(each, "shape") for each in value)):
        raise OfflineError(f"field {name!r}: give an array with rows first, or a list with one array per sample")
    first = value[0] if variable else value
    if not len(first.shape):
        raise OfflineError(f"field {name!r}: has no first axis of rows or items")
    dtype = str(first.dtype).removeprefix("torch.")
    if isinstance(first, np.ndarray):
        dtype = first.dtype.name
    if dtype not in DTYPES:
        raise OfflineError(f"field {name!r}: dtype {dtype} cannot be stored; known: {', '.join(DTYPES)}")
    return Field(name, dtype, tuple(int(size) for size in first.shape[1:]), variable)
