"""Slurm's accounting as a trace: what the command in `COMMAND` prints.

One line a job, fields parted by "|", the first line naming them; other fields are ignored, the order is free.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ..api.trace_csv import TraceJob
from ..model.errors import InvalidInput
from ..model.ids import JobId, TeamId
from ..model.job import GpuTypeChoice, Job, Role, WorkerRequest

NEEDED = ("JobID", "Account", "Submit", "Start", "End", "ReqTRES", "NNodes")
COMMAND = "sacct -a -X -P -o JobID,Account,User,Submit,Start,End,State,ReqTRES,NNodes,Timelimit"
_SIZES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
_MEMORY = re.compile(r"([0-9.]+)([KMGT]?)$")
_LIMIT = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)$")


def is_sacct(path: Path) -> bool:
    """Whether the file's first line is that of `sacct -P`. InvalidInput for one that cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return "JobID" in file.readline().split("|")[:50]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            str(path), f"cannot be read ({error})", "a trace in CSV, or the output of sacct -P"
        ) from None


def read_sacct(path: Path, until_s: int) -> Iterator[TraceJob]:
    """Jobs that ran, by submission, up to `until_s` seconds after the first. Raises InvalidInput naming the line."""
    rows = sorted(_rows(path), key=lambda row: (row[1], row[0]))
    if not rows:
        raise InvalidInput(str(path), "has no job that ran", f"the output of {COMMAND}")
    first_s = rows[0][1]
    for _, submit_s, duration_s, job in rows:
        if submit_s - first_s <= until_s:
            yield TraceJob(job=job, submit_s=submit_s - first_s, duration_s=duration_s)


def _rows(path: Path) -> Iterator[tuple[int, int, int, Job]]:
    with path.open(encoding="utf-8", newline="") as file:
        names = file.readline().rstrip("\r\n").split("|")
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise InvalidInput(f"{path}: line 1", f"no field {missing[0]!r}", COMMAND)
        for number, line in enumerate(file, start=2):
            values = line.rstrip("\r\n").split("|")
            if len(values) != len(names):
                raise InvalidInput(f"{path}: line {number}", f"has {len(values)} fields", f"{len(names)}, as line 1")
            found = _row(f"{path}: line {number}", dict(zip(names, values, strict=True)))
            if found is not None:
                yield (number, *found)


def _row(where: str, row: dict[str, str]) -> tuple[int, int, Job] | None:
    """Submission, run time and request of one job; None for a step, and for a job that never ran."""
    if "." in row["JobID"] or "Unknown" in (row["Start"], row["End"]) or "None" in (row["Start"], row["End"]):
        return None
    submit_s, start_s, end_s = (_time(where, field, row[field]) for field in ("Submit", "Start", "End"))
    if end_s < start_s:
        raise InvalidInput(f"{where}, End", f"{row['End']} lies before its start", "End after Start")
    return submit_s, end_s - start_s, _job(where, row)


def _job(where: str, row: dict[str, str]) -> Job:
    nodes = max(1, _whole(where, "NNodes", row["NNodes"]))
    tres = dict(part.split("=", 1) for part in row["ReqTRES"].split(",") if "=" in part)
    kinds = [key.split(":", 1)[1] for key in tres if key.startswith("gres/gpu:")]
    amount = next((tres[key] for key in ("gres/gpu", *(f"gres/gpu:{kind}" for kind in kinds)) if key in tres), "0")
    gpus = _whole(where, "ReqTRES", amount)
    cpus = _whole(where, "ReqTRES", tres.get("cpu", "0"))
    try:
        request = WorkerRequest(
            gpu_milli=1000 * -(-gpus // nodes),
            cpu_milli=1000 * max(1, cpus // nodes),
            memory_mib=_memory_mib(where, tres.get("mem", "0")) // nodes,
        )
        role = Role(count=nodes, request=request, gpu_types=tuple(GpuTypeChoice(gpu_type=k) for k in kinds if gpus))
        job = Job(
            id=JobId(row["JobID"].replace("[", "-").replace("]", "")),
            team=TeamId(row["Account"] or "unknown"),
            user=row.get("User", ""),
            roles=(role,),
        )
    except InvalidInput as fault:
        raise InvalidInput(where, str(fault), "a job as sacct prints it") from None
    return replace(job, walltime_limit_s=_limit_s(row.get("Timelimit", "")))


def _time(where: str, field: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{where}, {field}", f"{text[:30]!r} is no time", "such as 2026-01-31T12:00:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _whole(where: str, field: str, text: str) -> int:
    if not text.isdigit():
        raise InvalidInput(f"{where}, {field}", f"{text[:30]!r} is no whole number", "0 or more")
    return int(text)


def _memory_mib(where: str, text: str) -> int:
    found = _MEMORY.match(text)
    if not found:
        raise InvalidInput(f"{where}, ReqTRES", f"mem={text[:30]} is no amount", "such as mem=64G")
    return round(float(found[1]) * _SIZES[found[2] or "M"])


def _limit_s(text: str) -> int | None:
    found = _LIMIT.match(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return max(1, ((days * 24 + hours) * 60 + minutes) * 60 + seconds)
