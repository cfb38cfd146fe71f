"""A Ray cluster on this machine whose nodes pretend to be the hosts of a fleet: for trying out and for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...model.errors import InvalidInput, NotFound
from ...model.host import Host
from ...model.ids import HostId
from . import compat

OBJECT_STORE_BYTES = 80 * compat.MIB


class LocalCluster:
    """One node a host, with the host's labels and pretended GPUs, CPU cores and memory. Starts in `__init__`.

    About 2 s and 130 MB a host. `folder` holds Ray's sockets and logs, a fresh one under the system's temporary
    folder by default, and is removed by `stop`. `settings` are further Ray settings for the nodes. Not for two
    clusters in one process at a time.
    """

    def __init__(
        self, hosts: Sequence[Host], *, folder: Path | None = None, settings: dict[str, str] | None = None
    ) -> None:
        if not hosts:
            raise InvalidInput("hosts", "a cluster without hosts", "at least one host")
        self._folder = Path(tempfile.mkdtemp(prefix="phalanx-ray-") if folder is None else folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._nodes: dict[HostId, Any] = {}
        self._environment = {**compat.CLUSTER_SETTINGS, **(settings or {}), "RAY_TMPDIR": str(self._folder)}
        with self._settings():
            from ray.cluster_utils import Cluster

            self._cluster = Cluster(shutdown_at_exit=True)
            try:
                for host in hosts:
                    self.add_host(host)
                self._cluster.wait_for_nodes(timeout=60 + 10 * len(hosts))
            except BaseException:
                self.stop()
                raise
        self.address = str(self._cluster.address)

    def add_host(self, host: Host) -> None:
        """Adds a node for that host; does not wait for it to be seen."""
        with self._settings():
            self._nodes[host.id] = self._cluster.add_node(
                wait=False,
                num_cpus=host.cpu_milli / compat.MILLI,
                num_gpus=len(host.gpus),
                memory=host.memory_mib * compat.MIB,
                labels={"host": host.id, "site": host.path.site},
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                include_log_monitor=False,
                no_monitor=True,
            )

    def kill_host(self, host: HostId) -> None:
        """The host dies at once: its raylet and, through it, its workers. NotFound for a host that is not there."""
        node = self._nodes.pop(host, None)
        if node is None:
            raise NotFound(f"the cluster has no host {host}; it has {', '.join(sorted(self._nodes)) or 'none'}")
        process = node.all_processes["raylet"][0].process
        process.send_signal(signal.SIGKILL)
        # A raylet that nobody waits for stays a zombie, and then its workers never notice that it is gone.
        process.wait()
        if node is not self._cluster.head_node:
            self._cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        """Ends every process of the cluster and removes its folder."""
        with contextlib.suppress(Exception):
            # Ray complains about nodes that have died before; the folder must go all the same.
            self._cluster.shutdown()
        self._nodes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _settings(self) -> Any:
        """Ray's nodes inherit the environment; ours is restored after, and so is the handler of SIGTERM."""
        compat.prepare()
        terminate = signal.getsignal(signal.SIGTERM)
        before = {key: os.environ.get(key) for key in self._environment}
        os.environ.update(self._environment)
        try:
            yield
        finally:
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminate)
