"""`phalanx-bench dataplane`: how fast training is fed, by ours and by its peers, on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click

from ..api.cli.options import json_option, print_json
from .feed.peers import PEERS, build, python_of
from .feed.rows import RANKS, Ready, measure, ranks_of_one_host, rows
from .feed.show import show
from .feed.turns import BUSY, COLD, COLD_WAIT, KINDS, WAIT, WARM, Clock, interleaved, listed, say
from .machine import machine_facts

SHAPE = (256, 128)  # of a sample, int16: 64 KiB
SAMPLE_BYTES = SHAPE[0] * SHAPE[1] * 2


@click.command("dataplane")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Folder that keeps the samples.")
@click.option("--samples", type=click.IntRange(512), default=8192, show_default=True, help="Of 64 KiB each.")
@click.option("--batch", type=click.IntRange(1), default=64, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Interleaved; medians are shown.")
@click.option("--peer", "names", multiple=True, type=click.Choice([peer.name for peer in PEERS]), help="Only these.")
@click.option("--measure", "kinds", multiple=True, type=click.Choice(KINDS), help="Only these, after warm.")
@click.option(
    "--minutes",
    type=click.FloatRange(1),
    default=14.0,
    show_default=True,
    help="Rounds and rows that would go beyond it are left out, and said to be.",
)
@click.option("--install/--no-install", default=True, help="Make the peers' environments where they are missing.")
@json_option
def dataplane_command(
    data: Path | None,
    samples: int,
    batch: int,
    rounds: int,
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    minutes: float,
    install: bool,
    as_json: bool,
) -> None:
    """Compares loaders on the same samples: rate, CPU, wait share, cold reads, first batch, memory, utilisation."""
    root = data or Path(tempfile.mkdtemp(prefix="phalanx-feed-"))
    root.mkdir(parents=True, exist_ok=True)
    try:
        ready, facts = _ready(root, samples, names or tuple(peer.name for peer in PEERS), install)
        result = _measure(root, ready, facts, (samples, batch, rounds), kinds, Clock(minutes * 60))
    finally:
        if data is None:
            shutil.rmtree(root, ignore_errors=True)
    if as_json:
        print_json(result)
    else:
        show(result)


def _ready(root: Path, samples: int, names: tuple[str, ...], install: bool) -> tuple[list[Ready], dict[str, str]]:
    """The peers that can run, with their Python and data; versions of all, or why one cannot."""
    raw = _raw(root, samples)
    ready: list[Ready] = []
    facts: dict[str, str] = {}
    for peer in PEERS:
        if peer.name not in names:
            continue
        python, facts[peer.name] = python_of(peer, install=install)
        if python is None:
            continue
        say(f"building the data of {peer.name}")
        folder, fault = build(peer, python, raw, root)
        if fault:
            facts[peer.name] += f"; no data: {fault}"
        else:
            ready.append((peer, python, folder))
    os.sync()  # or the first round is measured while the disk still takes down what was built
    return ready, facts


def _measure(
    root: Path,
    ready: list[Ready],
    facts: dict[str, str],
    sizes: tuple[int, int, int],
    kinds: tuple[str, ...],
    clock: Clock,
) -> dict[str, Any]:
    samples, batch, rounds = sizes
    load = os.getloadavg()[0]
    wanted = {kind: options for kind, options in _settings(samples, batch).items() if kind in {WARM, *(kinds or KINDS)}}
    loaders, done = interleaved(ready, wanted, rounds, clock)
    result: dict[str, Any] = {
        "machine": {**machine_facts(), "load at the start": f"{load:.1f}"},
        "data": {"samples": samples, "bytes_per_sample": SAMPLE_BYTES, "batch": batch, "rounds": listed(done)},
        "versions": facts,
        "loaders": loaders,
    }
    ours = next((folder for peer, _, folder in ready if peer.name == "phalanx"), None)
    if ours is not None and not kinds:
        result.update(_ours(ours, root, samples, batch))
    if not kinds:
        workers = {name: int(each["workers"]) for name, each in loaders.items()}
        result["rows"] = {
            row.name: measure(row, ready, root, workers, say, clock.left_s) for row in rows(samples, batch)
        }
        result["rows"][f"{RANKS} ranks on one host"] = ranks_of_one_host(ready, root, samples, batch, say, clock.left_s)
    result["machine"]["load at the end"] = f"{os.getloadavg()[0]:.1f}"
    return result


def _ours(ours: Path, root: Path, samples: int, batch: int) -> dict[str, Any]:
    """What is measured in one process, for ours alone."""
    from .feed.more import memory_over_epochs, mixture, small_samples
    from .feed.online import founding_scenario
    from .feed.ours import index_memory_mib, share_of_take

    say("share of np.take, memory of the index, the founding scenario")
    batches = max(20, min(200, samples // batch))
    found: dict[str, Any] = {
        "share_of_take": share_of_take(ours, batch, batches, 5),
        "index_1e8_mib": index_memory_mib(),
    }
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        found["founding"] = founding_scenario(Path(scratch))
        say("small samples, a mixture, memory")
        found["more"] = {
            "samples of 1 KiB": small_samples(Path(scratch) / "small"),
            "two data sets mixed": mixture(ours, batches),
            "memory over 5 epochs": memory_over_epochs(ours),
        }
    return found


def _raw(root: Path, samples: int) -> Path:
    import numpy as np

    folder = root / f"raw-{samples}"
    if not (folder / "y.npy").exists():
        folder.mkdir(exist_ok=True)
        random = np.random.default_rng(0)
        x = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.int16, shape=(samples, *SHAPE))
        for start in range(0, samples, 512):
            x[start : start + 512] = random.integers(-3000, 3000, x[start : start + 512].shape, np.int16)
        x.flush()
        np.save(folder / "y.npy", random.normal(size=(samples, 16)).astype(np.float32))
    return folder


def _settings(samples: int, batch: int) -> dict[str, list[str]]:
    """The options of the worker script for each measurement."""
    epoch, some = max(4, samples // batch - 2), max(4, min(samples // batch - 2, 100))
    common = ["--batch", str(batch)]
    return {
        WARM: [*common, "--batches", str(epoch)],
        WAIT: [*common, "--batches", str(some), "--step", "sleep"],
        BUSY: [*common, "--batches", str(some), "--step", "busy"],
        COLD: [*common, "--batches", str(epoch), "--cold"],
        COLD_WAIT: [*common, "--batches", str(epoch), "--cold", "--step", "sleep"],
    }
