"""The CSV schema of the public traces: rows become hosts and jobs, with every assumption written down.

What a trace leaves out is assumed, and told in `ASSUMPTIONS`: docs/traces.md explains the schema and the sources.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar

from ..model.errors import InvalidInput
from ..model.host import Gpu, Host
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import GpuTypeChoice, Job, Preemptible, Role, WorkerRequest
from ..model.topology import TopologyPath

HOST_CPU_PER_GPU, HOST_GIB_PER_GPU = 16, 128
JOB_CPU_PER_GPU, JOB_GIB_PER_GPU = 8, 64
CARD_GIB = {"P100": 16, "T4": 16, "V100M16": 16, "V100M32": 32, "A10": 24}
UNKNOWN_CARD_GIB = 80
UNKNOWN_TYPE = "GPU"
ASSUMPTIONS = (
    f"Hosts without CPU or memory get {HOST_CPU_PER_GPU} cores and {HOST_GIB_PER_GPU} GiB a GPU.",
    f"Jobs without them ask {JOB_CPU_PER_GPU} cores and {JOB_GIB_PER_GPU} GiB a GPU, so that GPUs alone decide.",
    f"Cards of an unknown type have {UNKNOWN_CARD_GIB} GiB; a name such as gpu24gb says its own.",
    "Priority class BE is preemptible at any time; LS, Guaranteed, Burstable and none are tier 3.",
    "A job without a duration never ends once it runs.",
)
"""What is assumed where a trace says nothing."""
HOST_COLUMNS = ("host_id", "site_or_rack", "gpu_type", "num_gpus", "cpu", "mem_gib")
JOB_COLUMNS = (
    *("job_id", "team", "submit_s", "duration_s", "num_workers", "gpus_per_worker"),
    *("cpu_per_worker", "mem_gib_per_worker", "gpu_type", "priority_class"),
)
MISSING = (
    "the CSV file of a trace. Phalanx ships none: docs/traces.md says where lingjun2023, philly2017 and openb2023 come "
    "from and which columns the files have"
)

# The column behind a field that the model's own checks complain of.
_COLUMNS = {
    "gpu_milli": "gpus_per_worker",
    "cpu_milli": "cpu_per_worker",
    "memory_mib": "mem_gib_per_worker",
    "": "gpus_per_worker",
    "count": "num_workers",
    "id": "job_id or host_id",
}
_CARD_SIZE = re.compile(r"(\d+)gb$", re.IGNORECASE)
Progress = Callable[[int], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job of a trace: when it was submitted, and how long it ran (None: not known)."""

    job: Job
    submit_s: int
    duration_s: int | None


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a CSV file, read value by value; complaints name file, line and column."""

    path: Path
    line: int
    values: dict[str, str]

    def text(self, column: str) -> str:
        return self.values[column].strip()

    def fault(self, column: str, problem: str, expected: str) -> InvalidInput:
        return InvalidInput(f"{self.path}: line {self.line}, {column}", problem, expected)

    def number(self, column: str, scale: int, default: int | None) -> int | None:
        """The value times `scale`, rounded up to a whole number; `default` where it is empty."""
        text = self.text(column)
        if not text:
            return default
        try:
            amount = Decimal(text)
        except InvalidOperation:
            raise self.fault(column, f"{text[:40]!r} is not a number", "a number, or nothing where unknown") from None
        if not amount.is_finite() or not 0 <= amount <= 10**12:
            raise self.fault(column, f"{text[:40]} is out of range", "0 to 10^12")
        return int((amount * scale).to_integral_value(ROUND_CEILING))


def read_hosts(path: Path, first: int | None = None) -> tuple[Host, ...]:
    """The hosts of a trace, at most the `first` ones. Raises InvalidInput naming line and column."""
    site = SiteId(re.split(r"[._]", path.name)[0] or "site")
    hosts: list[Host] = []
    for row in _rows(path, HOST_COLUMNS):
        if first is not None and len(hosts) >= first:
            break
        hosts.append(_guard(row, lambda found: _host(found, site)))
    if not hosts:
        raise InvalidInput(str(path), "has no hosts", "one host a line")
    return tuple(hosts)


def read_jobs(
    path: Path, until_s: int, first: int | None = None, progress: Progress | None = None
) -> Iterator[TraceJob]:
    """The jobs submitted until then, one at a time; `progress` is called with the bytes read so far."""
    count = 0
    for row in _rows(path, JOB_COLUMNS, progress):
        submit_s = row.number("submit_s", 1, None)
        if submit_s is None:
            raise row.fault("submit_s", "missing", "seconds from the start of the trace")
        if submit_s > until_s:
            continue
        if first is not None and count >= first:
            return
        count += 1
        job = _guard(row, _job)
        yield TraceJob(job=job, submit_s=submit_s, duration_s=row.number("duration_s", 1, None))


def _rows(path: Path, columns: Sequence[str], progress: Progress | None = None) -> Iterator[_Row]:
    try:
        with path.open("r", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise InvalidInput(str(path), f"no column {missing[0]!r} in its first line", ", ".join(columns))
            for values in reader:
                if None in values or None in values.values():
                    raise InvalidInput(
                        f"{path}: line {reader.line_num}", "has another number of columns", "as the first line has"
                    )
                if progress and reader.line_num % 2_000 == 0:
                    progress(os.lseek(file.fileno(), 0, os.SEEK_CUR))
                yield _Row(path, reader.line_num, values)
    except FileNotFoundError:
        raise InvalidInput(str(path), "there is no such file", MISSING) from None
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read ({error.strerror})", MISSING) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(str(path), f"is not CSV text ({error})", MISSING) from None


def _guard(row: _Row, build: Callable[[_Row], T]) -> T:
    """What `build` makes of the row; complaints of the model's own checks get file and line."""
    try:
        return build(row)
    except InvalidInput as fault:
        if fault.path.startswith(str(row.path)):
            raise
        column = _COLUMNS.get(fault.path, fault.path)
        raise InvalidInput(f"{row.path}: line {row.line}, {column}", fault.problem, fault.expected) from None


def _host(row: _Row, site: SiteId) -> Host:
    cards = row.number("num_gpus", 1, None)
    if cards is None:
        raise row.fault("num_gpus", "missing", "a number of GPUs (for lingjun2023 the fleet256 list has them)")
    layers = [part for part in row.text("site_or_rack").split("/") if part]
    kind = row.text("gpu_type") or UNKNOWN_TYPE
    size = _CARD_SIZE.search(kind)
    memory_gib = int(size[1]) if size else CARD_GIB.get(kind, UNKNOWN_CARD_GIB)
    shares = max(cards, 1)
    return Host(
        id=HostId(row.text("host_id")),
        path=TopologyPath(
            site=SiteId(layers[0]) if layers else site,
            zone=layers[1] if len(layers) > 2 else None,
            rack=layers[-1] if len(layers) > 1 else None,
        ),
        gpus=tuple(Gpu(index=index, gpu_type=kind, memory_mib=memory_gib * 1024) for index in range(cards)),
        cpu_milli=row.number("cpu", 1000, 1000 * HOST_CPU_PER_GPU * shares) or 0,
        memory_mib=row.number("mem_gib", 1024, 1024 * HOST_GIB_PER_GPU * shares) or 0,
    )


def _job(row: _Row) -> Job:
    kinds = row.text("gpu_type")
    gpu_milli = 0 if kinds == "none" else row.number("gpus_per_worker", 1000, 0) or 0
    cards = -(-gpu_milli // 1000) or 1
    named = [] if kinds in ("", "any", "none") or not gpu_milli else kinds.split("|")
    request = WorkerRequest(
        gpu_milli=gpu_milli,
        cpu_milli=row.number("cpu_per_worker", 1000, 1000 * JOB_CPU_PER_GPU * cards) or 0,
        memory_mib=row.number("mem_gib_per_worker", 1024, 1024 * JOB_GIB_PER_GPU * cards) or 0,
    )
    role = Role(
        count=row.number("num_workers", 1, 1) or 0,
        request=request,
        gpu_types=tuple(GpuTypeChoice(gpu_type=kind) for kind in named),
    )
    return Job(
        id=JobId(row.text("job_id")),
        team=TeamId(row.text("team") or "unknown"),
        roles=(role,),
        preemptible=Preemptible.ANYTIME if row.text("priority_class") == "BE" else Preemptible.BY_HIGHER,
    )
