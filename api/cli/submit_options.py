"""The flags of `phalanx submit`, and how they become keys of a job file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from ...model.errors import InvalidInput
from . import sbatch

F = TypeVar("F", bound=Callable[..., Any])

FLAGS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("-J", "--name", "--job-name", "name"), {"help": "Name of the job."}),
    (("-A", "--team", "--account", "team"), {"help": "Team that the job runs for."}),
    (("--tier",), {"type": int, "help": "1 incident, 2 scheduled production, 3 development, 4 exploratory."}),
    (("--priority",), {"type": int, "help": "Order among the team's own jobs; higher goes first."}),
    (("--gpus",), {"help": "GPUs of each worker: 8, or 0.5 for half a card."}),
    (("--workers",), {"type": int, "help": "Number of equal workers, one rank each."}),
    (("--gpu-type",), {"multiple": True, "help": "Acceptable GPU type; repeat for several."}),
    (("--gpu-memory",), {"help": "Least memory of a card: 40GiB."}),
    (("--cpu",), {"help": "Cores of each worker."}),
    (("--memory",), {"help": "Memory of each worker: 128GiB."}),
    (("-t", "--walltime", "--time", "walltime"), {"help": "Longest run: 4h, or 2-00:00:00 as for sbatch."}),
    (("--after",), {"multiple": True, "metavar": "JOB", "help": "Start only after this job has succeeded."}),
    (("--site", "-p", "--partition", "site"), {"multiple": True, "help": "Run only on this site; repeat for several."}),
    (("--preemptible",), {"is_flag": True, "help": "May be evicted at any time, at the lower price."}),
    (("--label",), {"multiple": True, "metavar": "KEY=VALUE", "help": "A label; repeat for several."}),
    (("--env",), {"multiple": True, "metavar": "KEY=VALUE", "help": "A variable of every rank; repeat for several."}),
    (("-D", "--workdir", "--chdir", "workdir"), {"help": "Folder the ranks start in; default: the present one."}),
    (("-N", "--nodes", "nodes"), {"type": click.IntRange(1), "help": "sbatch: hosts; one worker on each, or tasks."}),
    (("--ntasks-per-node",), {"type": click.IntRange(1), "help": "sbatch: workers on each host."}),
    (("--gres",), {"multiple": True, "metavar": "gpu[:TYPE]:N", "help": "sbatch: GPUs of each host."}),
    (("--gpus-per-node",), {"metavar": "[TYPE:]N", "help": "sbatch: the same."}),
    (("--mem",), {"help": "sbatch: memory of each host, 64G; a bare number is MiB."}),
    (("-c", "--cpus-per-task", "cpus_per_task"), {"type": click.IntRange(1), "help": "sbatch: cores of each worker."}),
    (("-q", "--qos", "qos"), {"help": f"sbatch: {', '.join(sbatch.QOS)}."}),
    (("-d", "--dependency", "dependency"), {"metavar": "afterok:JOB", "help": "sbatch: as --after."}),
    (("--requeue/--no-requeue",), {"default": None, "help": "sbatch: whether a lost host restarts the job."}),
)
"""Names and click settings of each flag; docs/command-line.md explains the mapping from sbatch."""


def job_flags(command: F) -> F:
    """Adds all flags that describe a job."""
    for names, settings in reversed(FLAGS):
        command = click.option(*names, **settings)(command)
    return command


def keys_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a job file that the given flags stand for. Raises InvalidInput for contradictions."""
    keys: dict[str, Any] = {}
    for name in ("name", "team", "tier", "priority", "gpus", "workers", "gpu_memory", "cpu", "memory", "workdir"):
        _put(keys, name, flags[name])
    _put(keys, "gpu_type", list(flags["gpu_type"]) or None)
    _put(keys, "sites", list(flags["site"]) or None)
    _put(keys, "after", [*flags["after"], *_dependencies(flags["dependency"])] or None)
    _put(keys, "walltime", flags["walltime"] and sbatch.walltime(flags["walltime"]))
    _put(keys, "labels", _pairs("--label", flags["label"]) or None)
    _put(keys, "env", _pairs("--env", flags["env"]) or None)
    _put(keys, "preemptible", "anytime" if flags["preemptible"] else None)
    _put(keys, "max_restarts", 0 if flags["requeue"] is False else None)
    host = sbatch.shape(
        nodes=flags["nodes"],
        tasks_per_node=flags["ntasks_per_node"],
        gres=flags["gres"],
        gpus_per_node=flags["gpus_per_node"],
        mem=flags["mem"],
        cpus_per_task=flags["cpus_per_task"],
    )
    for key, value in {**host, **(sbatch.quality(flags["qos"]) if flags["qos"] else {})}.items():
        if key in keys:
            raise InvalidInput(f"--{key.replace('_', '-')}", "is also given by an sbatch flag", "one of the two")
        keys[key] = value
    return keys


def _put(keys: dict[str, Any], key: str, value: Any) -> None:
    if value is not None:
        keys[key] = value


def _dependencies(text: str | None) -> list[str]:
    return sbatch.dependencies(text) if text else []


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidInput(flag, f"{text[:60]!r} is not a pair", "KEY=VALUE")
        pairs[key] = value
    return pairs
