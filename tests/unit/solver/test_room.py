"""The encoder's `room` equals the one recomputed from placements, where hosts are short of CPU, and overbooked."""

import pytest
from small_worlds import ask, box, gang, running, world

from phalanx.model.host import Host
from phalanx.model.job import Preemptible
from phalanx.model.policy import ObjectivePolicy, Policy, SolvePolicy, StandardGang
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Layer
from phalanx.solver.goals import values
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify

GANGS = (
    StandardGang(workers=1, gpus=2, layer=Layer.HOST),
    StandardGang(workers=2, gpus=1, layer=Layer.RACK),
)


def exact(snapshot: Snapshot, **worths: int) -> dict[str, int]:
    """The parts of the economy of a decision whose goals are all proven, and recomputed alike."""
    policy = Policy(
        objective=ObjectivePolicy(standard_gangs=GANGS, scarce_s=0, wanted_s=0, **{"stranded_s": 0, **worths}),
        solve=SolvePolicy(budget_ms=60_000),
    )
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    assert all(goal.bound == goal.value for goal in decision.goals)
    again = values(snapshot, policy, decision.starts, decision.preemptions)
    assert [goal.value for goal in again] == [goal.value for goal in decision.goals]
    return {part.name: part.value for goal in again for part in goal.parts}


def full(name: str, host: str) -> JobRecord:
    """Takes all cores of a small host, and no card; may be preempted."""
    return running(gang(name, request=ask(0, cpu=16), preemptible=Preemptible.ANYTIME), (host, []), ran_s=9_000)


def small(name: str) -> Host:
    """Four cards and 16 cores."""
    return box(name, 4, cpu_milli=16_000, rack="r")


def test_cores_go_where_no_card_needs_them() -> None:
    jobs = gang("cpus", request=ask(0, cpu=10)), gang("a", request=ask(1, cpu=4))
    # On h1 the ten cores would leave one card of four; h2 has no free card to lose.
    hosts = [small("h1"), box("h2", 1, cpu_milli=16_000, rack="r")]
    taken = running(gang("r", request=ask(1, cpu=4)), ("h2", [0]))
    assert exact(world(hosts, taken, *jobs), usable_s=60, room_s=0)["room"] == 3_000 * 60


@pytest.mark.parametrize("usable_s", [0, 60])
def test_what_a_victim_leaves_serves_cards(usable_s: int) -> None:
    high = gang("high", request=ask(1, cpu=4), tier=1)
    room = exact(world([small("h1")], full("low", "h1"), high), usable_s=usable_s, room_s=10)["room"]
    # Three cards and 12 cores are left: one block of two, and one gang of two single workers.
    assert room == 3_000 * usable_s + 2_000 * 10 + 2_000 * 10


def test_an_overbooked_host_serves_no_card() -> None:
    both = [full("x", "h1"), running(gang("y", request=ask(1, cpu=4)), ("h1", [0]))]
    assert (
        exact(world([small("h1"), small("h2")], *both, gang("a", request=ask(1, cpu=4))), usable_s=60, room_s=0)["room"]
        == 3_000 * 60
    )


def test_gpus_without_cores_beside_them_are_stranded() -> None:
    jobs = gang("cpus", request=ask(0, cpu=10)), gang("a", request=ask(1, cpu=4))
    # Two cores are left beside three cards, and half of the demand asks four a card.
    worths = {"usable_s": 0, "room_s": 0, "stranded_s": 60}
    assert exact(world([small("h1")], *jobs), **worths)["room"] == -2_500 * 60
    # Where another host has cores to spare, nothing need be stranded.
    taken = running(gang("r", request=ask(1, cpu=4)), ("h2", [0]))
    hosts = [small("h1"), box("h2", 1, cpu_milli=16_000, rack="r")]
    assert exact(world(hosts, taken, *jobs), **worths)["room"] == 0


def test_parts_of_shared_cards_are_stranded_too() -> None:
    worths = {"usable_s": 0, "room_s": 0, "stranded_s": 60}
    host = box("h1", 2, cpu_milli=12_000, rack="r")
    runs = running(gang("r", request=ask(0.5, cpu=4)), ("h1", [0]))
    # Half of the demand asks eight cores a GPU. With 7.5 cores 937 of 1,500 mGPU are served, with four 500 of 1,250.
    assert exact(world([host], runs, gang("a", request=ask(0, cpu=0.5))), **worths)["room"] == -563 * 60
    assert exact(world([host], runs, gang("a", request=ask(0.25, cpu=4))), **worths)["room"] == -750 * 60


def test_what_a_victim_leaves_is_stranded_no_more() -> None:
    worths = {"usable_s": 0, "room_s": 0, "stranded_s": 60}
    high = gang("high", request=ask(1, cpu=4), tier=1)
    assert exact(world([small("h1")], full("low", "h1"), high), **worths)["room"] == 0
