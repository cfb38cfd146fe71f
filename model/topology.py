"""Where hosts stand: the layers of the tree, a host's path in it, and links whose bandwidth is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from . import check
from .ids import HostId, SiteId


class Layer(StrEnum):
    """A topology layer, narrowest first."""

    HOST = "host"
    NVLINK = "nvlink"
    RACK = "rack"
    ZONE = "zone"
    SITE = "site"

    @property
    def width(self) -> int:
        """0 for the narrowest layer (host) to 4 for the widest (site)."""
        return _WIDTH[self]


_WIDTH = {layer: width for width, layer in enumerate(Layer)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPath:
    """A host's place in the tree. A site may leave layers out.

    A layer left out coincides with the next wider one: in a site without racks, one zone (or the whole site) is
    one rack, for its hosts hang on the same switch. Without `nvlink` the NVLink domain is the host itself.
    """

    site: SiteId
    zone: str | None = None
    rack: str | None = None
    nvlink: str | None = None

    def __post_init__(self) -> None:
        check.name("site", self.site)
        for field, value in (("zone", self.zone), ("rack", self.rack), ("nvlink", self.nvlink)):
            if value is not None:
                check.name(field, value)

    def domain(self, layer: Layer, host: HostId) -> str:
        """The name of the domain of `layer` that holds this host; equal names mean the same domain."""
        if layer is Layer.HOST:
            return f"host:{host}"
        if layer is Layer.NVLINK:
            return f"host:{host}" if self.nvlink is None else f"{self._tree(Layer.RACK)}/nvlink:{self.nvlink}"
        return self._tree(layer)

    def _tree(self, layer: Layer) -> str:
        parts = [f"site:{self.site}"]
        if self.zone is not None and layer.width <= Layer.ZONE.width:
            parts.append(f"zone:{self.zone}")
        if self.rack is not None and layer.width <= Layer.RACK.width:
            parts.append(f"rack:{self.rack}")
        return "/".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One site of the fleet; it has its own Ray cluster and adapter."""

    id: SiteId
    on_premises: bool = True
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        check.name("id", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The bandwidth between two domains, both ways, in Mbit/s.

    `a` and `b` are domain names as `TopologyPath.domain` gives them. A link between a domain and the one around it
    is that domain's uplink; other links (between sites, say) add paths.
    """

    a: str
    b: str
    bandwidth_mbps: int

    def __post_init__(self) -> None:
        check.integer("bandwidth_mbps", self.bandwidth_mbps, 1, unit="Mbit/s")
