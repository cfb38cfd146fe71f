"""kill -9 while the first batches come from a store by ranged reads, before any shard is whole (D1, D28)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import Loader, Manifest, ObjectSource, ShardCache, ShardDataset, ShardWriter
from tests.unit.dataplane.conftest import FIELDS, rows
from tests.unit.dataplane.object_server import ObjectServer

pytest.importorskip("obstore", reason="obstore is not installed")

# The reader's process: early rows need shards of several ranges.
READER = """
import sys
from phalanx.dataplane import Loader, ObjectSource, ShardCache, ShardDataset
source = ObjectSource("s3://bucket/set", range_bytes=1024)
with ShardDataset(source, ShardCache(sys.argv[1], 10**7)) as dataset, Loader(dataset, 16) as loader:
    for batch in loader:
        assert (batch["target"][:, 0] == batch["id"]).all()
"""


@pytest.fixture
def stored(object_server: ObjectServer, tmp_path: Path) -> Manifest:
    """Twelve shards of 64 samples at s3://bucket/set."""
    with ShardWriter(tmp_path / "set", FIELDS, name="set", shard_bytes=64 * 84) as writer:
        writer.write(rows(np.arange(12 * 64)))
        manifest = writer.close()
    for path in (tmp_path / "set").iterdir():
        object_server.objects[f"bucket/set/{path.name}"] = path.read_bytes()
    return manifest


def test_a_reader_killed_at_its_first_reads_leaves_a_cache_that_the_next_one_uses(
    stored: Manifest, object_server: ObjectServer, tmp_path: Path
) -> None:
    object_server.pause_s = 0.03
    cache = tmp_path / "cache"
    for reads in (1, 10, 40):  # of rows first, then of whole shards as well
        object_server.requests.clear()
        process = subprocess.Popen([sys.executable, "-c", READER, str(cache)], env=os.environ)
        deadline = time.monotonic() + 120
        while object_server.gets(".safetensors") < reads:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    object_server.pause_s = 0.0
    source = ObjectSource("s3://bucket/set", range_bytes=1024)
    with ShardDataset(source, ShardCache(cache, 10**7)) as dataset:
        with Loader(dataset, 16, shuffle=False, tail="drop") as loader:
            seen = [int(each) for batch in loader for each in batch["id"]]
        assert seen == list(range(12 * 64))
        assert dataset.gather(np.arange(12 * 64))["id"].tolist() == seen
    assert list((cache / "objects").glob("*.part")) == []
    assert len(list((cache / "objects").glob("*.shard"))) == len(stored.shards)
