"""The decision variables of one round, created eagerly and named, behind the questions that rules and goals ask."""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python import cp_model

from ..model.ids import HostId, JobId
from ..model.job import Role
from .classes import Card, Gang, Instance, Slot, WorkerClass, most_on_card
from .demand import CardKind

RoleKey = tuple[JobId, str]
CardKey = tuple[HostId, int]


class Variables:
    """What the model decides.

    started(gang)            1 if the gang starts
    workers_at(class, slot)  workers of a class in a slot
    on_card(class, card)     fractional workers of a class on one card
    uses_type(class, type)   1 if the role runs on that GPU type
    shared(host, card)       1 if a card that is free now carries fractions after the round
    """

    def __init__(self, model: cp_model.CpModel, instance: Instance) -> None:
        self.model = model
        self.instance = instance
        self._started = {gang.id: model.new_bool_var(f"started[{gang.id}]") for gang in instance.gangs}
        self._at: dict[tuple[RoleKey, Slot], cp_model.IntVar] = {}
        self._on_card: dict[tuple[RoleKey, CardKey], cp_model.IntVar] = {}
        self._type: dict[tuple[RoleKey, str], cp_model.IntVar] = {}
        self._shared: dict[CardKey, cp_model.IntVar] = {}
        self._by_host: dict[HostId, list[tuple[Role, cp_model.IntVar]]] = defaultdict(list)
        self._by_kind: dict[tuple[HostId, CardKind], list[tuple[Role, cp_model.IntVar]]] = defaultdict(list)
        self._fractions: dict[CardKey, list[tuple[Gang, Role, cp_model.IntVar]]] = defaultdict(list)
        for gang in instance.gangs:
            for workers in gang.workers:
                self._create(gang, workers)

    def _create(self, gang: Gang, workers: WorkerClass) -> None:
        key = (gang.id, workers.role.name)
        types = workers.gpu_types
        for gpu_type in types:
            # With one type to choose from the choice is the start itself.
            only = len(types) == 1
            name = f"type[{gang.id},{workers.role.name},{gpu_type}]"
            self._type[key, gpu_type] = self._started[gang.id] if only else self.model.new_bool_var(name)
        for slot in workers.slots:
            label = f"{gang.id},{workers.role.name},{slot.host},{slot.kind.gpu_type if slot.kind else '-'}"
            variable = self.model.new_int_var(0, slot.most, f"at[{label}]")
            self._at[key, slot] = variable
            self._by_host[slot.host].append((workers.role, variable))
            if slot.kind is None:
                continue
            if workers.role.request.fractional:
                self._create_on_cards(gang, workers, slot)
            else:
                self._by_kind[slot.host, slot.kind].append((workers.role, variable))

    def _create_on_cards(self, gang: Gang, workers: WorkerClass, slot: Slot) -> None:
        key = (gang.id, workers.role.name)
        for card in self.instance.hosts[slot.host].cards:
            most = min(workers.role.count, most_on_card(gang.record, workers.role, card))
            if card.kind != slot.kind or most == 0:
                continue
            where = (slot.host, card.index)
            variable = self.model.new_int_var(0, most, f"on[{gang.id},{workers.role.name},{slot.host},{card.index}]")
            self._on_card[key, where] = variable
            self._fractions[where].append((gang, workers.role, variable))
            if card.team is None and where not in self._shared:
                self._shared[where] = self.model.new_bool_var(f"shared[{slot.host},{card.index}]")

    def started(self, gang: Gang) -> cp_model.IntVar:
        """1 if the gang starts."""
        return self._started[gang.id]

    def workers_at(self, workers: WorkerClass, slot: Slot) -> cp_model.IntVar:
        """Workers of the class in that slot."""
        return self._at[(workers.job, workers.role.name), slot]

    def on_card(self, workers: WorkerClass, host: HostId, card: Card) -> cp_model.IntVar | None:
        """Fractional workers of the class on that card; None where it can take none."""
        return self._on_card.get(((workers.job, workers.role.name), (host, card.index)))

    def uses_type(self, workers: WorkerClass, gpu_type: str) -> cp_model.IntVar:
        """1 if the role runs on that GPU type."""
        return self._type[(workers.job, workers.role.name), gpu_type]

    def shared(self, host: HostId, card: Card) -> cp_model.IntVar | None:
        """1 if a card that is free now carries fractions after the round; None where no fraction can come."""
        return self._shared.get((host, card.index))

    def on_host(self, host: HostId) -> list[tuple[Role, cp_model.IntVar]]:
        """Every (role, number of its workers) that may come to the host."""
        return self._by_host[host]

    def on_kind(self, host: HostId, kind: CardKind) -> list[tuple[Role, cp_model.IntVar]]:
        """Every (role, number of its workers) that may take whole cards of that kind on the host."""
        return self._by_kind[host, kind]

    def fractions(self, host: HostId, card: Card) -> list[tuple[Gang, Role, cp_model.IntVar]]:
        """Every (gang, role, number of its workers) that may share the card."""
        return self._fractions[host, card.index]
