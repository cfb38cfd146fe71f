"""Fleet files: the compact form expands to hosts, and errors name file and path."""

import json

import pytest
import yaml

from phalanx.api.fleet import fleet_from_dict, load_fleet
from phalanx.model.errors import InvalidInput

TOML = """
[[sites]]
id = "north"
on_premises = false
[[sites.hosts]]
name = "n{n:02}"
count = 4
hosts_per_rack = 2
rack = "r{rack}"
zone = "z1"
gpus = 8
gpu_type = "H100"
gpu_memory = "80GiB"
cpu = 64
memory = "1TiB"
network = "400Gbps"
[[sites.hosts]]
name = "cpu1"
cpu = 32
memory = "128GiB"
spare = true
[[sites]]
id = "south"
[[teams]]
id = "lab"
[[teams]]
id = "vision"
parent = "lab"
weight = 50
guarantee = { H100 = 8 }
limit = { H100 = 16.5 }
budget_gpu_hours = 10
[[links]]
a = "site:north"
b = "site:south"
bandwidth = "100Gbps"
"""


def host(**more):
    return {"name": "n{n}", "cpu": 8, "memory": "8GiB", **more}


def fleet(*hosts, **more):
    return {"sites": [{"id": "north", "hosts": list(hosts)}], **more}


def test_the_compact_form(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text(TOML)
    read = load_fleet(path)
    assert [(site.id, site.on_premises) for site in read.sites] == [("north", False), ("south", True)]
    assert [entry.id for entry in read.hosts] == ["n01", "n02", "n03", "n04", "cpu1"]
    assert [entry.path.rack for entry in read.hosts] == ["r1", "r1", "r2", "r2", None]
    first = read.hosts[0]
    assert (len(first.gpus), first.gpus[7].index, first.gpus[0].memory_mib) == (8, 7, 81_920)
    assert (first.cpu_milli, first.memory_mib, first.network_mbps) == (64_000, 2**20, 400_000)
    assert read.hosts[4].spare
    vision = read.teams[1]
    assert (vision.parent, vision.weight, vision.budget_gpu_s) == ("lab", 50, 36_000)
    assert vision.guarantee[0].gpu_milli == 8_000
    assert vision.limit[0].gpu_milli == 16_500
    assert read.links[0].bandwidth_mbps == 100_000


def test_yaml_and_json_say_the_same(tmp_path):
    data = fleet(host(count=2))
    for name, text in (("f.yaml", yaml.safe_dump(data)), ("f.json", json.dumps(data))):
        path = tmp_path / name
        path.write_text(text)
        assert load_fleet(path) == fleet_from_dict(data)


@pytest.mark.parametrize(
    ("data", "path", "words"),
    [
        ([], "", "not a table"),
        ({}, "sites", "no site"),
        ({"site": []}, "site", "'sites', perhaps"),
        ({"sites": {}}, "sites", "not a list"),
        (fleet(host(gpu=8)), "sites[0].hosts[0].gpu", "'gpus', perhaps"),
        (fleet(host(gpus=8)), "sites[0].hosts[0].gpu_type", "missing"),
        (fleet(host(gpus=-1)), "sites[0].hosts[0].gpus", "out of range"),
        (fleet(host(memory=8)), "sites[0].hosts[0].memory", "no unit"),
        (fleet(host(cpu="many")), "sites[0].hosts[0].cpu", "not a number"),
        (fleet({"name": "x", "cpu": 1}), "sites[0].hosts[0].memory", "missing"),
        (fleet(host(name="same", count=2)), "sites[0].hosts[0].name", "the same for all"),
        (fleet(host(count=1_000_000)), "sites[0].hosts[0].count", "at most"),
        (fleet(host(), host()), "hosts", "stands twice"),
        (fleet(host(), teams=[{"id": "a", "parent": "b"}]), "teams[0].parent", "no team"),
        (fleet(host(), teams=[{}]), "teams[0].id", "missing"),
        (fleet(host(), teams=[{"id": "a", "guarantee": 8}]), "teams[0].guarantee", "not a table"),
        (fleet(host(), links=[{"a": "x"}]), "links[0].b", "missing"),
        ({"sites": [{"id": "no spaces"}]}, "sites[0].id", "not a name"),
        ({"sites": [{"id": 3}]}, "sites[0].id", "not a text"),
    ],
)
def test_wrong_fleets_name_the_path(data, path, words):
    with pytest.raises(InvalidInput) as fault:
        fleet_from_dict(data)
    assert fault.value.path == path
    assert words in str(fault.value)


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("f.toml", b"[[sites", "cannot be parsed"),
        ("f.toml", b"\xff\xfe\x00", "cannot be parsed"),
        ("f.yaml", b"a: [", "cannot be parsed"),
        ("f.yaml", b"!!python/object/apply:os.system ['true']", "cannot be parsed"),
        ("f.toml", b"#" * (2 * 2**20 + 1), "larger than"),
    ],
)
def test_broken_files_are_one_clear_error(tmp_path, name, raw, words):
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(InvalidInput) as fault:
        load_fleet(path)
    assert str(path) in fault.value.path
    assert words in fault.value.problem


def test_a_missing_file(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_fleet(tmp_path / "none.toml")
