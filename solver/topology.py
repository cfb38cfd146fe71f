"""The fleet as a graph: layers as a tree of domains, links with bandwidth, and the bottleneck between two hosts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable

import networkx as nx

from ..model.host import Host
from ..model.ids import HostId
from ..model.snapshot import Snapshot
from ..model.topology import Layer

FLEET = "fleet"


def graph(snapshot: Snapshot) -> nx.Graph[str]:
    """Hosts and domains as nodes, uplinks and links as edges with `mbps` (Mbit/s, both ways).

    A host's uplink carries its `network_mbps`; a domain's uplink carries what its hosts can send together, unless a
    link of the snapshot says otherwise. Links between other domains add paths.
    """
    fleet: nx.Graph[str] = nx.Graph()
    for host in snapshot.hosts:
        chain = list(dict.fromkeys(host.path.domain(layer, host.id) for layer in Layer))
        for inner, outer in zip(chain, [*chain[1:], FLEET], strict=True):
            known = fleet.get_edge_data(inner, outer, {"mbps": 0})["mbps"]
            fleet.add_edge(inner, outer, mbps=known + host.network_mbps)
    for link in snapshot.links:
        fleet.add_edge(link.a, link.b, mbps=link.bandwidth_mbps)
    return fleet


def bottleneck(fleet: nx.Graph[str], a: HostId, b: HostId) -> int:
    """Mbit/s of the narrowest edge on the widest path between two hosts; 0 where nothing connects them.

    The widest path lies in a maximum spanning tree (Hu 1961).
    """
    tree = nx.maximum_spanning_tree(fleet, weight="mbps")
    ends = (f"host:{a}", f"host:{b}")
    if not all(end in tree for end in ends) or not nx.has_path(tree, *ends):
        return 0
    path = nx.shortest_path(tree, *ends)
    return min((tree[u][v]["mbps"] for u, v in itertools.pairwise(path)), default=0)


def domains(hosts: Iterable[Host], layer: Layer) -> dict[str, tuple[HostId, ...]]:
    """The domains of a layer and the given hosts in each, in the order given."""
    members: dict[str, list[HostId]] = defaultdict(list)
    for host in hosts:
        members[host.path.domain(layer, host.id)].append(host.id)
    return {name: tuple(ids) for name, ids in members.items()}
