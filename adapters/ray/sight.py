"""Looking at a site: Ray's objects of our namespace, the runners' answers, and the traces on the hosts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...model.ids import HostId
from ...model.intent import Observation, ObservedGang, ObservedHost
from . import actors, compat, ledger, view
from .attempt_files import HostStatus
from .compat import Group, Node
from .machines import Machines
from .names import Names
from .records import Key, Record, Records
from .specs import Folders
from .view import Unseen
from .waits import Waits

Status = HostStatus | Unseen


class Sight:
    """What the executor can see. The lists of nodes and groups are read afresh at every question."""

    def __init__(
        self, names: Names, folders: Folders, records: Records, machines: Machines, cluster: str, waits: Waits
    ) -> None:
        self.folders = folders
        self.machines = machines
        self.statuses: dict[Key, dict[HostId, Status]] = {}
        self._names = names
        self._records = records
        self._cluster = cluster
        self._waits = waits
        self._handles: dict[str, Any] = {}
        self._silent_since: dict[str, float] = {}
        self._odd_since: dict[HostId, float] = {}
        self._searched: set[str] = set()
        self._strays: dict[Key, set[HostId]] = {}
        self._host_of: dict[str, HostId] = {}

    def nodes(self) -> dict[HostId, Node]:
        """The site's hosts."""
        found = [node for node in compat.nodes() if node.site in ("", self._names.site)]
        self._host_of = {node.id: HostId(node.host) for node in found}
        return ledger.by_host(found)

    def host_of(self, node: str) -> HostId | None:
        """The host of a node id."""
        if node not in self._host_of:
            self.nodes()
        return self._host_of.get(node)

    def groups(self) -> dict[Key, Group]:
        """The site's groups, by attempt."""
        named = ((self._names.attempt_of(group.name), group) for group in compat.groups())
        return {key: group for key, group in named if key is not None}

    def living(self, hosts: tuple[HostId, ...]) -> dict[HostId, Node]:
        """Those of the hosts that are alive."""
        nodes = self.nodes()
        return {host: nodes[host] for host in hosts if host in nodes and nodes[host].alive}

    def hosts_of(self, key: Key) -> tuple[HostId, ...]:
        """The hosts of an attempt, as far as anything of it is left."""
        record = self._records.get(key)
        if record is not None:
            return record.hosts
        group = self.groups().get(key)
        if group is not None:
            return tuple(host for node in group.nodes if (host := self.host_of(node)) is not None)
        return tuple(sorted(self._strays.get(key, ())))

    def runners(self, key: Key) -> dict[HostId, Any]:
        """The attempt's runners that Ray knows."""
        named = actors.actor_names()
        found: dict[HostId, Any] = {}
        for host in self.hosts_of(key):
            name = self._names.runner(*key, host)
            handle = self._handle(name) if name in named else None
            if handle is not None:
                found[host] = handle
        return found

    def forget(self, key: Key) -> None:
        """Nothing of the attempt is left."""
        self.statuses.pop(key, None)
        hosts = self.hosts_of(key)
        self._strays.pop(key, None)
        for host in hosts:
            self._handles.pop(self._names.runner(*key, host), None)

    def look(self, launching: frozenset[Key]) -> Observation:
        """Everything at once; `launching` are the attempts that this process is bringing up."""
        nodes, groups = self.nodes(), self.groups()
        self.machines.forget(node.id for node in nodes.values() if node.alive)
        self._search(nodes, groups)
        keys = dict.fromkeys((*groups, *(r.key for r in self._records.all() if self._shown(r)), *self._strays))
        self.statuses = self._ask(tuple(keys), nodes, launching)
        gangs = tuple(self._gang(key, groups.get(key), key in launching) for key in keys)
        return Observation(gangs=gangs, hosts=self._hosts(nodes, groups))

    def unexplained(self, host: HostId) -> str:
        """What Ray holds on the host that no group of ours explains; empty if nothing."""
        node = self.nodes().get(host)
        if node is None or not node.alive:
            return ""
        return ledger.unexplained(node, compat.available().get(node.id, {}), self.groups().values())

    def _shown(self, record: Record) -> bool:
        return record.launched or record.releasing

    def _gang(self, key: Key, group: Group | None, launching: bool) -> ObservedGang:
        state = group.state if group else ""
        record = self._records.get(key)
        rebuilt = group is None and record is not None and record.cluster != self._cluster
        gang = view.observed(*key, state, self.statuses[key], launching=launching)
        return replace(gang, cause="the site's Ray cluster was rebuilt") if rebuilt and gang.cause else gang

    def _ask(
        self, keys: tuple[Key, ...], nodes: Mapping[HostId, Node], launching: frozenset[Key]
    ) -> dict[Key, dict[HostId, Status]]:
        found: dict[Key, dict[HostId, Status]] = {key: {} for key in keys}
        asked: dict[str, Any] = {}
        places: dict[str, tuple[Key, HostId]] = {}
        named = actors.actor_names()
        for key in keys:
            for host in self.hosts_of(key):
                name = self._names.runner(*key, host)
                found[key][host] = Unseen.SILENT
                node = nodes.get(host)
                if node is None or not node.alive:
                    found[key][host] = Unseen.DEAD
                    continue
                if key in launching:
                    continue  # its runners may still be on their way, and would keep all others waiting
                places[name] = (key, host)
                handle = self._handle(name) if name in named else None
                if handle is not None:
                    asked[name] = actors.call(handle, "status")
        answers = actors.answers(asked, self._waits.answer_s)
        for name, (key, host) in places.items():
            status = self._status(name, answers.get(name, actors.ActorGone()))
            if status is None:
                status = self._from_machine(key, host, nodes[host])
            found[key][host] = status
        return found

    def _status(self, name: str, answer: object) -> Status | None:
        """A runner's answer; None where its machine must be asked instead."""
        if isinstance(answer, HostStatus):
            self._silent_since.pop(name, None)
            return answer
        if isinstance(answer, actors.ActorGone):
            self._handles.pop(name, None)
            self._silent_since.pop(name, None)
            return None
        since = self._silent_since.setdefault(name, time.monotonic())
        return Unseen.SILENT if time.monotonic() - since < self._waits.silent_s else None

    def _from_machine(self, key: Key, host: HostId, node: Node) -> Status:
        logs = self.folders.on(host).logs
        answer = self.machines.ask({host: node}, "status", lambda _host: (logs, *key, host))[host]
        return answer if isinstance(answer, HostStatus) else Unseen.SILENT

    def _handle(self, name: str) -> Any | None:
        if name not in self._handles:
            self._handles[name] = actors.find_actor(name)
        return self._handles[name]

    def _search(self, nodes: Mapping[HostId, Node], groups: Mapping[Key, Group]) -> None:
        """Looks once on every node that has joined for processes of attempts that nothing else tells of."""
        fresh = {host: node for host, node in nodes.items() if node.alive and node.id not in self._searched}
        for host, answer in self.machines.ask(fresh, "attempts", lambda _host: ()).items():
            if isinstance(answer, Exception):
                continue
            self._searched.add(fresh[host].id)
            for job, attempt, where in answer:
                known = (job, attempt) in groups or self._records.get((job, attempt)) is not None
                if where == host and not known:
                    self._strays.setdefault((job, attempt), set()).add(host)

    def _hosts(self, nodes: Mapping[HostId, Node], groups: Mapping[Key, Group]) -> tuple[ObservedHost, ...]:
        free = compat.available()
        unclean: dict[HostId, list[str]] = {}
        for record in self._records.all():
            for host, what in record.unclean.items():
                unclean.setdefault(host, []).append(what)
        for host, node in nodes.items():
            odd = ledger.unexplained(node, free.get(node.id, {}), groups.values()) if node.alive else ""
            if not odd:
                self._odd_since.pop(host, None)
                continue
            # Ray's books follow our groups with some delay.
            since = self._odd_since.setdefault(host, time.monotonic())
            if time.monotonic() - since >= self._waits.settle_s:
                unclean.setdefault(host, []).append(odd)
        return tuple(
            ObservedHost(host=host, alive=node.alive, leaked=tuple(unclean.get(host, ())))
            for host, node in nodes.items()
        )
