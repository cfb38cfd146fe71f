"""The ledger: cards held and free, capacity under failures, standard gangs that fit, spans."""

from dataclasses import replace

from phalanx.bench.ledger import Ledger
from phalanx.model.job import Role, WorkerRequest
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import StandardGang
from phalanx.model.topology import Layer

GANGS = (StandardGang(workers=2, gpus=4, layer=Layer.SITE),)


def at(host: str, *cards: int) -> Placement:
    return Placement(workers=(WorkerPlacement(role="worker", index=0, host=host, gpus=cards),))


def test_cards_are_held_from_start_to_release(small) -> None:
    ledger = Ledger([small.host("h"), small.host("i", site="r")], GANGS)
    ledger.waiting(1, 1_000)
    ledger.sample(0)
    assert (ledger.samples[-1].whole_free, ledger.samples[-1].gangs) == (16, 2)
    ledger.take(small.job("a", 0, 1, gpus=2).job, 1, at("h", 3, 4), 10)
    ledger.sample(10)
    sample = ledger.samples[-1]
    assert (sample.held_milli, sample.capacity_milli, sample.whole_free, sample.gangs) == (2_000, 16_000, 14, 1)
    assert ledger.give("a", 70) == 120.0
    assert ledger.give("a", 80) == 0.0
    ledger.sample(70)
    assert ledger.samples[-1].held_milli == 0
    (span,) = ledger.spans
    assert (span.host, span.cards, span.start_s, span.end_s) == ("h", (3, 4), 10, 70)


def test_shares_of_a_card_count_as_shares_and_the_card_is_not_free(small) -> None:
    ledger = Ledger([small.host("h", 2)], GANGS)
    for name in "ab":
        ledger.take(small.job(name, 0, 1, gpus=0.5).job, 1, at("h", 0), 0)
    ledger.sample(0)
    assert (ledger.samples[-1].held_milli, ledger.samples[-1].whole_free) == (1_000, 1)
    ledger.give("a", 5)
    ledger.sample(5)
    assert (ledger.samples[-1].held_milli, ledger.samples[-1].whole_free) == (500, 1)
    ledger.give("b", 5)
    ledger.sample(5)
    assert (ledger.samples[-1].held_milli, ledger.samples[-1].whole_free, len(ledger.samples)) == (0, 2, 2)


def test_a_dead_host_is_no_capacity(small) -> None:
    ledger = Ledger([small.host("h"), small.host("i")], GANGS)
    ledger.waiting(1, 1_000)
    for change in (ledger.down, ledger.down):
        change("h")
    ledger.sample(0)
    assert (ledger.samples[-1].capacity_milli, ledger.samples[-1].whole_free, ledger.samples[-1].gangs) == (8_000, 8, 1)
    ledger.back("h")
    ledger.back("h")
    ledger.sample(1)
    assert ledger.samples[-1].capacity_milli == 16_000


def test_free_cards_without_cores_left_are_no_room(small) -> None:
    ledger = Ledger([small.host("h")], (StandardGang(workers=1, gpus=4, layer=Layer.HOST),), beside=(10_000, 0, 0))
    ledger.waiting(1, 1_000)
    ledger.sample(0)
    assert ledger.samples[-1].gangs == 2
    role = Role(request=WorkerRequest(gpu_milli=1_000, cpu_milli=90_000))
    hungry = replace(small.job("a", 0, 1).job, roles=(role,))
    ledger.take(hungry, 1, at("h", 0), 1)
    ledger.sample(1)
    assert (ledger.samples[-1].whole_free, ledger.samples[-1].gangs) == (7, 0)
    ledger.give("a", 2)
    ledger.sample(2)
    assert ledger.samples[-1].gangs == 2
