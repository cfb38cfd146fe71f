"""Capacity: what a host has is never booked twice, counting what victims free, each only for the levels above theirs.

All rows are stated per host and for each level a that matters there: what starts of levels <= a take fits into what is
free now plus what victims of levels < a free. As these sets are nested, the rows together say that every start can be
given capacity that it may use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ortools.sat.python.cp_model import CpModel, IntVar

from ...model.host import MILLI
from ...model.ids import JobId, TeamId
from ..classes import Instance
from ..demand import CardKind, card_memory
from ..held import Card, HostClass
from ..variables import Coming, Variables

Terms = list[tuple[int, IntVar]]


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
        asking = [part for part in coming if getattr(part.role.request, resource)]
        freed = [(part.level, getattr(part, resource), part.job) for part in host.freed]
        for level in levels_that_matter(
            (part.level for part in asking), (victim_level for victim_level, amount, _ in freed if amount)
        ):
            use = [(getattr(part.role.request, resource), part.count) for part in asking if part.level <= level]
            gain = [(amount, variables.evicted(job)) for at, amount, job in freed if at < level]
            fits(model, use, getattr(host, resource), gain)


def levels_that_matter(coming_levels: Iterable[int], victim_levels: Iterable[int]) -> list[int]:
    """The levels whose rows are not implied by a higher one: the highest, and the highest below each victim's reach."""
    present = set(coming_levels)
    bars = set(victim_levels)
    wanted = {max(present)} if present else set()
    wanted |= {max(level for level in present if level <= bar) for bar in bars if any(x <= bar for x in present)}
    return sorted(wanted)


def fits(model: CpModel, use: Terms, free: int, gain: Terms) -> None:
    """sum of use <= free + sum of gain; where running work exceeds that already, only if anything comes at all."""
    used = sum(amount * variable for amount, variable in use)
    gained = sum(amount * variable for amount, variable in gain if amount)
    if free >= 0:
        model.add(used <= free + gained)
        return
    comes = model.new_bool_var("")
    for _, variable in use:
        model.add(variable == 0).only_enforce_if(~comes)
    model.add(used <= free + gained).only_enforce_if(comes)


def _whole_cards(model: CpModel, host: HostClass, kind: CardKind, variables: Variables) -> None:
    """Whole cards taken <= free cards + cards that victims leave - those of both that become shared."""
    coming = variables.on_kind(host.id, kind)
    cards = [card for card in host.cards if card.kind == kind and not card.fixed]
    if not coming and all(variables.shared(host.id, card) is None for card in cards):
        return
    bars = (card.threshold - 1 for card in cards if card.holders)
    for level in levels_that_matter((part.level for part in coming), bars) or [
        max((card.threshold for card in cards), default=0)
    ]:
        whole = sum(part.role.request.whole_gpus * part.count for part in coming if part.level <= level)
        reachable = [card for card in cards if card.threshold <= level]
        shared = [variables.shared(host.id, card) for card in reachable if not _only_emptied(card)]
        supply = sum(card.free for card in reachable) + sum(_leaving(host, reachable, variables))
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
    for level in levels_that_matter((part.level for part in coming), (holder.level for holder in card.holders)):
        here = [part for part in coming if part.level <= level]
        leaving = [holder for holder in card.holders if holder.level < level]
        milli = [(part.role.request.gpu_milli, part.count) for part in here]
        fits(model, milli, card.milli, [(h.milli, variables.evicted(h.job)) for h in leaving])
        memory = [(card_memory(part.role.request, card.kind.memory_mib), part.count) for part in here]
        fits(model, memory, card.memory_mib, [(h.memory_mib, variables.evicted(h.job)) for h in leaving])
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
            for job in _jobs(card):
                model.add(owner <= variables.evicted(job))
    model.add(sum(owners) == shared)


def _jobs(card: Card) -> list[JobId]:
    return [holder.job for holder in card.holders]


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
