"""Capacity: CPU, memory, network and cards of a host are never booked twice; a shared card has one team."""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python.cp_model import CpModel, IntVar

from ...model.host import MILLI
from ...model.ids import TeamId
from ..classes import Card, HostClass, Instance
from ..demand import CardKind, card_memory
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Bounds what comes to each host by what is free there."""
    for host in instance.hosts.values():
        _host_rows(model, host, variables)
        for kind in host.free_cards:
            _whole_cards(model, host, kind, variables)
        for card in host.cards:
            _shared_card(model, host, card, variables)
    _split_over_cards(model, instance, variables)


def _host_rows(model: CpModel, host: HostClass, variables: Variables) -> None:
    """sum of request * workers <= free, for milli-cores, MiB and Mbit/s."""
    coming = variables.on_host(host.id)
    for resource, free in (
        ("cpu_milli", host.cpu_milli),
        ("memory_mib", host.memory_mib),
        ("network_mbps", host.network_mbps),
    ):
        terms = [(getattr(role.request, resource), count) for role, count in coming]
        if any(asked for asked, _ in terms):
            model.add(sum(asked * count for asked, count in terms if asked) <= free)


def _whole_cards(model: CpModel, host: HostClass, kind: CardKind, variables: Variables) -> None:
    """Whole cards taken plus free cards that become shared <= free cards of the kind."""
    coming = variables.on_kind(host.id, kind)
    shared = [variables.shared(host.id, card) for card in host.cards if card.kind == kind]
    turned = [variable for variable in shared if variable is not None]
    if coming or turned:
        whole = sum(role.request.whole_gpus * count for role, count in coming)
        model.add(whole + sum(turned) <= host.free_cards[kind])


def _shared_card(model: CpModel, host: HostClass, card: Card, variables: Variables) -> None:
    """sum of milli and of card memory <= the card's room, 0 while it is not shared; fractions of one team only."""
    coming = variables.fractions(host.id, card)
    if not coming:
        return
    shared = variables.shared(host.id, card)
    open_to = 1 if shared is None else shared
    model.add(sum(role.request.gpu_milli * count for _, role, count in coming) <= card.milli * open_to)
    booked = [(card_memory(role.request, card.kind.memory_mib), count) for _, role, count in coming]
    if any(memory for memory, _ in booked):
        model.add(sum(memory * count for memory, count in booked if memory) <= card.memory_mib * open_to)
    by_team: dict[TeamId, list[IntVar]] = defaultdict(list)
    for gang, _, count in coming:
        by_team[gang.record.job.team].append(count)
    if shared is not None and len(by_team) > 1:
        _one_team(model, f"{host.id},{card.index}", shared, by_team)


def _one_team(model: CpModel, where: str, shared: IntVar, by_team: dict[TeamId, list[IntVar]]) -> None:
    owners = []
    for team, counts in sorted(by_team.items()):
        owner = model.new_bool_var(f"owner[{where},{team}]")
        owners.append(owner)
        # Rows by count, not by their sum: each stays tight in the relaxation.
        for count in counts:
            model.add(count <= MILLI * owner)
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
