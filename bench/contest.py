"""Every scheduler on every workload: fresh schedulers, the same jobs, on as many cores as asked."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import TimeoutError as NotYet
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..api.cli.tables import console
from ..model.errors import InvalidInput
from ..model.policy import Policy
from ..solver.solve import solve
from .baselines import BASELINES, FifoPartitioned
from .metrics import Metrics, measure
from .run import Run
from .simulator import Options, Scheduler, simulate
from .workload import Workload

PHALANX = "phalanx"

LOOK_S = 0.5
"""Wall seconds between two looks at what the workers tell."""

News = tuple[str, float]
"""What runs, and by which part of a run it has come on."""

Tell = Callable[[str, float], None]
Task = tuple[str, int, Workload, Policy, Options]

_news: SimpleQueue[News] | None = None
"""In a worker: where it tells how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The runs of each scheduler, one per workload, and their numbers."""

    runs: dict[str, list[Run]]
    metrics: dict[str, list[Metrics]]


def scheduler(name: str, workload: Workload) -> Scheduler:
    """A fresh scheduler of that name; a partitioned one takes the workload's owners. InvalidInput for another name."""
    if name == PHALANX:
        return solve
    if name == "fifo_partitioned" and workload.owners:
        return FifoPartitioned(workload.owners)
    if name not in BASELINES:
        raise InvalidInput("--against", f"there is no scheduler {name!r}", ", ".join((PHALANX, *BASELINES)))
    return BASELINES[name]()


def hold(
    workloads: Sequence[tuple[int, Workload]],
    names: Sequence[str],
    policy: Policy,
    options: Options,
    *,
    workers: int = 1,
    quiet: bool = False,
) -> Contest:
    """Runs all of them, seeds with workloads as given; the order of the result is that of the arguments."""
    for name in names:
        scheduler(name, workloads[0][1])
    tasks = [(name, seed, workload) for name in names for seed, workload in workloads]
    runs: dict[tuple[str, int], Run] = {}
    with _bar(len(tasks), quiet) as tell:
        if workers > 1:
            for run in _beside([(*task, policy, options) for task in tasks], workers, tell):
                runs[run.scheduler, run.seed] = run
        else:
            for name, seed, workload in tasks:
                runs[name, seed] = _run(name, seed, workload, policy, options, tell)
    found = {name: [runs[name, seed] for seed, _ in workloads] for name in names}
    return Contest(runs=found, metrics={name: [measure(run) for run in each] for name, each in found.items()})


def _beside(tasks: Sequence[Task], workers: int, tell: Tell) -> Iterator[Run]:
    """The runs in processes of their own, as they end; how far each is comes back through a pipe."""
    context = get_context("forkserver")
    news: SimpleQueue[News] = context.SimpleQueue()
    with context.Pool(workers, _worker, (news,)) as pool:
        found, left = pool.imap_unordered(_task, tasks), len(tasks)
        while left:
            try:
                run = found.next(timeout=LOOK_S)
            except NotYet:
                run = None
            while not news.empty():
                tell(*news.get())
            if run is not None:
                left -= 1
                yield run


def _worker(news: SimpleQueue[News]) -> None:
    """Ctrl-C is the parent's: it ends its workers, and they say nothing."""
    global _news
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _news = news


def _task(task: Task) -> Run:
    return _run(*task, tell=None if _news is None else lambda what, share: _news.put((what, share)))


def _run(
    name: str,
    seed: int,
    workload: Workload,
    policy: Policy,
    options: Options,
    tell: Tell | None = None,
) -> Run:
    done = 0.0

    def progress(ended: int, total: int, _now_s: int) -> None:
        nonlocal done
        if tell is not None:
            tell(f"{name}, seed {seed}", ended / total - done)
            done = ended / total

    # The forecast is the service's, and says nothing about what another scheduler will do.
    forecast_s = options.forecast_s if name == PHALANX else None
    chosen = replace(options, seed=seed, forecast_s=forecast_s)
    run = simulate(workload, name, scheduler(name, workload), policy, chosen, progress)
    if tell is not None:
        tell(f"{name}, seed {seed}", 1.0 - done)
    return run


@contextmanager
def _bar(total: int, quiet: bool) -> Iterator[Tell]:
    """A bar on stderr that counts runs, parts of one included; where stderr is no terminal a line at each tenth."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    out, begun = console(stderr=True), time.perf_counter()
    with Progress(*columns, console=out, disable=quiet or not out.is_terminal) as bar:
        task = bar.add_task("simulating", total=total)

        done, shown = 0.0, 0

        def tell(what: str, share: float) -> None:
            nonlocal done, shown
            done += share
            bar.update(task, advance=share, description=what)
            if not quiet and not out.is_terminal and int(10 * done / total + 1e-9) > shown:
                shown = int(10 * done / total + 1e-9)
                out.print(f"{what}: {10 * shown} % of {total} runs, {time.perf_counter() - begun:.0f} s", markup=False)

        yield tell
