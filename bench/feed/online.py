"""The founding scenario: samples cleaned from a database while training waits, against shards made once."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

CHANNELS, TIMES = 64, 256
RECORDING_TIMES = 4096


def make_raw(path: Path, recordings: int, seed: int = 0) -> None:
    """A database with one row per recording: its samples as int16."""
    random = np.random.default_rng(seed)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE recordings (id INTEGER PRIMARY KEY, data BLOB)")
        for number in range(recordings):
            data = random.integers(-2000, 2000, (CHANNELS, RECORDING_TIMES), np.int16)
            connection.execute("INSERT INTO recordings VALUES (?, ?)", (number, data.tobytes()))


def clean(data: Any, start: int) -> Any:
    """A moving average taken off, each channel normalised, one window cut out: what the job does offline as well."""
    values = data.astype(np.float32)
    kernel = np.ones(33, np.float32) / 33
    drift = np.apply_along_axis(lambda row: np.convolve(row, kernel, "same"), 1, values)
    flat = values - drift
    flat = (flat - flat.mean(1, keepdims=True)) / (flat.std(1, keepdims=True) + 1e-6)
    return flat[:, start : start + TIMES]


class Online(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    """A window of a random recording, read and cleaned when it is asked for."""

    def __init__(self, path: Path, recordings: int) -> None:
        self._path, self._recordings = path, recordings
        self._connection: sqlite3.Connection | None = None

    def __len__(self) -> int:
        return self._recordings * (RECORDING_TIMES // TIMES)

    def __getitem__(self, index: int) -> Any:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path)
        number, window = divmod(index, RECORDING_TIMES // TIMES)
        (blob,) = self._connection.execute("SELECT data FROM recordings WHERE id = ?", (number,)).fetchone()
        data = np.frombuffer(blob, np.int16).reshape(CHANNELS, RECORDING_TIMES)
        return torch.from_numpy(np.ascontiguousarray(clean(data, window * TIMES)))


def make_shards(path: Path, recordings: int, out: Path) -> None:
    """The same windows, cleaned once."""
    from ...dataplane import Field, ShardWriter

    with ShardWriter(out, [Field("x", "float32", (CHANNELS, TIMES))], name="online", shard_bytes=16 << 20) as writer:
        dataset = Online(path, recordings)
        for start in range(0, len(dataset), 256):
            stop = min(len(dataset), start + 256)
            writer.write({"x": torch.stack([dataset[index] for index in range(start, stop)])})


def utilisation(batches: Callable[[], Any], step_s: float, steps: int) -> float:
    """The share of time in the step, which sleeps as if a device worked, over a loop of steps."""
    source = iter(batches())
    next(source)
    begun, worked = time.perf_counter(), 0.0
    for _ in range(steps):
        next(source)
        at = time.perf_counter()
        time.sleep(step_s)
        worked += time.perf_counter() - at
    return worked / (time.perf_counter() - begun)


def founding_scenario(folder: Path, *, recordings: int = 24, batch: int = 32, steps: int = 40) -> dict[str, float]:
    """Utilisation with the online loader (two workers) and with shards, with a step that makes the first about 34 %."""
    from ...dataplane import Loader, ShardDataset

    make_raw(folder / "raw.db", recordings)
    make_shards(folder / "raw.db", recordings, folder / "shards")

    def online() -> Any:
        dataset = Online(folder / "raw.db", recordings)
        while True:
            yield from torch.utils.data.DataLoader(dataset, batch, shuffle=True, num_workers=2, drop_last=True)

    source = online()
    next(source)
    begun = time.perf_counter()
    for _ in range(8):
        next(source)
    fetch_s = (time.perf_counter() - begun) / 8
    step_s = fetch_s * 0.34  # two workers fetch beside the step: a batch comes every fetch_s
    before = utilisation(online, step_s, min(steps, 24))
    with ShardDataset(folder / "shards") as dataset, Loader(dataset, batch) as loader:
        after = utilisation(lambda: loader, step_s, steps)
    return {"step_ms": step_s * 1000, "online": before, "shards": after}
