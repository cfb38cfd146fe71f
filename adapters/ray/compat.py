"""Ray's cluster and groups: what is beta, private or surprising in Ray is wrapped here (and actors in `actors`).

Settings must be in the environment before Ray is imported, hence the late imports and `prepare`.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...model.errors import PhalanxError

SETTINGS: Mapping[str, str] = {
    # Without it Ray warns about accelerators at every actor that asks for no GPU.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}
CLUSTER_SETTINGS: Mapping[str, str] = {
    # Ray shall not place fractions on cards of its own choice: its choice and ours would drift apart, until a whole
    # card that our books show free is to Ray two halves of different cards.
    "RAY_predefined_unit_instance_resources": "",
    "RAY_worker_niceness": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""What every node of a cluster must be started with."""

_log = logging.getLogger(__name__)
MILLI = 1000
MIB = 2**20


class RayFault(PhalanxError):
    """Ray refused or could not be reached; the message says what was asked of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A Ray node that carries our `host` label. `total` is in Ray's units."""

    id: str
    host: str
    site: str
    alive: bool
    address: str
    total: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A placement group. `nodes` are the node ids of its bundles in order, empty texts where a bundle has none."""

    id: str
    name: str
    state: str
    nodes: tuple[str, ...]
    bundles: tuple[Mapping[str, float], ...]


def prepare() -> None:
    """Puts our settings into the environment where they are not set; before the first import of Ray."""
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    # Said explicitly, since a bare connection would turn token authentication on and write a token to the home.
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")


def connect(address: str, namespace: str) -> str:
    """Makes this process a driver of the cluster at `address`. Returns the cluster's identity. Raises RayFault."""
    prepare()
    _check_answers(address)
    import ray

    # Ray prints what it thinks of dead nodes straight to the terminal of every driver.
    ray._private.worker.print_to_stdstream = _note
    # Ray puts a handler of its own in place of the process's, which would end it in the middle of a step.
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as fault:
        raise RayFault(f"no Ray cluster at {address}: {fault}") from fault
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)
    return str(ray._private.worker.global_worker.gcs_client.cluster_id.hex())


def _check_answers(address: str) -> None:
    """Ray itself would try for over a minute, and then end the whole process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RayFault(f"{address!r} is not the address of a Ray cluster; expected host:port, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as fault:
        raise RayFault(f"no Ray cluster answers at {address}: {fault}") from fault


def _note(data: Mapping[str, Any], *_: object, **__: object) -> None:
    for line in data.get("lines", ()):
        _log.info("Ray says: %s", str(line).strip().partition("\n")[0])


def disconnect() -> None:
    """Leaves the cluster; detached actors and groups stay."""
    import ray

    ray.shutdown()


def nodes() -> tuple[Node, ...]:
    """All nodes with a `host` label that the cluster has known, dead ones too."""
    import ray

    return tuple(
        Node(
            id=node["NodeID"],
            host=node["Labels"]["host"],
            site=node["Labels"].get("site", ""),
            alive=node["Alive"],
            address=node["NodeManagerAddress"],
            total=dict(node["Resources"]),
        )
        for node in ray.nodes()
        if "host" in node.get("Labels", {})
    )


def available() -> dict[str, Mapping[str, float]]:
    """What each living node has free, by node id."""
    from ray._private import state

    return dict(state.available_resources_per_node())


def groups() -> tuple[Group, ...]:
    """All placement groups of the cluster that exist, of whatever namespace."""
    from ray.util.placement_group import placement_group_table

    return tuple(
        Group(
            id=row["placement_group_id"],
            name=row["name"],
            state=row["state"],
            nodes=tuple(row["bundles_to_node_id"].get(index) or "" for index in sorted(row["bundles"])),
            bundles=tuple(row["bundles"][index] for index in sorted(row["bundles"])),
        )
        for row in placement_group_table().values()
        if row["state"] != "REMOVED"
    )


def create_group(name: str, bundles: Sequence[Mapping[str, float]], hosts: Sequence[str], wait_s: float) -> bool:
    """Makes a detached group with one bundle on each host; False if it is not up after `wait_s`. Raises RayFault."""
    import ray
    from ray.util.placement_group import get_placement_group, placement_group

    selectors = [{"host": host} for host in hosts]
    try:
        group = placement_group(
            [dict(bundle) for bundle in bundles],
            strategy="PACK",
            bundle_label_selector=selectors,
            name=name,
            lifetime="detached",
        )
    except ray.exceptions.RaySystemError as fault:
        if "already exists" not in str(fault):
            raise RayFault(f"Ray did not make the group {name}: {fault}") from fault
        group = get_placement_group(name)
    except ValueError as fault:
        raise RayFault(f"Ray refused the group {name}: {fault}") from fault
    return bool(group.wait(wait_s))


def remove_group(group: Group) -> None:
    """Removes a group; Ray kills the workers in it."""
    import ray
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group.id))))


def node_address() -> str:
    """The address of this machine as other nodes reach it."""
    import ray

    return str(ray.util.get_node_ip_address())
