"""What does not change of the hosts on which a placer works: their domains, sites, types and memory.

Shared by all placers of a round on the same hosts, as building it anew took longer than most searches.
"""

from __future__ import annotations

from ..model.host import Host
from ..model.ids import HostId, SiteId
from ..model.topology import Layer
from .remember import remembered
from .rooms import Tree


class Ground:
    """The lasting side of some hosts."""

    def __init__(self, hosts: tuple[Host, ...]) -> None:
        self._hosts = hosts
        self._trees: dict[frozenset[SiteId], Tree] = {}
        self.memory: dict[str, int] = {}
        """The largest healthy card of each type, in MiB."""
        self.of_type: dict[str | None, list[HostId]] = {None: [host.id for host in hosts]}
        """The hosts with a healthy card of each type; under None all of them."""
        self.site = {host.path.domain(Layer.SITE, host.id): host.path.site for host in hosts}
        """The site of each domain of the widest layer."""
        for host in hosts:
            for gpu in host.gpus:
                if gpu.healthy:
                    self.memory[gpu.gpu_type] = max(self.memory.get(gpu.gpu_type, 0), gpu.memory_mib)
            for name in {gpu.gpu_type for gpu in host.gpus if gpu.healthy}:
                self.of_type.setdefault(name, []).append(host.id)

    def tree(self, sites: frozenset[SiteId]) -> Tree:
        """The domains of these hosts at those sites."""
        if sites not in self._trees:
            self._trees[sites] = Tree(host for host in self._hosts if host.path.site in sites)
        return self._trees[sites]


@remembered
def ground(hosts: tuple[Host, ...]) -> Ground:
    """The ground of these hosts."""
    return Ground(hosts)
