"""The job: plans units, runs those not done yet in worker processes, and joins their parts into the data sets.

    WORK/.parts/job.json       what the job is: parts of another one are never mixed in
    WORK/.parts/000012/        the part of unit 12
    OUT/[SPLIT/]manifest.json  written last

WORK is OUT itself, or for an OUT in an object store a folder of this host.

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
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from ..errors import OfflineError
from ..files import write_atomic
from ..remote import is_remote
from .assemble import Out, assemble, is_finished, write_report
from .inputs import load_function
from .job import Job, Report
from .ray_tasks import run_on_ray
from .steps import Windowing
from .unit import Clean, Part, Task, read_part, run_unit

PARTS = ".parts"


Progress = Callable[[int, int, Part], None]


def make(
    job: Job,
    out: str | Path,
    *,
    work: str | Path | None = None,
    workers: int = 1,
    ray: str | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Runs a job to its end, going on from what an earlier run of the same job left.

    `out` is a folder, or an address of an object store, to which finished shards are sent. Until then they stand in the
    folder `work` (default: `out`, or `work_folder(out)` for an address), which needs room for all of them.

    With `ray`, the address of a cluster ("auto": the one that this process belongs to), units are tasks there, a CPU
    each, instead of `workers` processes here; inputs and `work` must then lie where every host sees them.

    `fresh` throws away the parts of another job; `progress(done, units, part)` is called after each unit. Raises
    OfflineError if `out` holds a finished data set or `work` parts of another job, if a recording cannot be cleaned
    (what was finished stays, and a next run goes on from there), or if a worker dies; DatasetError if a store refuses.
    """
    place, folder, begun = *_places(out, work, on_ray=ray is not None), time.monotonic()
    if workers < 1:
        raise OfflineError(f"workers {workers} must be at least 1")
    with _claimed(place, folder, job, fresh):
        tasks = [
            Task(folder / PARTS / f"{number:06d}", unit, job.splits, job.shard_bytes, job.drop_failing)
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
        manifests = assemble(place, job.name, job.splits, [task.folder for task in tasks], {**job.describe(), **told})
        report = Report(manifests, len(job.inputs), dropped, len(tasks), reused, time.monotonic() - begun)
        write_report(place, json.dumps(report.to_json(), indent=1).encode() + b"\n")
    return report


def work_folder(address: str) -> Path:
    """Where a job that writes to an object store keeps what is not sent yet, so that it can go on after a crash."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "phalanx" / "shard-jobs" / hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:16]


def _places(out: str | Path, work: str | Path | None, *, on_ray: bool) -> tuple[Out, Path]:
    """The folder or address of the data sets, and the folder to work in."""
    text = str(out).rstrip("/") if is_remote(out) else str(out)
    if not is_remote(text):
        if "://" in text and not text.startswith("file://"):
            raise OfflineError(f"{text}: give a folder, or an s3://, gs:// or az:// address")
        if work is not None:
            raise OfflineError(f"{text}: a folder needs no other one to work in; that is for addresses")
        folder = Path(text.removeprefix("file://"))
        folder = folder.absolute() if on_ray else folder
        return folder, folder
    if on_ray and work is None:
        raise OfflineError(f"{text}: a Ray cluster needs a folder to work in that every host sees (--work)")
    return text, (work_folder(text) if work is None else Path(work)).absolute()


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
def _claimed(out: Out, folder: Path, job: Job, fresh: bool) -> Iterator[None]:
    """Takes the folder for one job at a time, and makes sure that the parts in it are its own."""
    from shutil import rmtree

    parts = folder / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".job.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OfflineError(f"{folder}: another job is at work here") from None
        known = parts / "job.json"
        if not known.exists() and is_finished(out, job.splits):
            rmtree(parts)
            raise OfflineError(f"{out}: holds a finished data set; write to another folder")
        mine = job.describe()
        if known.exists() and (theirs := json.loads(known.read_bytes())) != mine:
            differing = ", ".join(key for key in mine if mine[key] != theirs.get(key))
            if not fresh:
                raise OfflineError(
                    f"{folder}: holds parts of another job (it differs in {differing}); throw them away with --fresh, "
                    "or write to another folder"
                )
            rmtree(parts)
            parts.mkdir()
        write_atomic(known, json.dumps(mine).encode())
        yield
        rmtree(parts)
    finally:
        os.close(lock)
