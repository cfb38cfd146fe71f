"""One caretaker a machine: in this process for our own, in a Ray actor elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...model.ids import HostId
from ..ports import GpuLibrary
from . import actors
from .compat import Node
from .runner import Caretaker

Answer = Any


class Machines:
    """Asks the caretakers; `local` are the addresses that mean this machine, `gpus` makes a machine's GPU library."""

    def __init__(
        self, namespace: str, gpus: Callable[[], GpuLibrary] | None, local: frozenset[str], wait_s: float
    ) -> None:
        self._arguments = {"namespace": namespace, "gpus": gpus}
        self._here = Caretaker(namespace, gpus)
        self._local = local
        self._wait_s = wait_s
        self._remote: dict[str, Any] = {}

    def is_local(self, node: Node) -> bool:
        """Whether the node is on this machine."""
        return node.address in self._local

    def ask(
        self, nodes: Mapping[HostId, Node], method: str, arguments: Callable[[HostId], tuple[object, ...]]
    ) -> dict[HostId, Answer]:
        """What the caretaker of each host's machine answers; a PhalanxError stands for one that does not."""
        found: dict[HostId, Answer] = {}
        asked: dict[HostId, Any] = {}
        for host, node in nodes.items():
            if self.is_local(node):
                found[host] = getattr(self._here, method)(*arguments(host))
            else:
                asked[host] = actors.call(self._caretaker(node), method, *arguments(host))
        answers = actors.answers(asked, self._wait_s)
        for host, answer in answers.items():
            if isinstance(answer, actors.ActorGone):
                self._remote.pop(nodes[host].id, None)
            found[host] = answer
        return found

    def forget(self, living: Iterable[str]) -> None:
        """Drops the caretakers of nodes that are gone; `living` are node ids."""
        keep = set(living)
        self._remote = {node: actor for node, actor in self._remote.items() if node in keep}

    def _caretaker(self, node: Node) -> Any:
        if node.id not in self._remote:
            self._remote[node.id] = actors.start_caretaker(Caretaker, node.id, self._arguments)
        return self._remote[node.id]
