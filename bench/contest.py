"""Every scheduler on every workload: fresh schedulers, the same jobs, on as many cores as asked."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context

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
            with get_context("forkserver").Pool(workers, _deaf) as pool:
                for run in pool.imap_unordered(_task, [(*task, policy, options) for task in tasks]):
                    runs[run.scheduler, run.seed] = run
                    tell(f"{run.scheduler}, seed {run.seed}", 1.0)
        else:
            for name, seed, workload in tasks:
                runs[name, seed] = _run(name, seed, workload, policy, options, tell)
    found = {name: [runs[name, seed] for seed, _ in workloads] for name in names}
    return Contest(runs=found, metrics={name: [measure(run) for run in each] for name, each in found.items()})


def _deaf() -> None:
    """Ctrl-C is the parent's: it ends its workers, and they say nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _task(task: tuple[str, int, Workload, Policy, Options]) -> Run:
    return _run(*task)


def _run(
    name: str,
    seed: int,
    workload: Workload,
    policy: Policy,
    options: Options,
    tell: Callable[[str, float], None] | None = None,
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
def _bar(total: int, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr that counts runs, parts of one included."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), disable=quiet) as bar:
        task = bar.add_task("simulating", total=total)

        def tell(what: str, share: float) -> None:
            bar.update(task, advance=share, description=what)

        yield tell
