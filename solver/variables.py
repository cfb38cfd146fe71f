"""The decision variables of one round, created eagerly and named, behind the questions that rules and goals ask."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ortools.sat.python import cp_model

from ..model.ids import HostId, JobId
from ..model.job import Role
from ..model.snapshot import JobRecord
from .classes import Gang, Instance, WorkerClass
from .demand import CardKind
from .held import Card
from .later import NO_PLANS, LaterGang, Plans
from .moved import moved_id
from .slots import Slot, most_on_card

RoleKey = tuple[JobId, str]
CardKey = tuple[HostId, int]


@dataclass(frozen=True, slots=True)
class Coming:
    """Workers of one role that may come to a place, and how many do.

    `inside`: how many of them are of an inside start, where that lets them use more than others; None elsewhere.
    """

    gang: Gang
    role: Role
    count: cp_model.IntVar
    inside: cp_model.IntVar | None


@dataclass(frozen=True, slots=True)
class Later:
    """Workers of one role of a named gang that may be planned in a slot, and how many are."""

    gang: LaterGang
    role: Role
    slot: Slot
    count: cp_model.IntVar


class Variables:
    """What the model decides. A plan is a gang beside the one that may start now, and "started" if it is made.

    started(gang)            1 if the gang starts; of one with members how many do
    starts(gang)             its members, or the gang alone, and for each 1 if it starts
    inside(gang)             1 if it starts inside its guarantee
    inside_on(class, type)   1 if it does, with that role on that GPU type
    evicted(job)             1 if a possible victim is preempted
    left(way)                1 if a job leaves in that way (`held`): preempted or to return smaller, or moved
    gone(job)                1 if it leaves in any way
    workers_at(class, slot)  workers of a class in a slot
    on_card(class, card)     fractional workers of a class on one card
    uses_type(class, type)   1 if the role runs on that GPU type
    shared(host, card)       1 if new fractions come to a card on which nobody has to stay
    emptied(host, card)      1 if all fractions leave a card, and whole workers may take it
    planned_at(gang)         for each candidate start of a named gang: 1 if that is its planned start
    """

    def __init__(self, model: cp_model.CpModel, instance: Instance, plans: Plans = NO_PLANS) -> None:
        self.model = model
        self.instance = instance
        self.plans = plans
        self._members: dict[JobId, cp_model.IntVar] = {}
        self._started = {gang.id: self._start_of(gang) for gang in self.placed}
        self._inside = {gang.id: self._inside_of(gang) for gang in instance.gangs if gang.may_be_inside}
        self._inside_on: dict[tuple[RoleKey, str], cp_model.IntVar] = {}
        self._evicted = {victim.id: self._eviction_of(victim.id) for victim in instance.victims}
        self._left, self._gone = self._ways_out()
        self._at: dict[tuple[RoleKey, Slot], cp_model.IntVar] = {}
        self._on_card: dict[tuple[RoleKey, CardKey], cp_model.IntVar] = {}
        self._type: dict[tuple[RoleKey, str], cp_model.IntVar] = {}
        self._shared: dict[CardKey, cp_model.IntVar] = {}
        self._by_host: dict[HostId, list[Coming]] = defaultdict(list)
        self._by_kind: dict[tuple[HostId, CardKind], list[Coming]] = defaultdict(list)
        self._fractions: dict[CardKey, list[Coming]] = defaultdict(list)
        self._later: dict[HostId, list[Later]] = defaultdict(list)
        self._planned_at = {
            gang.id: tuple(model.new_bool_var(f"planned[{gang.record.id},{start_s}]") for start_s in gang.starts)
            for gang in plans.gangs
        }
        self._cards = self._cards_for_fractions()
        for gang in instance.coming:
            for workers in gang.workers:
                self._create(gang, workers)
        self._emptied = {
            (host.id, card.index): model.new_bool_var(f"emptied[{host.id},{card.index}]")
            for host in instance.hosts.values()
            for card in host.cards
            if not card.fixed and any(not holder.whole for holder in card.holders)
        }

        for later in plans.gangs:
            for workers in later.workers:
                for slot, count in self._create_counts(later, workers):
                    self._later[slot.host].append(Later(later, workers.role, slot, count))

    def _start_of(self, gang: Gang | LaterGang) -> cp_model.IntVar:
        if isinstance(gang, LaterGang) or not gang.members:
            return self.model.new_bool_var(f"started[{gang.id}]")
        starts = [self.model.new_bool_var(f"started[{member.id}]") for member in gang.members]
        self._members.update(zip((member.id for member in gang.members), starts, strict=True))
        number = self.model.new_int_var(0, len(starts), f"number[{gang.id}]")
        self.model.add(sum(starts) == number)
        return number

    def _eviction_of(self, job: JobId) -> cp_model.IntVar:
        if job in self.instance.staying:
            return self.model.new_constant(0)
        return self.model.new_bool_var(f"evicted[{job}]")

    def _inside_of(self, gang: Gang) -> cp_model.IntVar:
        return self._started[gang.id] if gang.only_inside else self.model.new_bool_var(f"inside[{gang.id}]")

    def _ways_out(self) -> tuple[dict[JobId, cp_model.IntVar], dict[JobId, cp_model.IntVar]]:
        """The variables `left` and `gone`; of their own only where a job may leave in several ways."""
        moved = {moved_id(gang.record.id): self._started[gang.id] for gang in self.instance.returns if gang.moved}
        shrinking = {gang.record.id for gang in self.instance.returns if not gang.moved}
        left, gone = {}, {}
        for job, ways in self.instance.ways.items():
            for way in ways:
                if way != job:
                    left[way] = moved[way] if way in moved else self.model.new_constant(0)
                elif job in shrinking:
                    left[way] = self.model.new_bool_var(f"left[{way}]")
                else:
                    left[way] = self._evicted[job]
            gone[job] = left[ways[0]] if len(ways) == 1 else self.model.new_bool_var(f"gone[{job}]")
        return left, gone

    @property
    def placed(self) -> tuple[Gang | LaterGang, ...]:
        """All gangs that get places: those that may start or return, and the plans."""
        return (*self.instance.coming, *self.plans.gangs)

    def _create_counts(self, gang: Gang | LaterGang, workers: WorkerClass) -> Iterator[tuple[Slot, cp_model.IntVar]]:
        key = (gang.id, workers.role.name)
        types = workers.gpu_types
        for gpu_type in types:
            # With one type to choose from the choice is the start itself, and one worker makes it by its place.
            only = len(types) == 1
            if not only and workers.role.count == 1 and gang.id not in self._inside:
                break
            name = f"type[{gang.id},{workers.role.name},{gpu_type}]"
            self._type[key, gpu_type] = self._started[gang.id] if only else self.model.new_bool_var(name)
            if gang.id in self._inside and gpu_type in workers.covered:
                name = f"inside[{gang.id},{workers.role.name},{gpu_type}]"
                self._inside_on[key, gpu_type] = self._inside[gang.id] if only else self.model.new_bool_var(name)
        for slot in workers.slots:
            label = f"{gang.id},{workers.role.name},{slot.host},{slot.kind.gpu_type if slot.kind else '-'}"
            variable = self.model.new_int_var(0, slot.most, f"at[{label}]")
            self._at[key, slot] = variable
            yield slot, variable

    def _create(self, gang: Gang, workers: WorkerClass) -> None:
        for slot, variable in self._create_counts(gang, workers):
            victims = (part.way for part in self.instance.hosts[slot.host].freed)
            inside = self._count_inside(gang, workers, slot, victims, variable)
            coming = Coming(gang, workers.role, variable, inside)
            self._by_host[slot.host].append(coming)
            if slot.kind is None:
                continue
            if workers.role.request.fractional:
                self._create_on_cards(gang, workers, slot)
            else:
                self._by_kind[slot.host, slot.kind].append(coming)

    def _cards_for_fractions(self) -> dict[HostId, list[Card]]:
        """On each host no more cards alike than fractions may come to it: which of them are shared is all the same."""
        most: dict[HostId, int] = defaultdict(int)
        for gang in self.instance.coming:
            for workers in gang.workers:
                for slot in workers.slots if workers.role.request.fractional else ():
                    most[slot.host] += slot.most
        hosts = self.instance.hosts
        return {host: [card for group in hosts[host].alike() for card in group[:n]] for host, n in most.items()}

    def _create_on_cards(self, gang: Gang, workers: WorkerClass, slot: Slot) -> None:
        key = (gang.id, workers.role.name)
        for card in self._cards[slot.host]:
            most = most_on_card(gang.record.job.team, workers.role, card, gang.widest_reach)
            most = min(workers.role.count * max(1, len(gang.members)), most)
            if card.kind != slot.kind or most == 0:
                continue
            where = (slot.host, card.index)
            label = f"{gang.id},{workers.role.name},{slot.host},{card.index}"
            variable = self.model.new_int_var(0, most, f"on[{label}]")
            self._on_card[key, where] = variable
            inside = self._count_inside(gang, workers, slot, card.leaving, variable)
            self._fractions[where].append(Coming(gang, workers.role, variable, inside))
            if not card.fixed and where not in self._shared:
                self._shared[where] = self.model.new_bool_var(f"shared[{slot.host},{card.index}]")

    def _count_inside(
        self, gang: Gang, workers: WorkerClass, slot: Slot, victims: Iterable[JobId], workers_here: cp_model.IntVar
    ) -> cp_model.IntVar | None:
        """How many of the workers here are of an inside start, where some victim leaves only for those."""
        if gang.only_inside or not any(job in gang.widest_reach and job not in gang.reach for job in victims):
            return None
        key = (gang.id, workers.role.name)
        on_type = self._inside[gang.id] if slot.kind is None else self._inside_on.get((key, slot.kind.gpu_type))
        if on_type is None:
            return None
        most = list(workers_here.proto.domain)[-1]
        count = self.model.new_int_var(0, most, f"inside_{workers_here.name}")
        self.model.add(count <= most * on_type)
        self.model.add(count <= workers_here)
        return count

    def started(self, gang: Gang | LaterGang) -> cp_model.IntVar:
        """1 if the gang starts, or the plan is made."""
        return self._started[gang.id]

    def starts(self, gang: Gang) -> Iterator[tuple[JobRecord, cp_model.IntVar]]:
        """The candidates that the gang stands for, and for each 1 if it starts."""
        if not gang.members:
            yield gang.record, self._started[gang.id]
        for member in gang.members:
            yield member, self._members[member.id]

    def inside(self, gang: Gang) -> cp_model.IntVar | None:
        """1 if the gang starts inside its guarantee; None where it cannot."""
        return self._inside.get(gang.id)

    def inside_on(self, workers: WorkerClass, gpu_type: str) -> cp_model.IntVar | None:
        """1 if the gang starts inside with this role on that GPU type; None where it cannot."""
        return self._inside_on.get(((workers.job, workers.role.name), gpu_type))

    def evicted(self, job: JobId) -> cp_model.IntVar:
        """1 if the possible victim is preempted."""
        return self._evicted[job]

    def left(self, way: JobId) -> cp_model.IntVar:
        """1 if a job leaves in that way."""
        return self._left[way]

    def gone(self, job: JobId) -> cp_model.IntVar:
        """1 if the job leaves in any way."""
        return self._gone[job]

    def workers_at(self, workers: WorkerClass, slot: Slot) -> cp_model.IntVar:
        """Workers of the class in that slot."""
        return self._at[(workers.job, workers.role.name), slot]

    def on_card(self, workers: WorkerClass, host: HostId, card: Card) -> cp_model.IntVar | None:
        """Fractional workers of the class on that card; None where it can take none."""
        return self._on_card.get(((workers.job, workers.role.name), (host, card.index)))

    def uses_type(self, workers: WorkerClass, gpu_type: str) -> cp_model.IntVar | None:
        """1 if the role runs on that GPU type; None where no rule asks."""
        return self._type.get(((workers.job, workers.role.name), gpu_type))

    def shared(self, host: HostId, card: Card) -> cp_model.IntVar | None:
        """1 if new fractions come to the card; None where none can, or where somebody on it stays."""
        return self._shared.get((host, card.index))

    def emptied(self, host: HostId, card: Card) -> cp_model.IntVar | None:
        """1 if all fractions leave the card and none come; None for cards that no fraction could leave so."""
        return self._emptied.get((host, card.index))

    def planned_at(self, gang: LaterGang) -> tuple[cp_model.IntVar, ...]:
        """For each candidate start of the named gang 1 if it is planned then."""
        return self._planned_at[gang.id]

    def later(self, host: HostId) -> list[Later]:
        """All that may be planned on the host."""
        return self._later[host]

    def on_host(self, host: HostId) -> list[Coming]:
        """All that may come to the host."""
        return self._by_host[host]

    def on_kind(self, host: HostId, kind: CardKind) -> list[Coming]:
        """All that may take whole cards of that kind on the host."""
        return self._by_kind[host, kind]

    def fractions(self, host: HostId, card: Card) -> list[Coming]:
        """All that may share the card."""
        return self._fractions[host, card.index]
