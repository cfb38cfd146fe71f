"""The job: plans units, runs those not done yet in worker processes, and joins their parts into the data sets.

    OUT/.parts/job.json        what the job is: parts of another one are never mixed in
    OUT/.parts/000012/         the part of unit 12
    OUT/[SPLIT/]manifest.json  written last

Neither the number of workers nor crashes change a byte: units are cut by the inputs alone, and each is whole or
made anew.
"""

import fcntl
import functools
import hashlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ..errors import OfflineError
from ..files import write_atomic
from ..manifest import MANIFEST_NAME, Manifest
from ..writer import DEFAULT_SHARD_BYTES
from .assemble import assemble
from .inputs import code_digest, load_function
from .ray_tasks import run_on_ray
from .recordings import Input
from .splits import Splits
from .steps import Windowing
from .unit import Clean, Part, Task, read_part, run_unit

PARTS = ".parts"
REPORT_NAME = "report.json"
UNIT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """What to make. `clean` is MODULE:FUNCTION, called with a Recording and `params`, or the built-in windowing.

    `shard_bytes` is the size that a shard aims at; recordings are cut into units of about `unit_bytes`.
    """

    name: str
    inputs: Sequence[Input]
    clean: str | Windowing
    params: Mapping[str, Any] = field(default_factory=dict)
    splits: Splits = Splits()
    shard_bytes: int = DEFAULT_SHARD_BYTES
    unit_bytes: int = UNIT_BYTES
    drop_failing: bool = False

    def describe(self) -> dict[str, Any]:
        """All that the bytes of the data set depend on, in plain JSON."""
        function = self.clean if isinstance(self.clean, str) else repr(self.clean)
        code = code_digest(load_function(self.clean)) if isinstance(self.clean, str) else ""
        return {
            "name": self.name,
            "clean": function,
            "code": code,
            "params": dict(self.params),
            "splits": [list(share) for share in self.splits.shares],
            "by_sample": self.splits.by_sample,
            "seed": self.splits.seed,
            "shard_bytes": self.shard_bytes,
            "unit_bytes": self.unit_bytes,
            "drop_failing": self.drop_failing,
        }

    def units(self) -> list[tuple[Input, ...]]:
        """The inputs in their order, cut where about `unit_bytes` are together."""
        units: list[list[Input]] = [[]]
        weight = 0
        for each in self.inputs:
            if units[-1] and weight + each.weight > self.unit_bytes:
                units.append([])
                weight = 0
            units[-1].append(each)
            weight += each.weight
        return [tuple(unit) for unit in units]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a job: a manifest per split, what was dropped by reason, and how it went."""

    manifests: dict[str, Manifest]
    recordings: int
    dropped: dict[str, int]
    units: int
    units_reused: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The report for `--json`."""
        sets = {
            split or "all": {"samples": m.rows, "shards": len(m.shards), "bytes": m.size_bytes, "digest": m.digest}
            for split, m in self.manifests.items()
        }
        return {
            "data_sets": sets,
            "recordings": self.recordings,
            "dropped": self.dropped,
            "units": self.units,
            "units_reused": self.units_reused,
            "seconds": round(self.seconds, 1),
        }


Progress = Callable[[int, int, Part], None]


def make(
    job: Job,
    out: str | Path,
    *,
    workers: int = 1,
    ray: str | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Runs a job to its end, going on from what an earlier run of the same job left in `out`.

    With `ray`, the address of a cluster ("auto": the one that this process belongs to), units are tasks there, a CPU
    each, instead of `workers` processes here; inputs and `out` must then lie where every host sees them.

    `fresh` throws away the parts of another job; `progress(done, units, part)` is called after each unit. Raises
    OfflineError if `out` holds a finished data set or parts of another job, if a recording cannot be cleaned (what
    was finished stays, and a next run goes on from there), or if a worker dies.
    """
    out, begun = Path(out) if ray is None else Path(out).absolute(), time.monotonic()
    if workers < 1:
        raise OfflineError(f"workers {workers} must be at least 1")
    with _claimed(out, job, fresh):
        tasks = [
            Task(out / PARTS / f"{number:06d}", unit, job.splits, job.shard_bytes, job.drop_failing)
            for number, unit in enumerate(job.units())
        ]
        done = {number: read_part(task.folder) for number, task in enumerate(tasks)}
        # A recording that has changed since is made anew, with its unit; the rest stays.
        parts = {number: part for number, part in done.items() if part and part.stamp == tasks[number].stamp}
        reused = len(parts)
        for number, part in _run(job, tasks, [n for n in range(len(tasks)) if n not in parts], workers, ray):
            parts[number] = part
            if progress is not None:
                progress(len(parts), len(tasks), part)
        counts = Counter[str]()
        for part in parts.values():
            counts.update(part.dropped)
        dropped = dict(sorted(counts.items()))
        stamps = hashlib.sha256("".join(task.stamp for task in tasks).encode()).hexdigest()
        told = {"dropped": dropped, "recordings": len(job.inputs), "recordings_digest": stamps}
        manifests = assemble(out, job.name, job.splits, [task.folder for task in tasks], {**job.describe(), **told})
        report = Report(manifests, len(job.inputs), dropped, len(tasks), reused, time.monotonic() - begun)
        write_atomic(out / REPORT_NAME, json.dumps(report.to_json(), indent=1).encode() + b"\n")
    return report


@functools.cache
def _function(clean: str, params: str, folder: str) -> Clean:
    os.chdir(folder)
    return functools.partial(load_function(clean), **json.loads(params))


def _work(task: Task, clean: str | Windowing, params: str, folder: str) -> Part:
    return run_unit(task, _function(clean, params, folder) if isinstance(clean, str) else clean)


def _run(job: Job, tasks: list[Task], wanted: list[int], workers: int, ray: str | None) -> Iterator[tuple[int, Part]]:
    """Runs units and yields each as it is done; the first failure ends the run once the units at hand are done."""
    call = functools.partial(_work, clean=job.clean, params=json.dumps(dict(job.params)), folder=os.getcwd())
    if ray is not None:
        yield from run_on_ray(ray, call, {number: tasks[number] for number in wanted}, os.getcwd())
        return
    if workers == 1:
        for number in wanted:
            yield number, call(tasks[number])
        return
    failure: OfflineError | None = None
    # Spawned: what the caller has open (an object store's threads, say) does not survive a fork.
    with _pool(min(workers, max(1, len(wanted)))) as pool:
        running = {pool.submit(call, tasks[number]): number for number in wanted}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                number = running.pop(future)
                try:
                    yield number, future.result()
                except OfflineError as error:
                    failure = failure or error
                except BrokenProcessPool:
                    failure = failure or OfflineError(
                        "a worker process died (killed, or out of memory); run the job again, it goes on from here"
                    )
            if failure is not None:
                running = {future: number for future, number in running.items() if not future.cancel()}
    if failure is not None:
        raise failure


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that leave Ctrl-C to this one, and are ended with it: a unit that is cut off is made anew."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def _claimed(out: Path, job: Job, fresh: bool) -> Iterator[None]:
    """Takes the folder for one job at a time, and makes sure that the parts in it are its own."""
    from shutil import rmtree

    parts = out / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    lock = os.open(out / ".job.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OfflineError(f"{out}: another job is at work here") from None
        known = parts / "job.json"
        if not known.exists() and all((out / split / MANIFEST_NAME).exists() for split in job.splits.names):
            rmtree(parts)
            raise OfflineError(f"{out}: holds a finished data set; write to another folder")
        mine = job.describe()
        if known.exists() and (theirs := json.loads(known.read_bytes())) != mine:
            differing = ", ".join(key for key in mine if mine[key] != theirs.get(key))
            if not fresh:
                raise OfflineError(
                    f"{out}: holds parts of another job (it differs in {differing}); throw them away with --fresh, "
                    "or write to another folder"
                )
            rmtree(parts)
            parts.mkdir()
        write_atomic(known, json.dumps(mine).encode())
        yield
        rmtree(parts)
    finally:
        os.close(lock)
