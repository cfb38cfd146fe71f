"""Which real parts the service is made of: store, executors, and the list of processes."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from ..adapters.ports import Clock, Store
from ..model.errors import InvalidInput
from ..model.ids import SiteId
from .settings import Settings
from .supervisor import ChildSpec

if TYPE_CHECKING:
    from ..adapters.ray.process import SiteExecutor

RAY_ADDRESS = "ray-address"
"""The file in the data folder that holds the local cluster's address while it is up."""

NAMESPACE = "phalanx"
FAKE_RUN_S = 3


def open_the_store(settings: Settings) -> Store:
    """The store of the settings, its schema up to date."""
    from ..adapters.store.sql import open_store

    return open_store(settings.store_url, settings.policy)


def instance(settings: Settings) -> str:
    """Tells the processes of this data folder's service from those of others on this machine."""
    return hashlib.sha256(str(settings.data_dir.resolve()).encode()).hexdigest()[:16]


def cluster_folder(settings: Settings) -> Path:
    """Where the local cluster keeps its sockets and logs: a short path, for a socket's may have 107 characters."""
    return Path(tempfile.gettempdir()) / f"phalanx-ray-{instance(settings)[:8]}"


def clear_cluster(settings: Settings) -> None:
    """Removes what a local cluster leaves behind when it was killed."""
    (settings.data_dir / RAY_ADDRESS).unlink(missing_ok=True)
    shutil.rmtree(cluster_folder(settings), ignore_errors=True)


def child_specs(settings: Settings, sites: Sequence[SiteId]) -> list[ChildSpec]:
    """Every process of the service; adapters wait until their Ray cluster is there."""
    address_file = settings.data_dir / RAY_ADDRESS
    given = {entry.site for entry in settings.ray}
    for site in given:
        if site not in sites:
            raise InvalidInput(f"ray.{site}", "the fleet has no such site", f"one of {', '.join(sites)}")
    missing = [site for site in sites if site not in given]
    if given and missing:
        raise InvalidInput("ray", f"no address for site {', '.join(missing)}", "an address for every site, or none")
    local = settings.executor == "ray" and not given
    specs = [_spec("api"), _spec("loop")]
    if local:
        specs.insert(0, _spec("cluster", grace_s=30.0, clean_up=lambda: clear_cluster(settings)))
        specs += [_spec("adapter", site, ready=address_file.is_file, needs="cluster") for site in sites]
    else:
        specs += [_spec("adapter", site) for site in sites]
    if settings.agents and not given:
        specs.append(_spec("agents", ready=lambda: answers(settings)))
    return specs


def _spec(kind: str, name: str = "", **more: Any) -> ChildSpec:
    argv = (sys.executable, "-m", "phalanx.api.worker", kind, *([name] if name else []))
    return ChildSpec(name=f"{kind}:{name}" if name else kind, argv=argv, **more)


def executor_for(settings: Settings, site: SiteId, store: Store, clock: Clock) -> SiteExecutor:
    """The executor of one site: Ray at its address, or timers."""
    if settings.executor == "fake":
        from ..adapters.fakes.executor import FakeExecutor, Script

        hosts = [host for host in store.hosts() if host.path.site == site]
        return FakeExecutor(clock, hosts, lambda intent: Script(run_s=FAKE_RUN_S))
    from ..adapters.gpu import NvmlLibrary
    from ..adapters.ray.executor import RayExecutor
    from ..adapters.ray.names import Names
    from ..adapters.ray.specs import Folders

    data = settings.data_dir
    return RayExecutor(
        ray_address(settings, site),
        Names(namespace=NAMESPACE, site=site),
        folders=Folders(
            logs=str(settings.log_dir), checkpoints=str(data / "checkpoints"), cache=str(cache_dir(settings, "{host}"))
        ),
        state=data / "adapters" / site,
        clock=clock,
        # The cards of a local cluster are pretended: there is nothing to ask about them.
        gpus=NvmlLibrary if settings.ray else None,
    )


def answers(settings: Settings) -> bool:
    """Whether the API of this service answers."""
    try:
        return httpx.get(f"{settings.url}/healthz", timeout=1.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def ray_address(settings: Settings, site: SiteId) -> str:
    """The address of the site's Ray cluster. Raises InvalidInput while the local one is not up."""
    for entry in settings.ray:
        if entry.site == site:
            return entry.address
    path = settings.data_dir / RAY_ADDRESS
    try:
        return path.read_text().strip()
    except OSError:
        raise InvalidInput("ray", f"no local cluster is up ({path} is missing)", "phalanx serve to start it") from None


def cache_dir(settings: Settings, host: str) -> Path:
    """The shard cache of a host that this machine plays."""
    return settings.data_dir / "cache" / host
