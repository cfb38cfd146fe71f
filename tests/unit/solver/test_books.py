"""Books: what is taken is gone, what is given back is there again, and nothing else changes."""

from __future__ import annotations

import random

import numpy as np
from small_worlds import ask, box, card, gang, running, world

from phalanx.model.ids import HostId, TeamId
from phalanx.model.placement import WorkerPlacement
from phalanx.solver.books import Books, holding
from phalanx.solver.demand import CardKind
from phalanx.solver.seats import ANY_NUMBER, Seats

H100 = CardKind("H100", 80 * 1024)
H1 = HostId("h1")


def seat(*gpus: int, host: str = "h1") -> WorkerPlacement:
    return WorkerPlacement(role="worker", index=0, host=HostId(host), gpus=gpus)


def test_running_work_is_booked() -> None:
    books = Books(world([box("h1")], running(gang("r", 1, 2, request=ask(2, cpu=10, memory_gib=4)), ("h1", [0, 3]))))
    assert books.free_cards(H1) == {H100: (1, 2, 4, 5, 6, 7)}
    assert (books.hosts[H1].cpu_milli, books.hosts[H1].memory_mib) == (54_000, 508 * 1024)


def test_give_undoes_take() -> None:
    books, job = Books(world([box("h1")])), gang("a", request=ask(2, cpu=10, memory_gib=4, network_mbps=5))
    books.take(job, seat(5, 6))
    assert books.free_cards(H1) == {H100: (0, 1, 2, 3, 4, 7)}
    books.give(job, seat(5, 6))
    assert books.free_cards(H1) == {H100: tuple(range(8))}
    book = books.hosts[H1]
    assert (book.cpu_milli, book.memory_mib, book.network_mbps) == (64_000, 512 * 1024, 100_000)
    assert books.changed == [H1, H1]


def test_broken_cards_are_never_free() -> None:
    books = Books(world([box("h1", [card(0), card(1, healthy=False)])], running(gang("r"), ("h1", [1]))))
    assert books.free_cards(H1) == {H100: (0,)}
    books.give(gang("r"), seat(1))
    assert books.free_cards(H1) == {H100: (0,)}
    assert not books.fits(gang("a"), seat(1))


def test_fractions_share_a_card_within_a_team_until_it_is_full() -> None:
    books = Books(world([box("h1", 1)]))
    tenth, rest = gang("a", request=ask(0.1)), gang("b", request=ask(0.9))
    books.take(tenth, seat(0))
    assert not books.fits(gang("x", request=ask(0.1), team="others"), seat(0))
    assert books.fits(rest, seat(0))
    books.take(rest, seat(0))
    assert books.hosts[H1].cards[0].milli == 0
    assert not books.fits(tenth, seat(0))
    books.give(tenth, seat(0))
    books.give(rest, seat(0))
    assert books.free_cards(H1) == {H100: (0,)}


def test_fits_asks_for_exact_cards_of_one_kind() -> None:
    books = Books(world([box("h1", [card(0), card(1), card(2, memory_gib=94), card(3, "A100")])]))
    pair = gang("a", 1, 2)
    assert books.fits(pair, seat(0, 1))
    assert not books.fits(pair, seat(0, 2))
    assert not books.fits(pair, seat(0, 3))
    assert not books.fits(pair, seat(0))
    assert not books.fits(pair, seat(0, 9))
    assert not books.fits(gang("b", request=ask(1, card_gib=81)), seat(0))
    assert books.fits(gang("b", request=ask(1, card_gib=81)), seat(2))


def test_room_counts_workers_by_cards_and_amounts() -> None:
    book = Books(world([box("h1", [card(0), card(1), card(2), card(3, memory_gib=94)])])).hosts[H1]
    assert book.room(ask(1), "team", "H100", 99) == 4
    assert book.room(ask(2), "team", "H100", 99) == 1, "a worker's cards are of one kind"
    assert book.room(ask(1, card_gib=90), "team", "H100", 99) == 1
    assert book.room(ask(0.3), "team", "H100", 99) == 12
    assert book.room(ask(0.3, card_gib=40), "team", "H100", 99) == 8
    assert book.room(ask(1, cpu=20), "team", "H100", 99) == 3
    assert book.room(ask(1), "team", "A100", 99) == 0
    assert book.room(ask(0, cpu=8), "team", None, 5) == 5


def test_a_fraction_goes_to_the_fullest_card_that_takes_it() -> None:
    books = Books(world([box("h1", 3)]))
    books.take(gang("a", request=ask(0.3)), seat(1))
    books.take(gang("b", request=ask(0.6)), seat(2))
    book = books.hosts[H1]
    assert book.share(ask(0.3), "team", "H100") == 2
    assert book.share(ask(0.5), "team", "H100") == 1
    assert book.share(ask(0.8), "team", "H100") == 0
    assert book.share(ask(0.3), "others", "H100") == 0
    assert book.share(ask(0.3), "team", "A100") is None


def test_books_of_one_snapshot_do_not_see_each_others_work() -> None:
    snapshot, job = world([box("h1"), box("h2")]), gang("a", request=ask(2, cpu=10))
    one, other = Books(snapshot), Books(snapshot)
    worker = seat(0, 1)
    one.take(job, worker)
    one.own(HostId("h2")).book(ask(1), "team", (3,), 1)
    assert (one.hosts[H1].cpu_milli, len(one.free_cards(HostId("h2"))[H100])) == (54_000, 7)
    for untouched in (other, Books(snapshot)):
        assert untouched.hosts[H1].cpu_milli == 64_000
        assert [len(untouched.free_cards(name)[H100]) for name in untouched.hosts] == [8, 8]
    one.give(job, worker)
    assert one.hosts[H1].cpu_milli == 64_000


def test_forked_books_go_their_own_ways() -> None:
    snapshot, job = world([box("h1"), box("h2")]), gang("a", request=ask(2, cpu=10))
    one = Books(snapshot)
    one.take(job, seat(0, 1))
    other = one.fork()
    one.take(job, seat(2, 3))
    other.take(job, seat(4, 5))
    other.give(job, seat(0, 1))
    assert one.free_cards(H1) == {H100: (4, 5, 6, 7)}
    assert other.free_cards(H1) == {H100: (0, 1, 2, 3, 6, 7)}
    assert (one.hosts[H1].cpu_milli, other.hosts[H1].cpu_milli) == (44_000, 54_000)
    rows = one.columns.row["h1"]
    assert [int(books.columns.empty(np.array([rows]))["H100"][0]) for books in (one, other)] == [4, 6]


def test_refitted_hosts_carry_what_was_on_them() -> None:
    worn, whole = (box("h1", [card(0), card(1, "A100", healthy=fit)]) for fit in (False, True))
    snapshot = world([worn, box("h2")], running(gang("r"), ("h1", [0])))
    books = Books(snapshot)
    fitted = books.fork()
    fitted.refit([whole], holding(snapshot))
    assert books.free_cards(H1) == {}
    assert fitted.free_cards(H1) == {CardKind("A100", 80 * 1024): (1,)}
    # A kind of card that no host had is counted in columns too.
    assert int(fitted.columns.empty(np.array([fitted.columns.row[H1]]))["A100"][0]) == 1
    assert fitted.hosts[H1].cpu_milli == books.hosts[H1].cpu_milli < 64_000


def test_fractions_counted_by_columns_are_those_counted_card_by_card() -> None:
    draw = random.Random(5)
    hosts = [box(f"h{n:02}", [card(0), card(1, memory_gib=40), card(2, "A100"), card(3)]) for n in range(60)]
    books = Books(world(hosts))
    for name in list(books.hosts):
        for index in draw.sample(range(4), 2):
            part = ask(draw.choice((0.25, 0.5, 1)), cpu=draw.choice((1, 20)), card_gib=draw.choice((0, 10)))
            books.take(gang("x", request=part, team=draw.choice(("a", "b"))), seat(index, host=name))
    for request in (ask(0.25), ask(0.3, card_gib=30), ask(0.5, cpu=16), ask(0.75, card_gib=50)):
        for gpu_type in ("H100", "A100"):
            seats = Seats(list(books.hosts), books, request, TeamId("a"), gpu_type)
            rooms = {name: book.room(request, TeamId("a"), gpu_type, ANY_NUMBER) for name, book in books.hosts.items()}
            assert seats.room == {name: room for name, room in rooms.items() if room}
            assert len(seats.room) > 10
