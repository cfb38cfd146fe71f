"""`phalanx-bench dataplane`: how fast training is fed, by ours and by its peers, on this machine."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import click

from ..api.cli.options import json_option, print_json
from ..api.cli.tables import console, table
from .feed.peers import PEERS, Peer, build, python_of, run
from .machine import machine_facts

WARM, WAIT, BUSY, COLD, COLD_WAIT = "warm", "wait", "busy", "cold", "cold_wait"
KINDS = (WARM, WAIT, BUSY, COLD, COLD_WAIT)
SHAPE = (256, 128)  # of a sample, int16: 64 KiB
_RUN_S = 120.0


@click.command("dataplane")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Folder that keeps the samples.")
@click.option("--samples", type=click.IntRange(512), default=8192, show_default=True, help="Of 64 KiB each.")
@click.option("--batch", type=click.IntRange(1), default=64, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Interleaved; medians are shown.")
@click.option("--peer", "names", multiple=True, type=click.Choice([peer.name for peer in PEERS]), help="Only these.")
@click.option("--measure", "kinds", multiple=True, type=click.Choice(KINDS), help="Only these, after warm.")
@click.option("--install/--no-install", default=True, help="Make the peers' environments where they are missing.")
@json_option
def dataplane_command(
    data: Path | None,
    samples: int,
    batch: int,
    rounds: int,
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    install: bool,
    as_json: bool,
) -> None:
    """Compares loaders on the same samples: rate, CPU, wait share, cold reads, first batch, memory, utilisation."""
    root = data or Path(tempfile.mkdtemp(prefix="phalanx-feed-"))
    root.mkdir(parents=True, exist_ok=True)
    try:
        result = _measure(root, samples, batch, rounds, names or tuple(peer.name for peer in PEERS), kinds, install)
    finally:
        if data is None:
            shutil.rmtree(root, ignore_errors=True)
    if as_json:
        print_json(result)
    else:
        _show(result)


def _measure(
    root: Path,
    samples: int,
    batch: int,
    rounds: int,
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    install: bool,
) -> dict[str, Any]:
    raw = _raw(root, samples)
    ready: list[tuple[Peer, Path, Path]] = []
    facts: dict[str, str] = {}
    for peer in PEERS:
        if peer.name not in names:
            continue
        python, facts[peer.name] = python_of(peer, install=install)
        if python is None:
            continue
        _say(f"building the data of {peer.name}")
        folder, fault = build(peer, python, raw, root)
        if fault:
            facts[peer.name] += f"; no data: {fault}"
        else:
            ready.append((peer, python, folder))
    wanted = {kind: options for kind, options in _settings(samples, batch).items() if kind in {WARM, *(kinds or KINDS)}}
    loaders = _interleaved(ready, wanted, rounds)
    from .feed.worker import SAMPLE_BYTES

    result = {
        "machine": machine_facts(),
        "data": {"samples": samples, "bytes_per_sample": SAMPLE_BYTES, "batch": batch, "rounds": rounds},
        "versions": facts,
        "loaders": loaders,
    }
    if any(peer.name == "phalanx" for peer, _, _ in ready):
        from .feed.more import measure_more
        from .feed.online import founding_scenario
        from .feed.ours import index_memory_mib, share_of_take

        _say("share of np.take, memory of the index, the founding scenario")
        ours = next(folder for peer, _, folder in ready if peer.name == "phalanx")
        result["share_of_take"] = share_of_take(ours, batch, max(20, min(200, samples // batch)), 2 * rounds + 1)
        result["index_1e8_mib"] = index_memory_mib()
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            result["founding"] = founding_scenario(Path(scratch))
            _say("small and variable samples, a mixture, eight ranks, memory, a distant store")
            result["more"] = measure_more(ours, Path(scratch), samples // batch)
    return result


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


def _interleaved(ready: list[tuple[Peer, Path, Path]], settings: dict[str, list[str]], rounds: int) -> dict[str, Any]:
    """Each measurement of each loader, once per round in turn; the best number of workers is chosen by the warm."""
    found: dict[str, dict[int, dict[str, list[dict[str, Any]]]]] = {peer.name: {} for peer, _, _ in ready}
    null: list[float] = []
    for turn in range(rounds):
        if ready and BUSY in settings:
            answer = run(ready[0][1], ["run", "null", str(ready[0][2]), *settings[BUSY]], _RUN_S)
            null.append(float(answer.get("samples_per_s", 0.0)))
        for kind, options in settings.items():
            for peer, python, folder in ready:
                workers = peer.workers if kind == WARM else (_best(found[peer.name]),)
                for count in workers:
                    answer = run(python, ["run", peer.name, str(folder), "--workers", str(count), *options], _RUN_S)
                    found[peer.name].setdefault(count, {}).setdefault(kind, []).append(answer)
                    _say(f"round {turn + 1} of {rounds}, {kind}, {peer.name}, {count} workers: {_line(answer)}")
    return {name: _medians(each, statistics.median(null) if null else 0.0) for name, each in found.items()}


def _line(answer: dict[str, Any]) -> str:
    if "fault" in answer:
        return str(answer["fault"])
    return (
        f"{answer['samples_per_s']:,.0f} samples/s, {answer['cpu_s_per_gb']:.2f} CPU-s/GB, "
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
        "cold_gb_per_s": (COLD, "gb_per_s"),
        "cold_cpu_s_per_gb": (COLD, "cpu_s_per_gb"),
        "cold_first_batch_s": (COLD, "first_batch_s"),
        "cold_wait_share_10ms": (COLD_WAIT, "wait_share"),
    }
    measured: dict[str, Any] = {name: _median(kinds[kind], key) for name, (kind, key) in asked.items() if kind in kinds}
    if "beside_null" in measured:
        measured["beside_null"] = measured["beside_null"] / null if null else 0.0
    return {"workers": best, **measured, "faults": faults}


def _show(result: dict[str, Any]) -> None:
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in result["machine"].items()), markup=False)
    out.print(", ".join(f"{name} {value}" for name, value in result["data"].items()), markup=False)
    columns = {
        "samples/s": ("samples_per_s", "{:,.0f}"),
        "GB/s": ("gb_per_s", "{:.2f}"),
        "CPU-s/GB": ("cpu_s_per_gb", "{:.2f}"),
        "first batch s": ("first_batch_s", "{:.3f}"),
        "MiB": ("memory_mib", "{:.0f}"),
        "wait 10 ms": ("wait_share_10ms", "{:.3f}"),
        "beside null": ("beside_null", "{:.2f}"),
        "cold GB/s": ("cold_gb_per_s", "{:.2f}"),
        "cold CPU-s/GB": ("cold_cpu_s_per_gb", "{:.2f}"),
        "cold first s": ("cold_first_batch_s", "{:.3f}"),
        "cold wait 10 ms": ("cold_wait_share_10ms", "{:.3f}"),
    }
    rows = [
        (
            *(f"{name} {result['versions'].get(name, '')}", str(each["workers"])),
            *(form.format(each[key]) if key in each else "-" for key, form in columns.values()),
        )
        for name, each in result["loaders"].items()
    ]
    out.print(table("", ("loader", "workers", *columns), rows, right=("workers", *columns)))
    for name, told in result["versions"].items():
        if name not in result["loaders"]:
            out.print(f"{name}: not measured, {told}", markup=False)
    for name, each in result["loaders"].items():
        for fault in each["faults"]:
            out.print(f"{name}: a run failed: {fault}", markup=False)
    if "share_of_take" in result:
        founding = result["founding"]
        out.print(
            f"ours: {result['share_of_take']:.2f} of np.take into rotating buffers; index of 10^8 samples "
            f"{result['index_1e8_mib']:.0f} MiB; founding scenario (step {founding['step_ms']:.1f} ms): online loader "
            f"{founding['online']:.0%} utilised, shards {founding['shards']:.1%}",
            markup=False,
        )
    for name, values in result.get("more", {}).items():
        out.print(f"ours, {name}: " + ", ".join(f"{key} {value:,.3g}" for key, value in values.items()), markup=False)


def _say(text: str) -> None:
    click.echo(text, err=True)
