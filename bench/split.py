"""What it costs a gang to stand in several racks, by Gavel's runs of models on one server and spread over several."""

from __future__ import annotations

import csv
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

from ..model.errors import InvalidInput
from ..model.ids import JobId
from ..model.intent import Intent
from ..model.topology import Layer
from .heterogeneity import FILE
from .workload import Workload

COLUMN = "steps_per_s_v100"


def with_split_cost(workload: Workload, folder: Path, seed: int) -> Workload:
    """The workload in which each gang of several workers draws how fast it runs in several racks; never faster.

    The speeds are those of models on 2, 4 and 8 V100 on several servers over those on one (Narayanan et al., OSDI
    2020). Servers with the network of that time stand here for racks, so that the cost is an upper bound, and no
    default. InvalidInput where the file is missing.
    """
    ratios = _ratios(folder / FILE)
    jobs = []
    for each in workload.jobs:
        drawn = random.Random(f"{seed}/split/{each.job.id}").choice(ratios)
        jobs.append(replace(each, split_milli=drawn) if each.job.workers > 1 else each)
    middle = sorted(ratios)[len(ratios) // 2] / 10
    told = f"gangs that one rack could hold are slower in several, by ratios drawn from {FILE} (median {middle:.0f} %)"
    return replace(workload, jobs=tuple(jobs), synthetic=(*workload.synthetic, told))


def _ratios(path: Path) -> list[int]:
    if not path.exists():
        raise InvalidInput(str(path), "there is no such file", "throughputs as Gavel's repository publishes them")
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            together, apart = float(row[COLUMN] or 0), float(row[f"{COLUMN}_unconsolidated"] or 0)
            if int(row["gpus"]) > 1 and together and apart:
                found.append(min(1_000, max(1, round(1_000 * apart / together))))
    if not found:
        raise InvalidInput(str(path), "has no model that ran on several servers", "rows with gpus above 1")
    return found


class Split:
    """How fast attempts run for where they stand."""

    def __init__(self, workload: Workload) -> None:
        self._milli: dict[JobId, int] = {s.job.id: s.split_milli for s in workload.jobs if s.split_milli < 1_000}
        self._rack = {host.id: host.path.domain(Layer.RACK, host.id) for host in workload.hosts}
        sizes: Counter[str] = Counter()
        for host in workload.hosts:
            sizes[self._rack[host.id]] += host.gpu_milli
        self._largest = max(sizes.values(), default=0)

    def milli(self, intent: Intent) -> int:
        """Thousandths of its speed: 1000 in one rack, and for a gang that no rack holds."""
        milli = self._milli.get(intent.job.id, 1_000)
        if milli == 1_000 or intent.job.gpu_milli > self._largest:
            return 1_000
        return milli if len({self._rack[name] for name in intent.placement.hosts}) > 1 else 1_000
