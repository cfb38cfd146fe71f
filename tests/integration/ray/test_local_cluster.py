"""The local cluster leaves nothing behind, and does not take the process's SIGTERM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.adapters.ray.local_cluster import LocalCluster
from phalanx.model.errors import InvalidInput

SCRIPT = """
import os, signal, sys
from pathlib import Path
from phalanx.adapters.ray.local_cluster import LocalCluster
from phalanx.model.errors import NotFound
from phalanx.model.host import Host
from phalanx.model.topology import TopologyPath

mine = lambda *_: None
signal.signal(signal.SIGTERM, mine)
before = dict(os.environ)
host = Host(id="h", path=TopologyPath(site="s"), cpu_milli=2000, memory_mib=1024)
cluster = LocalCluster([host], folder=Path(sys.argv[1]))
try:
    cluster.kill_host("nowhere")
except NotFound as fault:
    print(fault)
print(bool(cluster.address), signal.getsignal(signal.SIGTERM) is mine)
print(sorted(key for key in os.environ if key not in before))
cluster.stop()
"""


@pytest.mark.ray
def test_nothing_is_left(tmp_path: Path) -> None:
    folder = Path("/tmp", f"phx-{tmp_path.name[-12:]}-{tmp_path.stat().st_ino}")  # sockets need a short path
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    missing, up, added = done.stdout.splitlines()
    assert missing == "the cluster has no host nowhere; it has h"
    assert up == "True True"
    assert "RAY_TMPDIR" not in added
    assert not folder.exists()
    commands = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    assert not [command for command in commands if str(folder).encode() in command]


def test_a_cluster_without_hosts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one host"):
        LocalCluster([])
