"""Capacity: what a host has is never booked twice, counting what victims free, each only for those who may evict it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr

from ...model.host import MILLI
from ...model.ids import JobId, TeamId
from ..classes import Instance
from ..demand import CardKind, card_memory
from ..held import Card, HostClass
from ..variables import Coming, Variables
from .cuts import Place, closed_sets, fits

Way = tuple[frozenset[JobId], Card]
"""A card, and those who leave it so that it is empty."""


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Bounds what comes to each host."""
    for host in instance.hosts.values():
        for card in host.cards:
            _emptied_card(model, host, card, variables)
        if not variables.on_host(host.id):
            continue
        _host_rows(model, host, variables)
        for kind in host.kinds:
            _whole_cards(model, host, kind, variables)
        for card in host.cards:
            _shared_card(model, host, card, variables)
    _split_over_cards(model, instance, variables)


def _host_rows(model: CpModel, host: HostClass, variables: Variables) -> None:
    """request * workers <= free + freed, for milli-cores, MiB and Mbit/s."""
    coming = variables.on_host(host.id)
    for resource in ("cpu_milli", "memory_mib", "network_mbps"):
        freed = [part for part in host.freed if getattr(part, resource)]
        place = Place((part.way,) for part in freed)
        uses = [
            use
            for part in coming
            if (amount := getattr(part.role.request, resource))
            for use in place.uses(part.gang, amount, part.count, part.inside)
        ]
        gains = [(getattr(part, resource), variables.left(part.way)) for part in freed]
        fits(model, uses, getattr(host, resource), gains)


def _whole_cards(model: CpModel, host: HostClass, kind: CardKind, variables: Variables) -> None:
    """Whole cards taken <= free cards + cards that victims leave - those of both that become shared."""
    coming = variables.on_kind(host.id, kind)
    cards = [card for card in host.cards if card.kind == kind and not card.fixed]
    if not coming and all(variables.shared(host.id, card) is None for card in cards):
        return
    units: dict[frozenset[JobId], list[Card]] = defaultdict(list)
    for card in cards:
        for way in card.ways if card.holders else ():
            units[way].append(card)
    place = Place(units)
    free = [card for card in cards if card.free]
    uses = [
        use for part in coming for use in place.uses(part.gang, part.role.request.whole_gpus, part.count, part.inside)
    ]
    # Where no whole worker comes, nobody turns more cards into shared ones than there are.
    for reached in closed_sets(use.reach for use in uses) or [(1 << len(units)) - 1]:
        asking = [use for use in uses if use.reach | reached == reached]
        whole = LinearExpr.weighted_sum([use.count for use in asking], [use.amount for use in asking])
        ways = [(way, card) for i, way in enumerate(units) if reached >> i & 1 for card in units[way]]
        shared = _turned(model, host, free, ways, variables)
        model.add(whole + sum(shared) <= len(free) + sum(_leaving(host, ways, variables)))


def _only_emptied(card: Card) -> bool:
    """Cards shared now: their `emptied` variable already leaves out what becomes shared again."""
    return any(not holder.whole for holder in card.holders)


def _turned(
    model: CpModel, host: HostClass, free: Sequence[Card], ways: Sequence[Way], variables: Variables
) -> list[IntVar]:
    """The cards, free or emptied in these ways, that become shared."""
    found = [variables.shared(host.id, card) for card in free]
    reached = Counter(card.index for _, card in ways)
    for way, card in ways:
        shared = None if _only_emptied(card) else variables.shared(host.id, card)
        if shared is not None and reached[card.index] < len(card.ways):
            # It may be left in another way as well, and for those who share it then.
            both = model.new_bool_var("")
            model.add(both >= shared + variables.left(next(iter(way))) - 1)
            shared = both
        elif shared is not None and way != next(w for w, other in ways if other is card):
            continue
        found.append(shared)
    return [shared for shared in found if shared is not None]


def _leaving(host: HostClass, ways: Iterable[Way], variables: Variables) -> list[IntVar]:
    """A variable for each way in which a card may become free: its holder's, or its own where fractions must leave."""
    leaving = []
    for way, card in ways:
        emptied = variables.emptied(host.id, card)
        leaving.append(emptied if emptied is not None else variables.left(next(iter(way))))
    return leaving


def _emptied_card(model: CpModel, host: HostClass, card: Card, variables: Variables) -> None:
    """emptied <= evicted(holder) for all holders, and never with new fractions."""
    emptied = variables.emptied(host.id, card)
    if emptied is None:
        return
    for holder in card.holders:
        model.add(emptied <= variables.gone(holder.job))
    shared = variables.shared(host.id, card)
    if shared is not None:
        model.add(emptied + shared <= 1)


def _shared_card(model: CpModel, host: HostClass, card: Card, variables: Variables) -> None:
    """Fractions fit into a card's milli and memory, are of one team, and never join a whole worker."""
    coming = variables.fractions(host.id, card)
    if not coming:
        return
    shared = variables.shared(host.id, card)
    place = Place((way,) for way in card.leaving)
    leaving = [(holder, variables.left(way)) for holder in card.holders for way in holder.ways]
    milli = [use for p in coming for use in place.uses(p.gang, p.role.request.gpu_milli, p.count, p.inside)]
    fits(model, milli, card.milli, [(h.milli, left) for h, left in leaving])
    memory = [
        use
        for p in coming
        for use in place.uses(p.gang, card_memory(p.role.request, card.kind.memory_mib), p.count, p.inside)
    ]
    fits(model, memory, card.memory_mib, [(h.memory_mib, left) for h, left in leaving])
    if shared is None:
        return
    for part in coming:
        model.add(part.count <= MILLI * shared)
    if card.free:
        # The same as the row above with the card's room gone while it is not shared: tighter for the LP.
        model.add(sum(part.role.request.gpu_milli * part.count for part in coming) <= MILLI * shared)
    _one_team(model, host, card, coming, shared, variables)


def _one_team(
    model: CpModel, host: HostClass, card: Card, coming: Sequence[Coming], shared: IntVar, variables: Variables
) -> None:
    """New fractions are of one team; of another team than the one on the card only once all of that one have left."""
    by_team: dict[TeamId, list[Coming]] = defaultdict(list)
    for part in coming:
        by_team[part.gang.record.job.team].append(part)
    if len(by_team) == 1 and card.team in (None, *by_team):
        return
    owners = []
    for team, parts in sorted(by_team.items()):
        owner = model.new_bool_var(f"owner[{host.id},{card.index},{team}]")
        owners.append(owner)
        # Rows by count, not by their sum: each stays tight in the relaxation.
        for part in parts:
            model.add(part.count <= MILLI * owner)
        if card.team not in (None, team):
            for holder in card.holders:
                model.add(owner <= variables.gone(holder.job))
            for part in parts:
                if not part.gang.only_inside and not card.may_empty(part.gang.reach):
                    model.add(part.count == (0 if part.inside is None else part.inside))
    model.add(sum(owners) == shared)


def _split_over_cards(model: CpModel, instance: Instance, variables: Variables) -> None:
    """A fractional class's workers in a slot are those on the slot's cards."""
    for gang in instance.coming:
        for workers in gang.workers:
            if not workers.role.request.fractional:
                continue
            for slot in workers.slots:
                cards = [card for card in instance.hosts[slot.host].cards if card.kind == slot.kind]
                counts = [variables.on_card(workers, slot.host, card) for card in cards]
                model.add(sum(c for c in counts if c is not None) == variables.workers_at(workers, slot))
