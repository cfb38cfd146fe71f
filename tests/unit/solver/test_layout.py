"""Ranks: tensor groups inside NVLink domains, as many replicas as possible inside each domain, nothing booked twice."""

from __future__ import annotations

import pytest
from small_worlds import ask, box, card, gang, queued, role, running, world

from phalanx.model.host import Host
from phalanx.model.ids import HostId
from phalanx.model.job import Job, Parallelism, TopologyConstraint
from phalanx.model.placement import Placement
from phalanx.model.topology import Layer
from phalanx.solver.books import Books
from phalanx.solver.demand import CardKind
from phalanx.solver.layout import lay_out

H100 = CardKind("H100", 80 * 1024)


def place(fleet: list[Host], job: Job, *running_: object, **counts: dict[str, int]) -> tuple[Placement, Books]:
    books = Books(world(fleet, *running_))
    seats = {
        name: {(HostId(host), H100 if job.role(name).request.gpu_milli else None): n for host, n in hosts.items()}
        for name, hosts in counts.items()
    }
    return lay_out(queued(job), seats, books), books


def inside(placement: Placement, fleet: list[Host], size: int, layer: Layer) -> int:
    """How many blocks of `size` consecutive ranks lie wholly in one domain of the layer."""
    paths = {host.id: host.path.domain(layer, host.id) for host in fleet}
    domains = [paths[worker.host] for worker in placement.workers]
    return sum(len(set(domains[i : i + size])) == 1 for i in range(0, len(domains), size))


def test_lowest_free_cards_in_rank_order() -> None:
    fleet = [box("h1")]
    placed, books = place(fleet, gang("a", 3, 2), running(gang("r"), ("h1", [1])), worker={"h1": 3})
    assert [worker.gpus for worker in placed.workers] == [(0, 2), (3, 4), (5, 6)]
    assert [worker.index for worker in placed.workers] == [0, 1, 2]
    assert books.free_cards(HostId("h1")) == {H100: (7,)}


def test_tensor_groups_stay_inside_an_nvlink_domain_of_two_hosts() -> None:
    fleet = [box("h1", 3, nvlink="n1"), box("h2", 5, nvlink="n1"), box("h3", 4, nvlink="n2")]
    job = gang("a", 12, 1, parallelism=Parallelism(tensor=4, data=3))
    placed, _ = place(fleet, job, worker={"h1": 3, "h2": 5, "h3": 4})
    assert inside(placed, fleet, 4, Layer.NVLINK) == 3
    assert inside(placed, fleet, 4, Layer.HOST) == 2


def test_as_many_replicas_as_possible_inside_each_domain_of_each_layer() -> None:
    fleet = [
        box("h1", rack="r1", zone="z1"),
        box("h2", rack="r1", zone="z1"),
        box("h3", rack="r2", zone="z1"),
        box("h4", rack="r3", zone="z2"),
        box("h5", rack="r4", zone="z2"),
    ]
    counts = {"h1": 7, "h2": 6, "h3": 5, "h4": 3, "h5": 3}
    job = gang(
        "a", 24, 1, parallelism=Parallelism(pipeline=4, data=6), topology=(TopologyConstraint(layer=Layer.SITE),)
    )
    placed, _ = place(fleet, job, worker=counts)
    # floor(count in the domain / 4), summed over the domains of the layer, is the most there can be.
    assert inside(placed, fleet, 4, Layer.NVLINK) == 1 + 1 + 1
    assert inside(placed, fleet, 4, Layer.RACK) == 3 + 1
    assert inside(placed, fleet, 4, Layer.ZONE) == 4 + 1
    assert sorted(worker.host for worker in placed.workers) == sorted(h for h, n in counts.items() for _ in range(n))


def test_tensor_and_pipeline_nest() -> None:
    fleet = [box(f"h{i}", 4, rack=f"r{i // 2}") for i in range(4)]
    job = gang("a", 16, 1, parallelism=Parallelism(tensor=2, pipeline=4, data=2))
    placed, _ = place(fleet, job, worker={f"h{i}": 4 for i in range(4)})
    assert inside(placed, fleet, 2, Layer.HOST) == 8
    assert inside(placed, fleet, 8, Layer.RACK) == 2


def test_roles_share_a_host_without_sharing_cards() -> None:
    job = gang("a", roles=(role("small", 2, ask(0.5)), role("big", 2, ask(3)), role("cpu", 1, ask(0))))
    placed, books = place([box("h1")], job, small={"h1": 2}, big={"h1": 2}, cpu={"h1": 1})
    assert [worker.role for worker in placed.workers] == ["small", "small", "big", "big", "cpu"]
    assert [worker.gpus for worker in placed.workers] == [(6,), (6,), (0, 1, 2), (3, 4, 5), ()]
    assert books.free_cards(HostId("h1")) == {H100: (7,)}


def test_fixed_cards_are_left_to_the_workers_they_are_fixed_for() -> None:
    job = gang("a", roles=(role("big", 1, ask(3)), role("small", 2, ask(0.5))))
    books = Books(world([box("h1", 4)]))
    h1 = HostId("h1")
    placed = lay_out(queued(job), {"big": {(h1, H100): 1}}, books, {"small": [(h1, 1), (h1, 1)]})
    assert [worker.gpus for worker in placed.workers] == [(0, 2, 3), (1,), (1,)]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"h1": 1}, "2 workers, but 1 seats"),
        ({"h1": 3}, "2 workers, but 3 seats"),
        ({"h1": 1, "h2": 1}, "no multiple of tensor 2"),
    ],
)
def test_counts_that_are_not_the_gang_s_are_a_fault(counts: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        place([box("h1"), box("h2")], gang("a", 2, 1, parallelism=Parallelism(tensor=2)), worker=counts)


def test_nothing_stays_booked_after_a_fault() -> None:
    books = Books(world([box("h1", [card(0), card(1), card(2)])]))
    with pytest.raises(ValueError, match="has 1 free H100"):
        lay_out(queued(gang("a", 2, 2)), {"worker": {(HostId("h1"), H100): 2}}, books)
    assert books.free_cards(HostId("h1")) == {H100: (0, 1, 2)}
