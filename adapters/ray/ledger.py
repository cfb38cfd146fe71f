"""Our books beside Ray's: what groups of ours hold on each host, and what Ray says is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...model.ids import HostId
from ..booking import Booking
from .compat import MIB, MILLI, Group, Node

KINDS = ("GPU", "CPU", "memory")
_TOLERANCE = 0.0005


def bundle(booking: Booking) -> dict[str, float]:
    """A booking as a Ray bundle: the one place where whole units become Ray's fractions, exact to 1/10000."""
    asked = {
        "GPU": booking.gpu_milli / MILLI,
        "CPU": booking.cpu_milli / MILLI,
        "memory": float(booking.memory_mib * MIB),
    }
    # Ray takes no empty bundle.
    return {kind: amount for kind, amount in asked.items() if amount} or {"CPU": 1 / MILLI}


def lacking(node: Node, free: Mapping[str, float], asked: Mapping[str, float]) -> str:
    """What the host has too little of in Ray's books; empty if all fits."""
    for kind, amount in asked.items():
        if amount > free.get(kind, 0.0) + _TOLERANCE:
            return f"host {node.host} has {_shown(kind, free.get(kind, 0.0))} free in Ray, {_shown(kind, amount)} asked"
    return ""


def unexplained(node: Node, free: Mapping[str, float], groups: Iterable[Group]) -> str:
    """What of the host is in use in Ray though no group of ours holds it (or the reverse); empty if nothing."""
    booked = dict.fromkeys(KINDS, 0.0)
    for group in groups:
        for where, amounts in zip(group.nodes, group.bundles, strict=True):
            if where == node.id:
                for kind in KINDS:
                    booked[kind] += amounts.get(kind, 0.0)
    for kind in KINDS:
        used = node.total.get(kind, 0.0) - free.get(kind, 0.0)
        if abs(used - booked[kind]) > _TOLERANCE * (MIB if kind == "memory" else 1):
            return f"Ray has {_shown(kind, used)} in use, groups of ours hold {_shown(kind, booked[kind])}"
    return ""


def by_host(nodes: Iterable[Node]) -> dict[HostId, Node]:
    """The node that stands for each host: the living one, where there is one."""
    found: dict[HostId, Node] = {}
    for node in nodes:
        known = found.get(HostId(node.host))
        if known is None or node.alive or not known.alive:
            found[HostId(node.host)] = node
    return found


def _shown(kind: str, amount: float) -> str:
    if kind == "memory":
        return f"{round(amount / MIB)} MiB"
    return f"{round(amount, 4):g} {kind}"
