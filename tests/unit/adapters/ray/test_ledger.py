"""Whole units become Ray's fractions in one place, and Ray's books are compared with ours."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from phalanx.adapters.booking import Booking
from phalanx.adapters.ray.compat import MIB, Group, Node
from phalanx.adapters.ray.ledger import bundle, by_host, lacking, unexplained

NODE = Node(
    id="n1", host="h", site="s", alive=True, address="10.0.0.1", total={"GPU": 8.0, "CPU": 64.0, "memory": 1000.0 * MIB}
)


def group(*bundles: tuple[str, dict[str, float]]) -> Group:
    return Group(
        id="g", name="x", state="CREATED", nodes=tuple(n for n, _ in bundles), bundles=tuple(b for _, b in bundles)
    )


def test_a_booking_is_one_bundle_of_sums() -> None:
    assert bundle(Booking(cards=((0, 500), (1, 1000)), cpu_milli=2500, memory_mib=3)) == {
        "GPU": 1.5,
        "CPU": 2.5,
        "memory": 3.0 * MIB,
    }


def test_what_is_not_asked_is_left_out_but_no_bundle_is_empty() -> None:
    assert bundle(Booking(memory_mib=5)) == {"memory": 5.0 * MIB}
    assert bundle(Booking()) == {"CPU": 0.001}


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50))
def test_sums_of_bundles_stay_exact(shares: list[int]) -> None:
    """R12: Ray counts in ten-thousandths, so a thousandth survives the way there and any adding up."""
    fixed = sum(round(bundle(Booking(cards=((0, share),)))["GPU"] * 10_000) for share in shares)
    assert fixed == 10 * sum(shares)


def test_lacking_names_what_is_short() -> None:
    assert lacking(NODE, {"GPU": 0.9 + 0.1, "CPU": 4.0}, {"GPU": 1.0, "CPU": 4.0}) == ""
    assert lacking(NODE, {"GPU": 0.9}, {"GPU": 1.0}) == "host h has 0.9 GPU free in Ray, 1 GPU asked"
    assert lacking(NODE, {}, {"memory": 2.0 * MIB}) == "host h has 0 MiB free in Ray, 2 MiB asked"


def test_unexplained_use_is_told() -> None:
    ours = group(("n1", {"GPU": 2.0, "CPU": 1.0}), ("n2", {"GPU": 4.0}))
    assert unexplained(NODE, {"GPU": 6.0, "CPU": 63.0, "memory": 1000.0 * MIB}, [ours]) == ""
    assert (
        unexplained(NODE, {"GPU": 6.0, "memory": 1000.0 * MIB}, [ours])
        == "Ray has 64 CPU in use, groups of ours hold 1 CPU"
    )
    assert unexplained(NODE, NODE.total, [ours]) == "Ray has 0 GPU in use, groups of ours hold 2 GPU"


def test_a_host_that_has_come_back_is_its_living_node() -> None:
    nodes = [Node(id=str(i), host="h", site="s", alive=i == 1, address="", total={}) for i in range(3)]
    assert Counter(node.id for node in by_host(nodes).values()) == {"1": 1}
