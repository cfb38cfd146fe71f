"""One small network trained twice: from recordings cleaned while training waits, and from shards made once.

    python examples/utilisation.py [STEPS]

Prints for both which share of the time the training step computed, and how long it waited for batches.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

from phalanx.dataplane import Field, Loader, ShardDataset, ShardWriter, StepTimer

CHANNELS, TIMES, WINDOWS, RECORDINGS, BATCH = 32, 2048, 16, 24, 32
LENGTH = TIMES // WINDOWS


def clean(recording: np.ndarray) -> np.ndarray:
    """Takes the drift off each channel and normalises it."""
    kernel = np.ones(33, np.float32) / 33
    flat = recording - np.stack([np.convolve(row, kernel, "same") for row in recording])
    return (flat - flat.mean(1, keepdims=True)) / (flat.std(1, keepdims=True) + 1e-6)


def online(folder: Path) -> Iterator[torch.Tensor]:
    """Batches of windows; each window's recording is read and cleaned when the window is asked for."""
    random = np.random.default_rng(0)
    while True:
        picks = zip(random.integers(RECORDINGS, size=BATCH), random.integers(WINDOWS, size=BATCH), strict=True)
        windows = [
            clean(np.load(folder / f"{number}.npy").astype(np.float32))[:, at * LENGTH : (at + 1) * LENGTH]
            for number, at in picks
        ]
        yield torch.from_numpy(np.stack(windows))


def make_shards(folder: Path, out: Path) -> None:
    """The same windows, cleaned once."""
    with ShardWriter(out, [Field("data", "float32", (CHANNELS, LENGTH))], name="windows") as writer:
        for number in range(RECORDINGS):
            data = clean(np.load(folder / f"{number}.npy").astype(np.float32))
            writer.write({"data": data.reshape(CHANNELS, WINDOWS, LENGTH).swapaxes(0, 1).copy()})
        writer.close()


def train(batches: Iterable[torch.Tensor], steps: int) -> tuple[float, float]:
    """The share of the time spent computing, and the mean wait for a batch in milliseconds."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(CHANNELS * LENGTH, 256), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    timer, source = StepTimer(), iter(batches)
    next(source)  # what starting costs is no part of a step
    for _, batch in zip(range(steps), timer.over(source), strict=False):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    seen = timer.drain()
    waited = sum(step.wait_s for step in seen)
    computed = sum(step.compute_s for step in seen)
    return computed / (computed + waited), waited / len(seen) * 1000


def main() -> None:
    """Makes recordings and shards, trains from both, prints the utilisation of each."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        raw, shards = Path(scratch, "raw"), Path(scratch, "shards")
        raw.mkdir()
        for number in range(RECORDINGS):
            np.save(raw / f"{number}.npy", random.integers(-2000, 2000, (CHANNELS, TIMES), np.int16))
        make_shards(raw, shards)
        rows = [("online loader", train(online(raw), steps))]
        with ShardDataset(shards) as dataset, Loader(dataset, BATCH) as loader:
            rows.append(("shards", train((batch["data"] for batch in loader), steps)))
    for name, (share, wait_ms) in rows:
        print(f"{name}: {share:.1%} utilised, {wait_ms:.2f} ms wait a step")


if __name__ == "__main__":
    main()
