"""Environments of the peers, made once under a cache folder, and runs of the worker script in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
_INSTALL_S, _BUILD_S = 1_800, 900
_QUIET = {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "2"}


@dataclass(frozen=True, slots=True)
class Peer:
    """A loader to compare with: what to install for it (None: our own environment), and its format's builder."""

    name: str
    package: str | None
    workers: tuple[int, ...] = (0, 2)
    format: str = "raw"
    needs: tuple[str, ...] = ()


PEERS = (
    Peer("phalanx", None, workers=(0,), format="phalanx"),
    Peer("torchdata", "torchdata", workers=(0,)),
    Peer("dataloader", None),
    Peer("litdata", "litdata", format="litdata"),
    Peer("webdataset", "webdataset", format="webdataset"),
    Peer("mosaicml", "mosaicml-streaming", format="mosaicml", needs=("numpy<2.2",)),
    Peer("spdl", "spdl", workers=(0,)),
    Peer("grain", "grain", workers=(0,)),
    Peer("tensorstore", "tensorstore", workers=(0,), format="tensorstore"),
    Peer("datasets", "datasets", workers=(0,), format="datasets"),
)


def environments() -> Path:
    """Where the peers' environments are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "phalanx-bench" / "peers"


def python_of(peer: Peer, *, install: bool) -> tuple[Path | None, str]:
    """The Python that runs a peer, and its version or why there is none."""
    if peer.package is None:
        return Path(sys.executable), version("phalanx") if peer.name == "phalanx" else f"torch {version('torch')}"
    folder = environments() / peer.package
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        if not install and not python.exists():
            return None, "not installed (--install)"
        fault = _installed(peer, folder) if install else ""
        if fault:
            return None, fault
    code = f"from importlib.metadata import version; print(version({peer.package!r}))"
    told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return (python, told.stdout.strip()) if told.returncode == 0 else (None, "cannot be imported")


def _installed(peer: Peer, folder: Path) -> str:
    """Makes an environment with the peer and our version of torch; returns what went wrong."""
    torch = f"torch=={version('torch')}"
    steps = (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", str(peer.package), torch, *peer.needs],
    )
    for step in steps:
        try:
            told = subprocess.run(step, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            return f"installing took longer than {_INSTALL_S} s"
        if told.returncode:
            return f"does not install: {' '.join(told.stderr.split()[-30:])}"
    (folder / ".ready").touch()
    return ""


def build(peer: Peer, python: Path, raw: Path, root: Path, form: str = "fixed") -> tuple[Path, str]:
    """The peer's data, made from the raw samples unless it is there; and what went wrong."""
    if peer.format == "raw":
        return raw, ""
    out = root / peer.format
    if (root / f"{peer.format}.done").exists():
        return out, ""
    shutil.rmtree(out, ignore_errors=True)
    answer = run(python, ["build", peer.name, str(raw), "--out", str(out), "--form", form], _BUILD_S)
    if "fault" in answer:
        return out, str(answer["fault"])
    (root / f"{peer.format}.done").touch()
    return out, ""


def run(
    python: Path, arguments: list[str], timeout_s: float, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a run of the worker script measured, or {"fault": one line}; none of its children outlives it.

    `settings` are added to its environment.
    """
    with tempfile.TemporaryFile("w+") as errors:
        command, environment = [str(python), str(WORKER), *arguments], {**os.environ, **_QUIET, **(settings or {})}
        out = ""
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True, env=environment
        ) as process:
            try:
                out, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                return {"fault": f"took longer than {timeout_s:g} s"}
            finally:
                _end_group(process.pid)
        errors.seek(0)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            last = [line for line in errors.read().splitlines() if line.strip()][-1:]
            return {"fault": (last or [f"exit code {process.returncode}"])[0][:200]}
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer


def _end_group(group: int) -> None:
    """Ends what a worker has left running; it leads a group of its own."""
    import signal

    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
