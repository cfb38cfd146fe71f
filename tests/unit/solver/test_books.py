"""Books: what is taken is gone, what is given back is there again, and nothing else changes."""

from __future__ import annotations

from small_worlds import ask, box, card, gang, running, world

from phalanx.model.ids import HostId
from phalanx.model.placement import WorkerPlacement
from phalanx.solver.books import Books
from phalanx.solver.demand import CardKind

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
