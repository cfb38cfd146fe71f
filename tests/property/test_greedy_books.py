"""Books, rooms and ranks kept up step by step are those made afresh."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import policies, requests, snapshots

from phalanx.model.host import Gpu, Host
from phalanx.model.ids import HostId, JobId, TeamId
from phalanx.model.job import Job, Parallelism, Role, WorkerRequest
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Layer, Site, TopologyPath
from phalanx.solver import seats
from phalanx.solver.books import Books, holding
from phalanx.solver.confinements import Confinements
from phalanx.solver.demand import CardKind, confinement
from phalanx.solver.layout import lay_out
from phalanx.solver.rooms import Rooms, Tree, on_type
from phalanx.solver.seats import Seats


def state(books: Books) -> object:
    return {
        name: (
            book.cpu_milli,
            book.memory_mib,
            book.network_mbps,
            {kind: free for kind, free in book.free.items() if free},
            {index: (card.milli, card.memory_mib, card.teams) for index, card in book.cards.items()},
        )
        for name, book in books.hosts.items()
    }


@settings(deadline=None, max_examples=60)
@given(snapshot=snapshots(max_running=8), request=requests(), data=st.data())
def test_taking_and_giving_in_any_order(snapshot: Snapshot, request: WorkerRequest, data: st.DataObject) -> None:
    books, tree = Books(snapshot), Tree(snapshot.hosts)
    gpu_type = data.draw(st.sampled_from(("A100", "H100"))) if request.gpu_milli else None
    rooms = Rooms(tree, books, request, TeamId("web"), gpu_type, 2)
    held = list(holding(snapshot))
    gone = [pair for pair in data.draw(st.permutations(held)) if data.draw(st.booleans())]
    for job, worker in gone:
        books.give(job, worker)
        rooms.catch_up()
    for job, worker in data.draw(st.permutations(gone)):
        assert books.fits(job, worker)
        books.take(job, worker)
        rooms.catch_up()
    assert state(books) == state(Books(snapshot))
    fresh = Rooms(tree, Books(snapshot), request, TeamId("web"), gpu_type, 2)
    assert {node: rooms[node] for node in tree.rank} == {node: fresh[node] for node in tree.rank}


@settings(deadline=None, max_examples=60)
@given(snapshot=snapshots(max_running=8), request=requests(), data=st.data())
def test_columns_say_what_one_look_after_another_says(
    snapshot: Snapshot, request: WorkerRequest, data: st.DataObject
) -> None:
    books, team = Books(snapshot), TeamId(data.draw(st.sampled_from(("web", "vision"))))
    gpu_type = data.draw(st.sampled_from(("A100", "H100"))) if request.gpu_milli else None
    hosts = on_type((host.id for host in snapshot.hosts), books, gpu_type)
    for leaving in (list(holding(snapshot)), []):
        looked = Seats(hosts, books, request, team, gpu_type)
        with patch.object(seats, "_MANY", 0):
            assert Seats(hosts, books, request, team, gpu_type).room == looked.room
        for job, worker in leaving:
            if data.draw(st.booleans()):
                books.give(job, worker)


@settings(deadline=None, max_examples=60)
@given(snapshot=snapshots(), policy=policies())
def test_confinements_are_those_of_the_whole_fleet(snapshot: Snapshot, policy: Policy) -> None:
    known = Confinements(snapshot, policy)
    for record in snapshot.jobs:
        assert known(record.job) == confinement(record.job, snapshot, policy)


@settings(deadline=None, max_examples=100)
@given(
    counts=st.lists(st.integers(0, 6), min_size=2, max_size=8),
    paths=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2)), min_size=8, max_size=8),
    tensor=st.integers(1, 3),
    pipeline=st.integers(1, 4),
)
def test_ranks_reach_the_most_replicas_inside_each_layer_at_once(
    counts: list[int], paths: list[tuple[int, int, int]], tensor: int, pipeline: int
) -> None:
    size = tensor * pipeline
    counts = [count * tensor for count in counts]
    # A gang is whole replicas: what is over goes from the last hosts that have some.
    over = sum(counts) % size
    for index in reversed(range(len(counts))):
        cut = min(counts[index], over)
        counts[index] -= cut
        over -= cut
    if not sum(counts):
        return
    kind = CardKind("H100", 80)
    hosts = tuple(
        Host(
            id=HostId(f"h{n}"),
            path=TopologyPath(site="s", zone=f"z{zone}", rack=f"r{rack}", nvlink=None if link == 2 else f"n{link}"),
            gpus=tuple(Gpu(index=i, gpu_type="H100", memory_mib=80) for i in range(18)),
            cpu_milli=0,
            memory_mib=0,
        )
        for n, (zone, rack, link) in enumerate(paths)
    )
    shape = Parallelism(tensor=tensor, pipeline=pipeline, data=sum(counts) // size)
    role = Role(count=sum(counts), request=WorkerRequest(gpu_milli=1_000), parallelism=shape)
    record = JobRecord(job=Job(id=JobId("a"), team=TeamId("t"), roles=(role,)), submitted_s=0)
    books = Books(Snapshot(now_s=0, sites=(Site(id="s"),), hosts=hosts))
    seats = {(hosts[n].id, kind): count for n, count in enumerate(counts) if count}
    placed = lay_out(record, {"worker": seats}, books).workers
    assert Counter(worker.host for worker in placed) == Counter({host: n for (host, _), n in seats.items()})
    path = {host.id: host.path for host in hosts}
    for layer in (Layer.NVLINK, Layer.RACK, Layer.ZONE):
        domain = [path[worker.host].domain(layer, worker.host) for worker in placed]
        inside = sum(len(set(domain[i : i + size])) == 1 for i in range(0, len(domain), size))
        assert inside == sum(count // size for count in Counter(domain).values())
    groups = [path[worker.host].domain(Layer.NVLINK, worker.host) for worker in placed]
    assert all(len(set(groups[i : i + tensor])) == 1 for i in range(0, len(groups), tensor))
