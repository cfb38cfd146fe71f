"""FGD measures fragments as the paper defines them, descends its gradient, and leaves fewer GPUs idle when full."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from small_worlds import POLICY, ask, box, card, gang, queued, role, running, world

from phalanx.bench.baselines import BASELINES, Fgd
from phalanx.bench.baselines.fgd import Gradient
from phalanx.bench.baselines.floor import Floor
from phalanx.bench.baselines.fragmentation import Fragmentation, Free, TaskClass, tasks
from phalanx.model.decision import Decision
from phalanx.model.host import Host
from phalanx.model.job import Job, TopologyConstraint
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Layer
from phalanx.solver.books import Books

RACK = (TopologyConstraint(layer=Layer.RACK),)


def fragments(hosts: list[Host], workload: dict[TaskClass, int], *records: JobRecord) -> list[float]:
    snapshot = world(hosts, *records)
    types = {gpu.gpu_type for host in hosts for gpu in host.gpus}
    measure = Fragmentation(workload, types)
    free = Free(Floor(snapshot, POLICY), Books(snapshot), measure.number)
    return [float(each) for each in measure.of(free.hosts)]


def asking(gpus: float, cpu: int = 1, types: tuple[str, ...] = ()) -> TaskClass:
    return TaskClass.of(role("worker", 1, ask(gpus, cpu), types))


def half_used(name: str, host: str, index: int, gpus: float, team: str = "team") -> JobRecord:
    return running(gang(name, 1, gpus, team=team), (host, (index,)))


# Two cards, 0.6 and 0.4 left: the paper's figure of a host whose one GPU in total serves no whole-GPU task.
LEFT = (half_used("a", "h", 0, 0.4), half_used("b", "h", 1, 0.6))


@pytest.mark.parametrize(
    ("task", "fragment"),
    [
        (asking(1), 1_000),  # no card is whole: all is a fragment
        (asking(0.5), 400),  # runs on the first card; what the second has left is too little
        (asking(0.3), 0),  # both cards serve
        (asking(0.3, cpu=64), 1_000),  # too few cores are left: it cannot run at all
        (asking(0.3, types=("A100",)), 1_000),  # of another type
        (asking(0), 1_000),  # a task without GPUs can use none
    ],
)
def test_fragments_of_a_host_for_one_task(task: TaskClass, fragment: int) -> None:
    assert fragments([box("h", 2)], {task: 1}, *LEFT) == [fragment]


def test_the_expectation_weighs_classes_by_how_frequent_they_are() -> None:
    assert fragments([box("h", 2)], {asking(1): 1, asking(0.5): 3}, *LEFT) == [pytest.approx(0.25 * 1_000 + 0.75 * 400)]


def test_whole_cards_short_of_a_large_task_are_fragments() -> None:
    four, one = asking(4), asking(1)
    assert fragments([box("h", 4), box("g", 3)], {four: 1, one: 1}) == [0, 1_500]


def test_a_broken_card_is_no_fragment() -> None:
    assert fragments([box("h", [card(0), card(1, healthy=False)])], {asking(2): 1}) == [1_000]


def test_rare_classes_are_left_out() -> None:
    workload = {asking(1): 96, asking(4): 4}
    assert fragments([box("h", 3)], workload) == [0]


def test_tasks_are_counted_by_worker() -> None:
    gangs = [gang("a", 4, 8), gang("b", 1, 8), gang("c", 1, 0.5)]
    assert tasks(gangs) == Counter({asking(8): 5, asking(0.5): 1})


def test_the_measure_follows_the_books() -> None:
    snapshot = world([box("h", 2), box("g", 2)], *LEFT)
    books, floor = Books(snapshot), Floor(snapshot, POLICY)
    gradient = Gradient(floor, books, Fragmentation({asking(1): 1}, {"H100"}))
    one = gang("x", 1, 1)
    room = np.array([0, 2])
    assert list(gradient.scores(one, ("H100",), np.array([0, 1]), np.array([1]), [room])) == [
        pytest.approx(0, abs=1e-6)
    ]
    books.give(LEFT[0].job, LEFT[0].placement.workers[0])  # type: ignore[union-attr]
    room = np.array([1, 2])
    assert list(gradient.scores(one, ("H100",), np.array([0, 1]), np.array([0, 1]), [room])) == [
        pytest.approx(0, abs=1e-6),
        pytest.approx(0, abs=1e-6),
    ]


def place(snapshot: Snapshot, workload: list[Job]) -> Decision:
    return Fgd(workload)(snapshot, POLICY)


def test_a_fraction_goes_to_the_card_that_it_fills() -> None:
    workload = [gang("w1", 1, 1), gang("w2", 1, 0.4)]
    decision = place(world([box("h", 3)], *LEFT, queued(gang("x", 1, 0.4))), workload)
    # 0.4 beside 0.6 fills card 1; on card 0 it would leave 0.2, and a whole card would be broken.
    assert decision.starts[0].placement.workers[0].gpus == (1,)


def test_a_fraction_leaves_the_last_whole_card_even_where_another_is_fuller() -> None:
    # Best fit would choose card 0 (0.6 left) for 0.2; what remains there, 0.4, serves nobody, but 0.5 - 0.2 does not
    # either, while card 1 serves none now.
    workload = [gang("w1", 1, 0.6), gang("w2", 1, 0.2)]
    records = (half_used("a", "h", 0, 0.4), half_used("b", "h", 1, 0.5))
    decision = place(world([box("h", 2)], *records, queued(gang("x", 1, 0.2))), workload)
    assert decision.starts[0].placement.workers[0].gpus == (1,)


def test_small_work_leaves_the_host_that_large_work_needs() -> None:
    workload = [gang("w8", 1, 8), gang("w1", 1, 1)]
    hosts = [box("whole", 8), box("broken", 8)]
    snapshot = world(hosts, running(gang("r", 1, 1), ("broken", (0,))), queued(gang("x", 1, 2)))
    assert place(snapshot, workload).starts[0].placement.hosts == ("broken",)


def test_work_without_gpus_goes_where_cores_are_not_needed_by_gpus() -> None:
    hosts = [box("gpus", 8, cpu_milli=8_000), box("cores", 0, cpu_milli=8_000)]
    snapshot = world(hosts, queued(gang("x", 1, request=ask(0, 4))))
    assert place(snapshot, [gang("w", request=ask(1, 8))]).starts[0].placement.hosts == ("cores",)


def test_a_free_choice_leaves_the_type_that_others_cannot_do_without() -> None:
    hosts = [box("h", 2, "H100"), box("a", 2, "A100")]
    workload = [gang("w1", 1, 1, ("H100",)), gang("w2", 1, 1)]
    assert place(world(hosts, queued(gang("x", 1, 1))), workload).starts[0].placement.hosts == ("a",)


def test_a_gang_descends_worker_by_worker_inside_the_cheaper_domain() -> None:
    hosts = [box("a1", 8, rack="a"), box("a2", 8, rack="a"), box("b1", 8, rack="b"), box("b2", 8, rack="b")]
    busy = (running(gang("r1", 1, 4), ("b1", range(4))), running(gang("r2", 1, 4), ("b2", range(4))))
    workload = [gang("w8", 1, 8), gang("w4", 1, 4)]
    snapshot = world(hosts, *busy, queued(gang("x", 2, 4, topology=RACK)), queued(gang("y", 4, 4, topology=RACK)))
    starts = {start.job: start.placement.hosts for start in place(snapshot, workload).starts}
    assert starts == {"x": ("b1", "b2"), "y": ("a1", "a2")}


def test_the_workload_is_what_was_seen_so_far() -> None:
    scheduler = Fgd()
    hosts = [box("whole", 8), box("broken", 8)]
    rest = running(gang("r", 1, 1), ("broken", (0,)))
    eights = [queued(gang(f"e{n}", 3, 8)) for n in range(3)]
    assert scheduler(world(hosts, rest, *eights), POLICY).starts == ()
    # The large gangs have left the queue and are remembered.
    decision = scheduler(world(hosts, rest, queued(gang("x", 1, 2))), POLICY)
    assert decision.starts[0].placement.hosts == ("broken",)


def _saturated(seed: int) -> Snapshot:
    """A scaled-down fleet and task mix like openb's: hosts of 2, 4 and 8, half the tasks fractions, demand 1.4."""
    draw = random.Random(seed)
    hosts = [box(f"h{n:02d}", draw.choice((2, 2, 4, 8, 8)), cpu_milli=96_000) for n in range(36)]
    total = sum(len(host.gpus) for host in hosts)
    jobs, asked = [], 0.0
    while asked < 1.4 * total:
        gpus = draw.choices((0.2, 0.4, 0.5, 0.6, 0.8, 1, 2, 4, 8), (6, 8, 6, 6, 8, 44, 4, 2, 6))[0]
        cores = draw.choice((2, 4, 8, 12)) if gpus <= 1 else 8 * gpus
        jobs.append(gang(f"j{len(jobs):03d}", request=ask(gpus, cores)))
        asked += gpus
    return world(hosts, *(queued(job, 10_000 - n) for n, job in enumerate(jobs)))


def _unallocated(snapshot: Snapshot, name: str) -> float:
    jobs = {record.id: record.job for record in snapshot.jobs}
    used = sum(jobs[start.job].gpu_milli for start in BASELINES[name]()(snapshot, POLICY).starts)
    return (sum(host.gpu_milli for host in snapshot.hosts) - used) / 1_000


def test_a_full_fleet_has_fewer_idle_gpus_than_under_any_other_packing() -> None:
    """The shape of the paper's main result: unallocated GPUs when demand exceeds the fleet, over some draws."""
    idle: Counter[str] = Counter()
    for seed in range(4):
        snapshot = _saturated(seed)
        for name in ("fgd", "best_fit", "first_fit", "random"):
            idle[name] += _unallocated(snapshot, name)
    assert (
        idle["fgd"]
        < min(idle["best_fit"], idle["first_fit"])
        < max(idle["best_fit"], idle["first_fit"])
        < idle["random"]
    ), idle
