"""The fleet's graph: layers, uplinks and the bottleneck between hosts."""

from phalanx.model.host import Host
from phalanx.model.ids import HostId, SiteId
from phalanx.model.snapshot import Snapshot
from phalanx.model.topology import Layer, Link, Site, TopologyPath
from phalanx.solver.topology import bottleneck, domains, graph


def host(name: str, site: str, rack: str | None, mbps: int) -> Host:
    path = TopologyPath(site=SiteId(site), rack=rack)
    return Host(id=HostId(name), path=path, cpu_milli=1, memory_mib=1, network_mbps=mbps)


FLEET = Snapshot(
    now_s=0,
    sites=(Site(id=SiteId("n")), Site(id=SiteId("s"))),
    hosts=(host("a", "n", "r0", 400), host("b", "n", "r0", 100), host("c", "n", "r1", 200), host("d", "s", None, 900)),
    links=(
        Link(a="site:n/rack:r0", b="site:n", bandwidth_mbps=50),
        Link(a="site:n", b="site:s", bandwidth_mbps=70),
        Link(a="site:n", b="fleet", bandwidth_mbps=10),
    ),
)


def test_the_bottleneck_is_the_narrowest_edge_of_the_widest_path() -> None:
    fleet = graph(FLEET)
    assert bottleneck(fleet, HostId("a"), HostId("b")) == 100
    assert bottleneck(fleet, HostId("a"), HostId("c")) == 50, "the rack's stated uplink"
    assert bottleneck(fleet, HostId("c"), HostId("d")) == 70, "the direct link is wider than the way over the fleet"


def test_unconnected_hosts_have_no_bandwidth() -> None:
    assert bottleneck(graph(FLEET), HostId("a"), HostId("nowhere")) == 0


def test_a_layer_left_out_coincides_with_the_next_wider_one() -> None:
    assert domains(FLEET.hosts, Layer.RACK) == {
        "site:n/rack:r0": ("a", "b"),
        "site:n/rack:r1": ("c",),
        "site:s": ("d",),
    }
    assert set(domains(FLEET.hosts, Layer.NVLINK)) == {"host:a", "host:b", "host:c", "host:d"}
