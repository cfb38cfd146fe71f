"""Stranded GPUs as a term of the encoder: free, but without the CPU, memory or network that work needs beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ortools.sat.python.cp_model import IntVar, LinearExprT

from ..model.host import MILLI
from .appetite import appetite
from .held import HostClass
from .variables import Variables

if TYPE_CHECKING:
    from .objective import Sum

Terms = list[tuple[int, IntVar]]

RESOURCES = ("cpu_milli", "memory_mib", "network_mbps")
"""What a host has beside cards, in the order of amounts here."""


def strand(host: HostClass, variables: Variables, total: Sum) -> None:
    """Each milli-GPU free beyond what the host can serve to half of the demand costs `stranded_s`.

    Parts of shared cards count; a card that a whole worker holds has nothing free.
    """
    price = variables.instance.policy.objective.stranded_s
    asked = appetite(variables.instance.snapshot)
    free, taking, leaving = _free(host, variables)
    most = free + sum(milli for milli, _ in leaving)
    rows = []
    for number, needed in enumerate(asked.half):
        use, gain = _beside(host, RESOURCES[number], variables)
        least = left_of(host)[number] - sum(amount * most_of(variable) for amount, variable in use)
        if needed and MILLI * least < needed * most:
            rows.append((number, needed, use, gain, -(-(needed * most - MILLI * least) // needed)))
    if not rows:
        return
    if not (taking or leaving or any(use or gain for _, _, use, gain, _ in rows)):
        total.constant -= price * asked.stranded(free, left_of(host))
        return
    stranded = variables.model.new_int_var(0, max(highest for *_, highest in rows), f"stranded[{host.id}]")
    for number, needed, use, gain, _ in rows:
        there = free + sum_of(leaving) - sum_of(taking)
        left = left_of(host)[number] + sum_of(gain) - sum_of(use)
        variables.model.add(needed * stranded >= needed * there - MILLI * left)
    total.add(-price, stranded)


def _free(host: HostClass, variables: Variables) -> tuple[int, Terms, Terms]:
    """milli-GPU free on cards that no whole worker holds now, what takes of it, and what leaves more."""
    free, leaving = 0, list[tuple[int, IntVar]]()
    for card in host.cards:
        whole = [holder for holder in card.holders if holder.whole]
        if whole:
            leaving.append((card.milli + whole[0].milli, variables.gone(whole[0].job)))
        else:
            free += card.milli
            leaving.extend((holder.milli, variables.gone(holder.job)) for holder in card.holders)
    coming = variables.on_host(host.id)
    return free, [(part.role.request.gpu_milli, part.count) for part in coming if part.role.request.gpu_milli], leaving


def _beside(host: HostClass, resource: str, variables: Variables) -> tuple[Terms, Terms]:
    """What comes to the host and leaves it of one resource."""
    coming = variables.on_host(host.id)
    use = [(amount, part.count) for part in coming if (amount := getattr(part.role.request, resource))]
    gain = [(amount, variables.left(part.way)) for part in host.freed if (amount := getattr(part, resource))]
    return use, gain


def left_of(host: HostClass) -> tuple[int, int, int]:
    """What is left of the host beside cards: milli-cores, MiB, Mbit/s."""
    return host.cpu_milli, host.memory_mib, host.network_mbps


def most_of(variable: IntVar) -> int:
    """The largest value of the variable; its domain does not know negative indices."""
    domain = variable.proto.domain
    return int(domain[len(domain) - 1])


def sum_of(terms: Terms) -> LinearExprT:
    """The expression of these terms."""
    return sum(amount * variable for amount, variable in terms)
