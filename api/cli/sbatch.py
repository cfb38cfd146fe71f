"""Flags that people know from sbatch, as keys of a job file (docs/command-line.md has the mapping)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...model.codec import nearest
from ...model.errors import InvalidInput
from .. import units

QOS: dict[str, dict[str, Any]] = {
    "incident": {"tier": 1},
    "production": {"tier": 2},
    "development": {"tier": 3},
    "exploratory": {"tier": 4},
    "preemptible": {"preemptible": "anytime"},
}
_COUNT = re.compile(r"\d{1,6}")


def shape(
    *,
    nodes: int | None,
    tasks_per_node: int | None,
    gres: Sequence[str],
    gpus_per_node: str | None,
    mem: str | None,
    cpus_per_task: int | None,
) -> dict[str, Any]:
    """Workers and what each asks: one worker a task; GPUs and memory of a node are divided among its tasks."""
    asked = [("--gres", text) for text in gres] + ([("--gpus-per-node", gpus_per_node)] if gpus_per_node else [])
    if nodes is None and tasks_per_node is None and not asked and mem is None and cpus_per_task is None:
        return {}
    tasks = tasks_per_node or 1
    keys: dict[str, Any] = {}
    if nodes is not None or tasks_per_node is not None:
        keys["workers"] = (nodes or 1) * tasks
    if len(asked) > 1:
        raise InvalidInput(asked[1][0], "GPUs are asked twice", "one --gres or --gpus-per-node")
    for flag, text in asked:
        count, kind = _gpus(flag, text)
        if count % tasks:
            raise InvalidInput(flag, f"{count} GPUs a node for {tasks} tasks a node", "a multiple of --ntasks-per-node")
        keys["gpus"] = count // tasks
        if kind:
            keys["gpu_type"] = kind
    if tasks > 1 and (nodes or 1) > 1:
        # The tasks of a node stay together, as under Slurm.
        keys["parallelism"] = {"tensor": tasks}
    if cpus_per_task is not None:
        keys["cpu"] = cpus_per_task
    if mem is not None:
        keys["memory"] = f"{_memory_mib(mem) // tasks}MiB"
    return keys


def walltime(text: str) -> str:
    """A time limit as sbatch takes it ("30", "90:00", "2-00", "1-12:30", "04:00:00") or as a job file does ("4h")."""
    if re.fullmatch(r"\d{1,9}", text):
        return f"{text}m"
    if found := re.fullmatch(r"(\d{1,9}):(\d{1,2})", text):
        return f"{found[1]}m{found[2]}s"
    if found := re.fullmatch(r"(\d{1,6})-(\d{1,2})(?::(\d{1,2}))?", text):
        return f"{found[1]}d{found[2]}h{found[3] or 0}m"
    units.duration_s("--time", text)
    return text


def dependencies(text: str) -> list[str]:
    """Job names of "afterok:ID[:ID...][,afterok:ID...]"."""
    jobs: list[str] = []
    for part in text.split(","):
        kind, *names = part.split(":")
        if kind != "afterok" or not names or not all(names):
            right = "afterok:JOB, or afterok:JOB:JOB; a job starts only after all of them have succeeded"
            raise InvalidInput("--dependency", f"{part!r} is not a dependency that Phalanx knows", right)
        jobs.extend(names)
    return jobs


def quality(name: str) -> dict[str, Any]:
    """Tier or preemptibility of a quality of service."""
    if name not in QOS:
        raise InvalidInput("--qos", f"no quality of service {name!r}", nearest(name, QOS))
    return dict(QOS[name])


def _gpus(flag: str, text: str) -> tuple[int, str]:
    """Number and type of "gpu:8", "gpu:h100:8", "gpu", "8" or "h100:8"."""
    parts = text.split(":")
    if flag == "--gres":
        if parts[0] != "gpu":
            raise InvalidInput(flag, f"{text!r} is not a number of GPUs", "gpu:COUNT or gpu:TYPE:COUNT")
        parts = parts[1:]
    count = parts.pop() if parts and _COUNT.fullmatch(parts[-1]) else "1"
    if len(parts) > 1 or int(count) == 0:
        raise InvalidInput(flag, f"{text!r} is not a number of GPUs", "COUNT or TYPE:COUNT, after gpu: for --gres")
    return int(count), parts[0] if parts else ""


def _memory_mib(text: str) -> int:
    plain = re.fullmatch(r"\d{1,9}", text)
    mib = int(text) if plain else units.memory_mib("--mem", text)
    if mib == 0:
        raise InvalidInput("--mem", "0 would mean all memory of a host", "an amount such as 64G")
    return mib
