"""What is kept back of freed room, by level: amounts and cards worked out by hand from docs/rounds.md."""

from __future__ import annotations

from small_worlds import ask, box, gang, placement, queued, running, world

from phalanx.model.job import Job, Preemptible
from phalanx.model.snapshot import JobRecord
from phalanx.solver.books import Books
from phalanx.solver.ranks import Ranks, rank
from phalanx.solver.withheld import Hold, holds

ZERO = {"preemptible": Preemptible.ANYTIME}


def leaves(name: str, *gpus: int, request: object = None, **more: object) -> JobRecord:
    return running(gang(name, request=request or ask(len(gpus), cpu=10), **{"tier": 4, **more}), ("h1", gpus))


def comes(job: Job, *gpus: int) -> tuple[JobRecord, object]:
    return queued(job), placement(job, ("h1", gpus))


def kept(level: int, leaving: list[JobRecord], *coming: tuple[JobRecord, object]) -> Hold | None:
    snapshot = world([box("h1")], *leaving)
    placed = [(rank(record.level, inside=False), record, there) for record, there in coming]
    return holds(rank(level, inside=False), Ranks(snapshot).leaving(leaving), placed, Books(snapshot)).get("h1")


def test_nothing_is_kept_from_levels_above_the_victim() -> None:
    assert kept(2, [leaves("one", 0)]) is None
    assert kept(1, [leaves("zero", 0, **ZERO)]) is None


def test_all_that_was_freed_is_kept_where_nobody_took_any() -> None:
    hold = kept(1, [leaves("one", 0, 1)])
    assert hold is not None
    assert hold.amounts == (10_000, 0, 0)
    assert hold.cards == {0: ("team", 1_000, 81_920), 1: ("team", 1_000, 81_920)}


def test_what_higher_starts_took_is_not_kept_twice() -> None:
    top = gang("top", request=ask(1, cpu=4), tier=1)
    hold = kept(1, [leaves("one", 0, 1)], comes(top, 0))
    assert hold is not None
    assert hold.amounts == (6_000, 0, 0)
    assert hold.cards == {0: ("team", 0, 0), 1: ("team", 1_000, 81_920)}


def test_higher_starts_that_took_more_leave_nothing_to_keep() -> None:
    top = gang("top", request=ask(1, cpu=30), tier=1)
    hold = kept(1, [leaves("one", 0)], comes(top, 0))
    assert hold is not None
    assert hold.amounts == (0, 0, 0)


def test_the_tightest_level_counts() -> None:
    # For level 0: 4 of level 2's victim are kept from all up to 2; of both victims 10 are freed, and 2 taken above 0.
    leaving = [leaves("two", request=ask(0, cpu=4), tier=2), leaves("zero", request=ask(0, cpu=6), **ZERO)]
    mid = gang("mid", request=ask(0, cpu=2), tier=3)
    hold = kept(0, leaving, comes(mid))
    assert hold is not None
    assert hold.amounts == (8_000, 0, 0)
    above = kept(1, leaving, comes(mid))
    assert above is not None
    assert above.amounts == (4_000, 0, 0)


def test_fractions_keep_their_part_of_the_card() -> None:
    hold = kept(1, [leaves("one", 0, request=ask(0.4, card_gib=20))])
    assert hold is not None
    assert hold.cards == {0: ("team", 400, 20_480)}


def test_booked_and_given_back_the_books_are_as_before() -> None:
    leaving = [leaves("one", 0, 1), leaves("part", 2, request=ask(0.5))]
    books = Books(world([box("h1")]))
    book = books.hosts["h1"]
    hold = holds(2, Ranks(world([box("h1")])).leaving(leaving), (), books)["h1"]
    hold.book(book, 1)
    assert (book.cpu_milli, len(next(iter(book.free.values()))), book.cards[2].milli) == (53_000, 5, 500)
    hold.book(book, -1)
    assert (book.cpu_milli, len(next(iter(book.free.values()))), book.cards[2].milli) == (64_000, 8, 1_000)
    assert all(card.empty for card in book.cards.values())
