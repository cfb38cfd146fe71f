"""Capacity: what a host has is never booked twice, counting what victims free, each only for those who may evict it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ortools.sat.python.cp_model import CpModel, IntVar

from ...model.host import MILLI
from ...model.ids import JobId, TeamId
from ..classes import Instance
from ..demand import CardKind, card_memory
from ..held import Card, HostClass
from ..variables import Coming, Variables
from .cuts import Place, closed_sets, fits


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Bounds what comes to each host."""
    for host in instance.hosts.values():
        _host_rows(model, host, variables)
        for kind in host.kinds:
            _whole_cards(model, host, kind, variables)
        for card in host.cards:
            _emptied_card(model, host, card, variables)
            _shared_card(model, host, card, variables)
    _split_over_cards(model, instance, variables)


def _host_rows(model: CpModel, host: HostClass, variables: Variables) -> None:
    """request * workers <= free + freed, for milli-cores, MiB and Mbit/s."""
    coming = variables.on_host(host.id)
    for resource in ("cpu_milli", "memory_mib", "network_mbps"):
        freed = [part for part in host.freed if getattr(part, resource)]
        place = Place((part.job,) for part in freed)
        uses = [
            use
            for part in coming
            if (amount := getattr(part.role.request, resource))
            for use in place.uses(part.gang, amount, part.count, part.inside)
        ]
        gains = [(getattr(part, resource), variables.evicted(part.job)) for part in freed]
        fits(model, uses, getattr(host, resource), gains)


def _whole_cards(model: CpModel, host: HostClass, kind: CardKind, variables: Variables) -> None:
    """Whole cards taken <= free cards + cards that victims leave - those of both that become shared."""
    coming = variables.on_kind(host.id, kind)
    cards = [card for card in host.cards if card.kind == kind and not card.fixed]
    if not coming and all(variables.shared(host.id, card) is None for card in cards):
        return
    units: dict[frozenset[JobId], list[Card]] = defaultdict(list)
    for card in cards:
        if card.holders:
            units[frozenset(card.jobs)].append(card)
    place = Place(units)
    free = [card for card in cards if card.free]
    uses = [
        use for part in coming for use in place.uses(part.gang, part.role.request.whole_gpus, part.count, part.inside)
    ]
    # Where no whole worker comes, nobody turns more cards into shared ones than there are.
    for reached in closed_sets(use.reach for use in uses) or [(1 << len(units)) - 1]:
        whole = sum(use.amount * use.count for use in uses if use.reach | reached == reached)
        reachable = free + [card for i, unit in enumerate(units.values()) if reached >> i & 1 for card in unit]
        shared = [variables.shared(host.id, card) for card in reachable if not _only_emptied(card)]
        supply = len(free) + sum(_leaving(host, reachable, variables))
        model.add(whole + sum(turned for turned in shared if turned is not None) <= supply)


def _only_emptied(card: Card) -> bool:
    """Cards shared now: their `emptied` variable already leaves out what becomes shared again."""
    return any(not holder.whole for holder in card.holders)


def _leaving(host: HostClass, cards: Sequence[Card], variables: Variables) -> list[IntVar]:
    """One variable for each card that may become free: its victim's, or its own where fractions must leave."""
    leaving = []
    for card in cards:
        emptied = variables.emptied(host.id, card)
        if emptied is not None:
            leaving.append(emptied)
        elif card.holders:
            leaving.append(variables.evicted(card.holders[0].job))
    return leaving


def _emptied_card(model: CpModel, host: HostClass, card: Card, variables: Variables) -> None:
    """emptied <= evicted(holder) for all holders, and never with new fractions."""
    emptied = variables.emptied(host.id, card)
    if emptied is None:
        return
    for holder in card.holders:
        model.add(emptied <= variables.evicted(holder.job))
    shared = variables.shared(host.id, card)
    if shared is not None:
        model.add(emptied + shared <= 1)


def _shared_card(model: CpModel, host: HostClass, card: Card, variables: Variables) -> None:
    """Fractions fit into a card's milli and memory, are of one team, and never join a whole worker."""
    coming = variables.fractions(host.id, card)
    if not coming:
        return
    shared = variables.shared(host.id, card)
    place = Place((job,) for job in card.jobs)
    leaving = [variables.evicted(job) for job in card.jobs]
    milli = [use for p in coming for use in place.uses(p.gang, p.role.request.gpu_milli, p.count, p.inside)]
    fits(model, milli, card.milli, [(h.milli, left) for h, left in zip(card.holders, leaving, strict=True)])
    memory = [
        use
        for p in coming
        for use in place.uses(p.gang, card_memory(p.role.request, card.kind.memory_mib), p.count, p.inside)
    ]
    fits(model, memory, card.memory_mib, [(h.memory_mib, left) for h, left in zip(card.holders, leaving, strict=True)])
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
            for job in card.jobs:
                model.add(owner <= variables.evicted(job))
            for part in parts:
                if not part.gang.only_inside and not card.may_empty(part.gang.reach):
                    model.add(part.count == (0 if part.inside is None else part.inside))
    model.add(sum(owners) == shared)


def _split_over_cards(model: CpModel, instance: Instance, variables: Variables) -> None:
    """A fractional class's workers in a slot are those on the slot's cards."""
    for gang in instance.gangs:
        for workers in gang.workers:
            if not workers.role.request.fractional:
                continue
            for slot in workers.slots:
                cards = [card for card in instance.hosts[slot.host].cards if card.kind == slot.kind]
                counts = [variables.on_card(workers, slot.host, card) for card in cards]
                model.add(sum(c for c in counts if c is not None) == variables.workers_at(workers, slot))
