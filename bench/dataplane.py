"""`phalanx-bench dataplane`: how fast training is fed, by ours and by its peers, on this machine."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from ..api.cli.options import json_option, print_json
from .feed.peers import PEERS, build, python_of, run
from .feed.rows import RANKS, Ready, measure, ranks_of_one_host, rows
from .feed.show import show
from .machine import machine_facts

WARM, WAIT, BUSY, COLD, COLD_WAIT = "warm", "wait", "busy", "cold", "cold_wait"
KINDS = (WARM, WAIT, BUSY, COLD, COLD_WAIT)
SHAPE = (256, 128)  # of a sample, int16: 64 KiB
_RUN_S = 120.0
_FOR_ROWS = 0.4
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


class Clock:
    """How much of the time for the whole table is left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.seconds = seconds

    def left_s(self) -> float:
        return self._end - time.monotonic()


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
    loaders, done = _interleaved(ready, wanted, rounds, clock)
    result: dict[str, Any] = {
        "machine": {**machine_facts(), "load at the start": f"{load:.1f}"},
        "data": {"samples": samples, "bytes_per_sample": SAMPLE_BYTES, "batch": batch, "rounds": done},
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


def _interleaved(
    ready: list[Ready], settings: dict[str, list[str]], rounds: int, clock: Clock
) -> tuple[dict[str, Any], int]:
    """Each measurement of each loader, once per round in turn, and how many rounds there was time for.

    The best number of workers is chosen by the warm runs. What would begin in the last two fifths of the time is left
    out: the other rows need them.
    """
    found: dict[str, dict[int, dict[str, list[dict[str, Any]]]]] = {peer.name: {} for peer, _, _ in ready}
    null: list[float] = []
    # The same work for all: each run's own idea of ten milliseconds would differ by half.
    work: list[str] = []
    took, turn = 0.0, 0
    while turn < rounds and (turn == 0 or clock.left_s() - took > clock.seconds * _FOR_ROWS):
        turn += 1
        began = clock.left_s()
        for kind, options in settings.items():
            if ready and kind == BUSY and clock.left_s() > clock.seconds * _FOR_ROWS:
                answer = run(ready[0][1], ["run", "null", str(ready[0][2]), *options, *work], _RUN_S)
                null.append(float(answer.get("samples_per_s", 0.0)))
                work = work or ["--step-repeats", str(answer.get("step_repeats", 0))]
            for peer, python, folder in ready:
                workers = peer.workers if kind == WARM else (_best(found[peer.name]),)
                for count in workers:
                    if clock.left_s() > clock.seconds * _FOR_ROWS:
                        arguments = ["run", peer.name, str(folder), "--workers", str(count), *options]
                        arguments += work if kind == BUSY else []
                        answer = run(python, arguments, _RUN_S)
                    else:
                        answer = {"fault": f"{kind} was not measured: the time was over"}
                    found[peer.name].setdefault(count, {}).setdefault(kind, []).append(answer)
                    say(f"round {turn} of {rounds}, {kind}, {peer.name}, {count} workers: {_line(answer)}")
        took = began - clock.left_s()
    return {name: _medians(each, statistics.median(null) if null else 0.0) for name, each in found.items()}, turn


def _line(answer: dict[str, Any]) -> str:
    if "fault" in answer:
        return str(answer["fault"])
    return (
        f"{answer['samples_per_s']:,.0f} samples/s, {answer['whole_gb_per_s']:.2f} GB/s from the start, "
        f"{answer['cpu_s_per_gb']:.2f} CPU-s/GB, "
        f"wait {answer['wait_share']:.3f}, first batch {answer['first_batch_s']:.3f} s"
    )


def _best(found: dict[int, dict[str, list[dict[str, Any]]]]) -> int:
    return max(found, key=lambda count: _median(found[count].get(WARM, []), "samples_per_s"), default=0)


def _median(answers: list[dict[str, Any]], key: str) -> float:
    values = [answer[key] for answer in answers if key in answer]
    return float(statistics.median(values)) if values else 0.0


def _medians(found: dict[int, dict[str, list[dict[str, Any]]]], null: float) -> dict[str, Any]:
    best = _best(found)
    kinds = found.get(best, {})
    faults = sorted({answer["fault"] for answers in kinds.values() for answer in answers if "fault" in answer})
    asked = {
        "samples_per_s": (WARM, "samples_per_s"),
        "gb_per_s": (WARM, "gb_per_s"),
        "cpu_s_per_gb": (WARM, "cpu_s_per_gb"),
        "first_batch_s": (WARM, "first_batch_s"),
        "memory_mib": (WARM, "memory_mib"),
        "wait_share_10ms": (WAIT, "wait_share"),
        "beside_null": (BUSY, "samples_per_s"),
        "cold_gb_per_s": (COLD, "whole_gb_per_s"),
        "cold_cpu_s_per_gb": (COLD, "cpu_s_per_gb"),
        "cold_first_batch_s": (COLD, "first_batch_s"),
        "cold_wait_share_10ms": (COLD_WAIT, "wait_share"),
    }
    measured: dict[str, Any] = {
        name: _median(kinds[kind], key)
        for name, (kind, key) in asked.items()
        if any(key in answer for answer in kinds.get(kind, []))
    }
    if "beside_null" in measured:
        measured["beside_null"] = measured["beside_null"] / null if null else 0.0
    return {"workers": best, **measured, "faults": faults}


def say(text: str) -> None:
    """Tells how far the measurement is."""
    click.echo(text, err=True)
