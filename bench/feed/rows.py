"""Further rows of the table, beside the peers: other shapes of data, two sets mixed, ranks, a far store."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .peers import Peer, build, run

STORE = Path(__file__).with_name("store.py")
WAIT_S, BYTES_PER_S = 0.03, 80e6
RANKS = 8
SMALL, VARIABLE = 32_768, 4_096
_RUN_S = 60.0

Ready = tuple[Peer, Path, Path]
Say = Callable[[str], None]
Results = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Row:
    """One further row: the worker script's `form`, its options, the data made for it (None: that of the table)."""

    name: str
    form: str
    options: tuple[str, ...]
    data: str | None = None
    without: tuple[tuple[str, str], ...] = ()


_BY_HAND = "reads local files only, and offers nothing for a store but what one writes by hand"
_FIXED_ONLY = "has no samples of variable length"


def rows(samples: int, batch: int) -> tuple[Row, ...]:
    """The rows for a data set of so many samples of 64 KiB."""
    some = str(max(2, min(samples // batch - 2, 60)))
    far = str(max(2, samples // batch - 2))
    local = tuple((name, _BY_HAND) for name in ("torchdata", "dataloader", "spdl", "grain", "datasets"))
    return (
        Row(
            "samples of 1 KiB",
            "fixed",
            ("--batch", "256", "--batches", "120", "--sample-bytes", "1024"),
            "small",
            (("tensorstore", "would write a file for each sample of 1 KiB"),),
        ),
        Row(
            "variable length",
            "variable",
            ("--batch", str(batch), "--batches", "60", "--sample-bytes", "32768"),
            "variable",
            (("tensorstore", _FIXED_ONLY),),
        ),
        Row(
            "two data sets mixed",
            "mixture",
            ("--batch", str(batch), "--batches", some),
            None,
            (("tensorstore", "offers no mixture"),),
        ),
        Row("store, 30 ms, 80 MB/s", "store", ("--batch", str(batch), "--batches", far), None, local),
    )


def measure(
    row: Row, ready: list[Ready], root: Path, workers: dict[str, int], say: Say, left_s: Callable[[], float]
) -> Results:
    """What each loader did in one row, or why it has no part in it. What is made for the row stays under `root`."""
    results: Results = {}
    missing = dict(row.without)
    with _store(root) if row.form == "store" else _nothing() as settings:
        for peer, python, folder in ready:
            if peer.name in missing:
                results[peer.name] = {"fault": missing[peer.name]}
                continue
            if left_s() <= 0:
                results[peer.name] = {"fault": "not measured: the time was over"}
                continue
            data, fault = _data(row, peer, python, folder, root)
            with tempfile.TemporaryDirectory(dir=root) as scratch:
                arguments = ["run", peer.name, str(data), "--form", row.form, *row.options]
                arguments += ["--workers", str(workers.get(peer.name, 0))]
                told = {"TMPDIR": scratch, **settings}
                limit_s = max(10.0, min(_RUN_S, left_s()))
                answer = {"fault": f"no data: {fault}"} if fault else run(python, arguments, limit_s, told)
            results[peer.name] = answer
            say(f"{row.name}, {peer.name}: {answer.get('fault') or _line(answer)}")
    return results


def ranks_of_one_host(
    ready: list[Ready], root: Path, samples: int, batch: int, say: Say, left_s: Callable[[], float]
) -> Results:
    """Eight ranks, a process each without workers, each with batches of its own; rates of all together."""
    results: Results = {}
    batches = max(2, min(samples // batch - 2, 40))
    for peer, python, folder in ready:
        if left_s() <= 0:
            results[peer.name] = {"fault": "not measured: the time was over"}
            continue
        with tempfile.TemporaryDirectory(dir=root) as meeting:
            arguments = ["run", peer.name, str(folder), "--batch", str(batch), "--batches", str(batches)]
            arguments += ["--meet", meeting, "--ranks", str(RANKS)]
            answers = _ranks(python, arguments, max(10.0, min(2 * _RUN_S, left_s())))
        results[peer.name] = answer = _together(answers, batch)
        say(f"{RANKS} ranks, {peer.name}: {answer.get('fault') or _line(answer)}")
    return results


def _ranks(python: Path, arguments: list[str], limit_s: float) -> list[dict[str, Any]]:
    """All ranks at once, with the environment that torchrun gives them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def one(rank: int) -> dict[str, Any]:
        return run(python, arguments, limit_s, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(one, range(RANKS)))


def _together(each: list[dict[str, Any]], batch: int) -> dict[str, Any]:
    faults = [answer["fault"] for answer in each if "fault" in answer]
    if faults:
        return {"fault": f"{len(faults)} of {RANKS} ranks failed: {faults[0]}"}
    read = sum(int(answer["batches"]) for answer in each) * batch
    wall_s = max(answer["wall_s"] for answer in each)
    size = sum(answer["gb_per_s"] * answer["wall_s"] for answer in each)
    first_s = max(answer["first_batch_s"] for answer in each)
    return {
        "samples_per_s": read / wall_s,
        "gb_per_s": size / wall_s,
        "whole_gb_per_s": size / (first_s + wall_s),
        "cpu_s_per_gb": sum(answer["cpu_s_per_gb"] for answer in each) / RANKS,
        "first_batch_s": first_s,
    }


def _data(row: Row, peer: Peer, python: Path, folder: Path, root: Path) -> tuple[Path, str]:
    """The data of a row for a peer, and what went wrong."""
    if row.data is not None:
        raw = make_raw(root, row.data)
        return build(peer, python, raw, raw.parent, "variable" if row.data == "variable" else "fixed")
    if row.form == "mixture":
        beside = folder.with_name(folder.name + "-other")
        if not beside.exists():
            shutil.copytree(folder, beside, copy_function=os.link)
    return folder, ""


def make_raw(root: Path, kind: str, count: int | None = None) -> Path:
    """Raw samples of 1 KiB ("small"), or of 2 to 126 rows of 512 bytes ("variable"), unless they are there."""
    folder = root / kind / "raw"
    if (folder / "y.npy").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    count = count or (SMALL if kind == "small" else VARIABLE)
    if kind == "small":
        np.save(folder / "x.npy", random.integers(0, 999, (count, 512), np.int16))
    else:
        bounds = np.concatenate(([0], np.cumsum(random.integers(2, 127, count))))
        np.save(folder / "x.npy", random.integers(0, 999, (int(bounds[-1]), 256), np.int16))
        np.save(folder / "bounds.npy", bounds)
    np.save(folder / "y.npy", random.normal(size=(count, 16)).astype(np.float32))
    return folder


def _line(answer: dict[str, Any]) -> str:
    return (
        f"{answer['samples_per_s']:,.0f} samples/s, {answer['cpu_s_per_gb']:.2f} CPU-s/GB, "
        f"first batch {answer['first_batch_s']:.3f} s"
    )


@contextmanager
def _nothing() -> Iterator[dict[str, str]]:
    yield {}


@contextmanager
def _store(data: Path) -> Iterator[dict[str, str]]:
    """A far store over a folder, and what its clients need in their environment."""
    command = [sys.executable, str(STORE), str(data), str(WAIT_S), str(BYTES_PER_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield {
                "PHALANX_BENCH_STORE": f"{url}/bucket",
                "AWS_ENDPOINT_URL": url,
                "S3_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "bench",
                "AWS_SECRET_ACCESS_KEY": "bench",
                "AWS_REGION": "us-east-1",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            process.kill()
