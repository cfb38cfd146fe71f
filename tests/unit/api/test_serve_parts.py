"""What `serve` checks before it starts anything, and which processes it would start."""

import io
import socket
import threading
from dataclasses import replace

import pytest

from phalanx.adapters.store.sql import open_store
from phalanx.api import wiring
from phalanx.api.serve import load_into, serve
from phalanx.api.settings import RayAddress, Settings
from phalanx.api.supervisor import always
from phalanx.model.errors import InvalidInput

FLEET = """
[[sites]]
id = "north"
[[sites.hosts]]
name = "n1"
cpu = 8
memory = "8GiB"
"""


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def service(tmp_path, free_port):
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET)
    data = tmp_path / "data"
    return Settings(
        data_dir=data, store_url=f"sqlite:///{data / 'phalanx.db'}", port=free_port, fleet_file=fleet, executor="fake"
    )


def run(settings):
    """`serve` told to stop before it began: everything but the processes happens."""
    stop = threading.Event()
    stop.set()
    out = io.StringIO()
    return serve(settings, out=out, stop=stop), out.getvalue()


def names(specs):
    return [spec.name for spec in specs]


def test_the_fleet_file_goes_into_the_store(service):
    code, out = run(service)
    assert (code, out) == (0, "Stopping ...\nStopped.\n")
    store = open_store(service.store_url)
    assert [host.id for host in store.hosts()] == ["n1"]
    assert [team.id for team in store.snapshot(0).teams] == ["default"]
    store.close()


def test_the_fleet_is_kept_without_the_file(service):
    run(service)
    assert run(replace(service, fleet_file=None))[0] == 0


def test_without_any_fleet_it_says_so(service):
    with pytest.raises(InvalidInput, match="--fleet"):
        run(replace(service, fleet_file=None))


def test_a_fleet_without_hosts(service, store):
    service.fleet_file.write_text('[[sites]]\nid = "north"\n')
    with pytest.raises(InvalidInput, match="no hosts"):
        load_into(store, service)


def test_a_port_in_use_is_named(service):
    with socket.socket() as other:
        other.bind(("127.0.0.1", service.port))
        other.listen()
        with pytest.raises(InvalidInput, match=f"127.0.0.1:{service.port}"):
            run(service)


def test_a_folder_in_use_is_named(service):
    import fcntl

    service.data_dir.mkdir()
    with (service.data_dir / "serve.lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write('{"pid": 42, "url": "http://127.0.0.1:1"}')
        file.flush()
        with pytest.raises(InvalidInput, match=r"service at http://127.0.0.1:1 \(process 42\)"):
            run(service)


def test_the_processes_of_each_arrangement(service):
    fake = wiring.child_specs(service, ["north", "south"])
    assert names(fake) == ["api", "loop", "adapter:north", "adapter:south", "agents"]
    local = wiring.child_specs(replace(service, executor="ray"), ["north"])
    assert names(local) == ["cluster", "api", "loop", "adapter:north", "agents"]
    adapter = local[3]
    assert (adapter.needs, adapter.ready()) == ("cluster", False)
    service.data_dir.mkdir()
    (service.data_dir / wiring.RAY_ADDRESS).write_text("127.0.0.1:6379\n")
    assert adapter.ready()
    assert wiring.ray_address(service, "north") == "127.0.0.1:6379"
    remote = replace(service, executor="ray", ray=(RayAddress(site="north", address="10.0.0.1:6379"),))
    given = wiring.child_specs(remote, ["north"])
    assert names(given) == ["api", "loop", "adapter:north"]
    assert given[2].ready is always
    assert wiring.ray_address(remote, "north") == "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("sites", "words"), [(["north", "south"], "no address for site south"), (["south"], "no such site")]
)
def test_ray_addresses_must_match_the_sites(service, sites, words):
    remote = replace(service, executor="ray", ray=(RayAddress(site="north", address="x:1"),))
    with pytest.raises(InvalidInput, match=words):
        wiring.child_specs(remote, sites)


def test_no_cluster_no_address(service):
    with pytest.raises(InvalidInput, match="no local cluster"):
        wiring.ray_address(service, "north")


def test_what_a_killed_cluster_leaves_is_removed(service):
    folder = wiring.cluster_folder(service)
    folder.mkdir()
    (folder / "socket").touch()
    service.data_dir.mkdir()
    (service.data_dir / wiring.RAY_ADDRESS).touch()
    wiring.clear_cluster(service)
    assert not folder.exists()
    assert not (service.data_dir / wiring.RAY_ADDRESS).exists()
    assert len(str(folder)) < 40


def test_the_fake_executor_has_the_sites_hosts(settings, store, clock):
    fake = replace(settings, executor="fake")
    seen = wiring.executor_for(fake, "north", store, clock).observe()
    assert [host.host for host in seen.hosts] == ["n1", "n2"]
