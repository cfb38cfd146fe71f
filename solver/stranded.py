"""Stranded GPUs as a term of the encoder: free, but without the CPU, memory or network that work needs beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
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
    rows = [row for row in _short(host, variables) if row.most > 0]
    if not any(row.terms for row in rows):
        total.constant -= price * max((row.most for row in rows), default=0)
        return
    stranded = variables.model.new_int_var(0, max(row.most for row in rows), f"stranded[{host.id}]")
    for row in rows:
        variables.model.add(row.needed * stranded >= row.constant + sum_of(row.terms))
    total.add(-price, stranded)


@dataclass(frozen=True, slots=True)
class _Short:
    """What is short of one resource once all has come and left: constant + terms, of which a milli-GPU needs `needed`.

    A job that takes no more of the resource than that beside its GPUs makes nothing short. In thousandths of the unit.
    """

    needed: int
    constant: int
    terms: Terms

    @property
    def most(self) -> int:
        """What may come to be stranded [mGPU]; a host that cannot be short strands nothing."""
        short = self.constant + sum(amount * most_of(variable) for amount, variable in self.terms if amount > 0)
        return max(0, -(-short // self.needed))


def _short(host: HostClass, variables: Variables) -> Iterator[_Short]:
    """For each resource that half of the demand needs what the free GPUs of the host lack of it."""
    free, taking, leaving = _free(host, variables)
    for number, needed in enumerate(appetite(variables.instance.snapshot).half):
        if not needed:
            continue
        use, gain = _beside(host, RESOURCES[number], variables)
        amounts: dict[int, int] = defaultdict(int)
        known = {variable.index: variable for _, variable in (*taking, *leaving, *use, *gain)}
        for factor, terms in ((-needed, taking), (needed, leaving), (MILLI, use), (-MILLI, gain)):
            for amount, variable in terms:
                amounts[variable.index] += factor * amount
        terms = [(amount, known[index]) for index, amount in amounts.items() if amount]
        yield _Short(needed, needed * free - MILLI * left_of(host)[number], terms)


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
