"""Fleet files (TOML or YAML): the sites, hosts and teams of a fleet in a compact form.

[[sites]]
id = "north"
time_zone = "Europe/Oslo"

[[sites.hosts]]
name = "n{n:02}"         # {n} counts from 1; {rack} and {zone} are usable too
count = 6
hosts_per_rack = 2       # fills {rack} with 1, 2, 3
rack = "r{rack}"
zone = "z1"
gpus = 8
gpu_type = "H100"
gpu_memory = "80GiB"
cpu = 64
memory = "1TiB"
network = "400Gbps"

[[teams]]
id = "vision"
weight = 100
guarantee = { H100 = 8 }

[[links]]
a = "site:north"
b = "site:south"
bandwidth = "100Gbps"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..model import codec
from ..model.errors import InvalidInput
from ..model.host import Gpu, Host
from ..model.ids import HostId, SiteId, TeamId
from ..model.snapshot import Snapshot
from ..model.team import GpuQuota, Team
from ..model.topology import Link, Site, TopologyPath
from . import units

MAX_BYTES = 2 * 2**20
_SITE = ("id", "on_premises", "time_zone", "hosts")
_HOST = (
    *("name", "count", "first", "gpus", "gpu_type", "gpu_memory", "cpu", "memory", "network"),
    *("zone", "rack", "hosts_per_rack", "nvlink", "spare"),
)
_TEAM = ("id", "parent", "weight", "guarantee", "limit", "budget_gpu_hours")
_LINK = ("a", "b", "bandwidth")
_SLOT = re.compile(r"\{(n|rack|zone)(?::0?(\d))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a fleet file describes."""

    sites: tuple[Site, ...]
    hosts: tuple[Host, ...]
    teams: tuple[Team, ...] = ()
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        # The snapshot's own checks: names once, sites known, parents known.
        Snapshot(now_s=0, sites=self.sites, hosts=self.hosts, teams=self.teams, links=self.links)


def load_fleet(path: Path) -> Fleet:
    """Reads a fleet file, TOML unless its name ends in .yaml, .yml or .json. Raises InvalidInput with file and path."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InvalidInput(str(path), f"larger than {MAX_BYTES} bytes", "a fleet file in the compact form")
        text = raw.decode("utf-8")
        data = yaml.safe_load(text) if path.suffix in (".yaml", ".yml", ".json") else tomllib.loads(text)
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}", "a fleet file") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise InvalidInput(str(path), f"cannot be parsed: {told}", "TOML, or YAML in a .yaml file") from None
    try:
        return fleet_from_dict(data)
    except InvalidInput as fault:
        raise InvalidInput(
            f"{path}: {fault.path}" if fault.path else str(path), fault.problem, fault.expected
        ) from None


def fleet_from_dict(data: Any) -> Fleet:
    """A fleet from plain values. Raises InvalidInput naming the path."""
    top = _table("", data, ("sites", "teams", "links"))
    sites: list[Site] = []
    hosts: list[Host] = []
    for where, entry in _entries(top, "sites", _SITE):
        site = _under(where, lambda entry=entry: _site(entry))
        sites.append(site)
        for number, group in enumerate(_list(f"{where}.hosts", entry.get("hosts", []))):
            place = f"{where}.hosts[{number}]"
            hosts.extend(_under(place, lambda group=group, site=site: _hosts(site.id, _table("", group, _HOST))))
    if not sites:
        raise InvalidInput("sites", "the fleet has no site", "at least one [[sites]]")
    teams = [_under(where, lambda entry=entry: _team(entry)) for where, entry in _entries(top, "teams", _TEAM)]
    links = [_under(where, lambda entry=entry: _link(entry)) for where, entry in _entries(top, "links", _LINK)]
    return Fleet(sites=tuple(sites), hosts=tuple(hosts), teams=tuple(teams), links=tuple(links))


def _site(entry: Mapping[str, Any]) -> Site:
    plain = {key: value for key, value in entry.items() if key != "hosts"}
    site: Site = codec.decode(plain, Site)
    return site


def _hosts(site: SiteId, group: Mapping[str, Any]) -> list[Host]:
    count = units.whole("count", group.get("count", 1), "hosts", 1)
    first = units.whole("first", group.get("first", 1), "hosts")
    per_rack = units.whole("hosts_per_rack", group.get("hosts_per_rack", count), "hosts", 1)
    name = _string(group, "name", "")
    if count > 20_000:
        raise InvalidInput("count", f"{count} hosts in one entry", "at most 20000")
    if not name:
        raise InvalidInput("name", "missing", 'a name for the hosts, such as "n{n:02}"')
    if count > 1 and "{n" not in name:
        raise InvalidInput("name", f"{name!r} is the same for all {count} hosts", 'a pattern such as "n{n:02}"')
    pattern = _host_pattern(group)
    out = []
    for number in range(count):
        slots = {"n": first + number, "rack": 1 + number // per_rack}
        zone = _fill(_string(group, "zone", ""), slots)
        path = TopologyPath(
            site=site,
            zone=zone or None,
            rack=_fill(_string(group, "rack", ""), {**slots, "zone": zone}) or None,
            nvlink=_fill(_string(group, "nvlink", ""), {**slots, "zone": zone}) or None,
        )
        out.append(Host(id=HostId(_fill(name, {**slots, "zone": zone})), path=path, **pattern))
    return out


def _host_pattern(group: Mapping[str, Any]) -> dict[str, Any]:
    gpus = units.whole("gpus", group.get("gpus", 0), "GPUs")
    cards: tuple[Gpu, ...] = ()
    if gpus:
        for key in ("gpu_type", "gpu_memory"):
            if key not in group:
                raise InvalidInput(key, "missing", 'gpu_type = "H100" and gpu_memory = "80GiB" for hosts with GPUs')
        memory = units.memory_mib("gpu_memory", group["gpu_memory"])
        kind = _string(group, "gpu_type", "")
        cards = tuple(Gpu(index=index, gpu_type=kind, memory_mib=memory) for index in range(gpus))
    for key in ("cpu", "memory"):
        if key not in group:
            raise InvalidInput(key, "missing", 'cpu = 64 and memory = "1TiB", what jobs may book of each host')
    return {
        "gpus": cards,
        "cpu_milli": units.milli("cpu", group["cpu"], "cores"),
        "memory_mib": units.memory_mib("memory", group["memory"]),
        "network_mbps": units.bandwidth_mbps("network", group["network"]) if "network" in group else 0,
        "spare": codec.decode(group.get("spare", False), bool),
    }


def _team(entry: Mapping[str, Any]) -> Team:
    if "id" not in entry:
        raise InvalidInput("id", "missing", "the team's name")
    parent = _string(entry, "parent", "")
    hours = entry.get("budget_gpu_hours")
    return Team(
        id=TeamId(_string(entry, "id", "")),
        parent=TeamId(parent) if parent else None,
        weight=units.whole("weight", entry.get("weight", 100), "shares", 1),
        guarantee=_quota("guarantee", entry.get("guarantee", {})),
        limit=None if "limit" not in entry else _quota("limit", entry["limit"]),
        budget_gpu_s=None if hours is None else 3_600 * units.whole("budget_gpu_hours", hours, "GPU-hours"),
    )


def _quota(field: str, table: Any) -> tuple[GpuQuota, ...]:
    if not isinstance(table, dict):
        raise InvalidInput(field, f"{table!r} is not a table", "GPU types with a number of GPUs, such as { H100 = 8 }")
    return tuple(
        GpuQuota(gpu_type=str(kind), gpu_milli=units.milli(f"{field}.{kind}", amount)) for kind, amount in table.items()
    )


def _link(entry: Mapping[str, Any]) -> Link:
    for key in _LINK:
        if key not in entry:
            raise InvalidInput(key, "missing", 'a = "site:north", b = "site:south", bandwidth = "100Gbps"')
    bandwidth = units.bandwidth_mbps("bandwidth", entry["bandwidth"])
    return Link(a=_string(entry, "a", ""), b=_string(entry, "b", ""), bandwidth_mbps=bandwidth)


def _fill(pattern: str, slots: Mapping[str, Any]) -> str:
    return _SLOT.sub(lambda slot: str(slots.get(slot[1], "")).zfill(int(slot[2] or 0)), pattern)


def _string(table: Mapping[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise InvalidInput(key, f"{value!r} is not a text", "a text in quotes")
    return value


def _table(where: str, data: Any, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidInput(where, f"{type(data).__name__} is not a table", f"a table with {', '.join(known)}")
    for key in data:
        if key not in known:
            raise InvalidInput(f"{where}.{key}".strip("."), "unknown field", codec.nearest(str(key), known))
    return data


def _list(where: str, data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise InvalidInput(where, f"{type(data).__name__} is not a list", f"a list of tables ([[{where}]] in TOML)")
    return data


def _entries(top: Mapping[str, Any], key: str, known: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    listed = enumerate(_list(key, top.get(key, [])))
    return [(f"{key}[{number}]", _table(f"{key}[{number}]", entry, known)) for number, entry in listed]


def _under(where: str, build: Any) -> Any:
    try:
        return build()
    except InvalidInput as fault:
        raise fault.under(where) from None
