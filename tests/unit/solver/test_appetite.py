"""What the demand of a snapshot asks: types that it cannot do without, and what a GPU needs beside itself."""

from small_worlds import ask, box, card, gang, queued, running, world

from phalanx.model.job_state import JobState
from phalanx.solver.appetite import Appetite, appetite


def test_nothing_asked() -> None:
    assert appetite(world([box("h1")], gang("a", request=ask(0, cpu=4)))) == Appetite({}, (0, 0, 0))


def test_a_type_is_wanted_by_its_share_of_the_demand_over_its_share_of_the_fleet() -> None:
    fleet = [box("h1", 6), box("a1", 2, "A100")]
    # An eighth of the demand must have a quarter of the fleet.
    jobs = [gang("any", 7, 1), gang("a", types=["A100"])]
    assert appetite(world(fleet, *jobs)).wanted == {"H100": 0, "A100": 500}
    # Half of it must: more than there is of the type is as much as there can be.
    assert appetite(world(fleet, gang("any"), gang("a", types=["A100"]))).wanted == {"H100": 0, "A100": 1_000}


def test_several_types_share_what_must_have_one_of_them() -> None:
    fleet = [box("h1", 4), box("a1", 3, "A100"), box("t1", 1, "T4")]
    # A quarter of the demand must have one of two types that are half of the fleet together.
    jobs = [gang("any", 3, 1), gang("a", types=["A100", "T4"])]
    assert appetite(world(fleet, *jobs)).wanted == {"H100": 0, "A100": 500, "T4": 500}


def test_memory_of_cards_binds_as_types_do() -> None:
    fleet = [box("h1", 4), box("t1", [card(n, "T4", 16) for n in range(4)])]
    jobs = [gang("any", 3, 1), gang("large", request=ask(1, card_gib=40))]
    assert appetite(world(fleet, *jobs)).wanted == {"H100": 500, "T4": 0}


def test_workers_that_no_host_of_a_type_could_hold_cannot_take_it() -> None:
    # Half of the cards are on hosts of eight, and a quarter of the demand must be there.
    pairs = [box(f"t{n}", 2, "T4", cpu_milli=16_000, memory_mib=128 * 1024) for n in range(8)]
    fleet, small = [box("h1"), box("h2"), *pairs], gang("small", 12, request=ask(1))
    cards, cpu, memory = (
        gang("cards", 1, 4),
        gang("cpu", 4, request=ask(1, 20)),
        gang("memory", 4, request=ask(1, 1, 200)),
    )
    for large in (cards, cpu, memory):
        assert appetite(world(fleet, small, large)).wanted == {"H100": 500, "T4": 0}
    # Two cards fit on each, and one host of eight T4s is enough for that type to take large ones.
    assert appetite(world(fleet, small, gang("pairs", 2, 2))).wanted == {"H100": 0, "T4": 0}
    assert appetite(world([*fleet, box("t8", 8, "T4")], small, cards)).wanted == {"H100": 0, "T4": 0}


def test_cards_out_of_order_hold_nobody() -> None:
    half = box("h1", [card(n, healthy=n < 4) for n in range(8)])
    jobs = [gang("small", 3, 1), gang("large", 1, 5)]
    # Neither type could hold five on one host: nobody is helped by leaving one alone.
    assert appetite(world([half, box("t1", 4, "T4")], *jobs)).wanted == {"H100": 0, "T4": 0}


def test_what_a_quarter_of_all_that_runs_and_waits_is_content_with() -> None:
    runs = running(gang("r", request=ask(2, cpu=8, memory_gib=6)), ("h1", [0, 1]))
    held = queued(gang("held", request=ask(1, cpu=1)), state=JobState.HELD)
    jobs = [runs, gang("a", 2, request=ask(0.5, cpu=1, memory_gib=4)), held, gang("none", request=ask(0, cpu=4))]
    # Of 3 GPUs one, a third, is asked with 2 cores, the others with 4 each; two of them with 3 GiB, one with 8.
    assert appetite(world([box("h1")], *jobs)).beside == (2_000, 3 * 1_024, 0)
    # Of 5 GPUs it is a fifth.
    jobs.append(gang("b", request=ask(2, cpu=8)))
    assert appetite(world([box("h1")], *jobs)).beside == (4_000, 0, 0)


def test_cards_that_a_host_can_serve() -> None:
    mean = Appetite({}, (4_000, 0, 0))
    assert mean.served(8, (17_000, 0, 0)) == 4
    assert mean.served(3, (17_000, 0, 0)) == 3
    assert mean.served(3, (-1, 0, 0)) == 0


def test_gpus_that_a_host_cannot_serve_to_half_of_the_demand() -> None:
    jobs = [gang("a", request=ask(1, cpu=2)), gang("b", request=ask(1, cpu=4)), gang("c", request=ask(2, cpu=16))]
    asked = appetite(world([box("h1")], *jobs))
    assert asked.half == (4_000, 0, 0)
    assert [asked.stranded(2_500, (cores, 0, 0)) for cores in (10_000, 9_999, 0)] == [0, 1, 2_500]
    assert Appetite({}, (0, 0, 0)).stranded(2_500, (0, 0, 0)) == 0
