"""What went wrong elsewhere when many jobs are placed at once (K10, K12, A1, A3, V1, S2, R10, R12)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_worlds import POLICY, ask, box, gang, queued, running, world

from phalanx.model.decision import ReasonKind, Start
from phalanx.model.placement import Placement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.books import Books
from phalanx.solver.explain import reasons
from phalanx.solver.greedy import greedy
from phalanx.solver.placing import Placer
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify, verify_starts

Solver = Callable[[Snapshot, Policy], tuple[Start, ...]]


def solved_exactly(snapshot: Snapshot, policy: Policy) -> tuple[Start, ...]:
    """The starts of the whole round."""
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    return decision.starts


SOLVERS: list[Solver] = [greedy, solved_exactly]
"""Everything that turns a snapshot into starts keeps these scenarios."""


@pytest.fixture(params=SOLVERS, ids=lambda solver: solver.__name__)
def starts(request: pytest.FixtureRequest) -> Callable[[Snapshot], dict[str, Start]]:
    """Solves, checks that no rule is broken, and gives the starts by job."""

    def solved(snapshot: Snapshot) -> dict[str, Start]:
        found = request.param(snapshot, POLICY)
        assert verify_starts(snapshot, POLICY, found) == ()
        return {start.job: start for start in found}

    return solved


Solved = Callable[[Snapshot], dict[str, Start]]


def loads(snapshot: Snapshot, found: dict[str, Start]) -> dict[tuple[str, int], list[int]]:
    """milli-GPU of each started worker, by card."""
    jobs = {record.id: record.job for record in snapshot.jobs}
    cards: dict[tuple[str, int], list[int]] = defaultdict(list)
    for start in found.values():
        for worker in start.placement.workers:
            request = jobs[start.job].role(worker.role).request
            for index in worker.gpus:
                cards[worker.host, index].append(min(request.gpu_milli, 1000))
    return cards


def test_k10_a_head_that_waits_for_one_type_blocks_only_that_type(starts: Solved) -> None:
    fleet = [box("h"), box("a", gpu_type="A100")]
    busy = running(gang("old", 1, 8), ("a", range(8)))
    head, behind = gang("j1", 1, 8, types=["A100"]), gang("j2", 1, 8, types=["H100"])
    snapshot = world(fleet, busy, queued(head, 5_000), queued(behind, 10))
    found = starts(snapshot)
    assert set(found) == {"j2"}
    (reason,) = reasons(snapshot, POLICY, tuple(found.values()))
    assert (reason.job, reason.kind, reason.subject, reason.asked, reason.available) == (
        "j1",
        ReasonKind.BUSY,
        "A100",
        8_000,
        0,
    )


def test_k12_all_that_fits_starts_in_one_round_and_the_rest_have_reasons(starts: Solved) -> None:
    fleet = [box("h1")]
    busy = running(gang("old", 1, 7), ("h1", range(7)))
    large = [gang(name, 1, 4) for name in "ABC"]
    cpu = [gang(name, request=ask(0, cpu=4)) for name in "EF"]
    snapshot = world(fleet, busy, *large, *cpu, gang("G"))
    found = starts(snapshot)
    assert set(found) == {"E", "F", "G"}
    told = reasons(snapshot, POLICY, tuple(found.values()))
    assert [reason.job for reason in told] == ["A", "B", "C"]
    assert all(reason.sentence and reason.kind is ReasonKind.BUSY and reason.asked == 4_000 for reason in told)


def test_a1_a_card_that_is_fully_held_is_not_given_again(starts: Solved) -> None:
    snapshot = world(
        [box("h1", 1)],
        running(gang("j0"), ("h1", [0])),
        gang("j1", request=ask(0.5)),
        gang("j2", request=ask(0.5)),
    )
    found = starts(snapshot)
    assert found == {}
    assert {reason.job for reason in reasons(snapshot, POLICY, ())} == {"j1", "j2"}


def test_a3_sixteen_halves_fill_eight_cards_two_by_two(starts: Solved) -> None:
    snapshot = world([box("h1")], *(gang(f"j{n}", request=ask(0.5)) for n in range(16)))
    cards = loads(snapshot, starts(snapshot))
    assert sorted(cards) == [("h1", index) for index in range(8)]
    assert set(map(tuple, cards.values())) == {(500, 500)}


def test_a3_as_one_gang(starts: Solved) -> None:
    snapshot = world([box("h1")], gang("j", 16, request=ask(0.5)))
    cards = loads(snapshot, starts(snapshot))
    assert Counter(map(sum, cards.values())) == {1_000: 8}


@pytest.mark.parametrize("order", ["small first", "large first", "mixed"])
def test_a3_thirds_and_rests_pair_up(starts: Solved, order: str) -> None:
    small = [gang(f"s{n}", request=ask(0.3)) for n in range(8)]
    large = [gang(f"l{n}", request=ask(0.7)) for n in range(8)]
    jobs = {
        "small first": [*small, *large],
        "large first": [*large, *small],
        "mixed": [job for pair in zip(small, large, strict=True) for job in pair],
    }[order]
    snapshot = world([box("h1")], *jobs)
    found = starts(snapshot)
    cards = loads(snapshot, found)
    assert all(sum(card) <= 1_000 for card in cards.values())
    assert len(found) == 16
    assert set(map(tuple, map(sorted, cards.values()))) == {(300, 700)}


def test_v1_two_gangs_that_need_the_whole_fleet_all_or_nothing(starts: Solved) -> None:
    snapshot = world([box(f"h{n}") for n in range(10)], gang("j1", 10, 8), gang("j2", 10, 8))
    found = starts(snapshot)
    assert len(found) == 1
    (start,) = found.values()
    assert len(set(start.placement.hosts)) == 10
    (reason,) = reasons(snapshot, POLICY, (start,))
    assert (reason.kind, reason.subject) == (ReasonKind.OUTRANKED, start.job)


def test_s2_ten_thousand_starts_and_ends_give_no_card_to_two() -> None:
    snapshot, dice = world([box("h1", 8), box("h2", 4), box("h3", 3)]), random.Random(2)
    placer = Placer(snapshot, POLICY, Books(snapshot))
    begun, owners = 0, dict[tuple[str, int], str]()
    placed: dict[str, tuple[JobRecord, Placement]] = {}
    for step in range(10_000):
        if placed and dice.random() < 0.5:
            record, there = placed.pop(dice.choice(sorted(placed)))
            placer.remove(record, there)
            owners = {card: name for card, name in owners.items() if name != record.id}
            continue
        record = queued(gang(f"j{step}", dice.choice((1, 1, 2)), dice.choice((1, 2, 3))))
        where = placer.place(record)
        if where is not None:
            cards = [(worker.host, index) for worker in where.workers for index in worker.gpus]
            assert not owners.keys() & set(cards)
            assert len(set(cards)) == len(cards) == record.job.gpu_milli // 1000
            owners.update(dict.fromkeys(cards, record.id))
            placed[record.id] = record, where
            begun += 1
    assert begun > 1_000


def test_r10_fractions_fill_every_card_and_the_next_one_is_told_why(starts: Solved) -> None:
    jobs = [gang(f"j{n:02}", request=ask(0.18, cpu=0.1)) for n in range(81)]
    snapshot = world([box("h1"), box("h2")], *jobs)
    found = starts(snapshot)
    assert len(found) == 80
    assert Counter(map(len, loads(snapshot, found).values())) == {5: 16}
    (reason,) = reasons(snapshot, POLICY, tuple(found.values()))
    assert reason.kind is ReasonKind.OUTRANKED
    assert reason.sentence


def test_r12_a_tenth_and_nine_tenths_fit_one_card(starts: Solved) -> None:
    snapshot = world([box("h1", 1)], gang("a", request=ask(0.1)), gang("b", request=ask(0.9)))
    found = starts(snapshot)
    assert loads(snapshot, found) == {("h1", 0): [900, 100]} or loads(snapshot, found) == {("h1", 0): [100, 900]}


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(st.integers(1, 99), min_size=1, max_size=12))
def test_r12_decimals_that_add_up_to_a_card_fit_it(parts: list[int]) -> None:
    cut, left = [], 100
    for part in parts:
        if part <= left:
            cut.append(part)
            left -= part
    if left:
        cut.append(left)
    jobs = [gang(f"j{n}", request=ask(float(Decimal(part) / 100), cpu=0.1)) for n, part in enumerate(cut) if part < 100]
    snapshot = world([box("h1", 1)], *jobs)
    for solver in SOLVERS:
        found = solver(snapshot, POLICY)
        assert verify_starts(snapshot, POLICY, found) == ()
        assert len(found) == len(jobs)
