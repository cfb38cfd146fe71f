"""Data sets written straight to a real S3 server, by `ShardWriter` and by `phalanx shard make`, killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from phalanx.api.cli.root import run
from phalanx.dataplane import (
    Field,
    Loader,
    Manifest,
    ObjectSource,
    ShardCache,
    ShardDataset,
    ShardWriter,
    read_manifest,
)
from phalanx.dataplane.errors import DatasetError, UnfinishedDataset
from phalanx.dataplane.look import verify
from phalanx.dataplane.offline import assemble
from phalanx.dataplane.remote import open_dataset_source
from tests.unit.dataplane.conftest import FIELDS, rows

pytest.importorskip("obstore", reason="obstore is not installed")

ROWS = 48
WAVE = (400, 400)  # 320 kB a sample, so that a shard of 20 goes up in parts
BIG = (Field("wave", "int16", WAVE),)

ENDLESS = """
import sys, time
import numpy as np
from phalanx.dataplane import Field, ShardWriter
with ShardWriter(sys.argv[1], [Field("wave", "int16", (400, 400))], name="set", shard_bytes=20 * 320_000) as writer:
    for number in range(100):
        writer.write({"wave": np.full((1, 400, 400), number, np.int16)})
        time.sleep(0.005)
    time.sleep(60)
"""


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def source_of(address: str) -> ObjectSource:
    """This server refuses ranges that go beyond an object's end, which S3 shortens."""
    return ObjectSource(address, range_bytes=1024)


def test_the_bytes_of_a_folder(bucket: Path, tmp_path: Path) -> None:
    address = f"s3://{bucket.name}/made/set"
    for location in (tmp_path / "set", address):
        with ShardWriter(location, FIELDS, name="set", shard_bytes=8 * 84) as writer:
            writer.write(rows(np.arange(ROWS)))
    assert files(bucket / "made" / "set") == files(tmp_path / "set")
    with (
        ShardDataset(source_of(address), ShardCache(tmp_path / "cache", 10**7)) as stored,
        ShardDataset(tmp_path / "set") as plain,
        Loader(stored, 8) as theirs,
        Loader(plain, 8) as ours,
    ):
        for _ in range(6):
            assert next(theirs)["id"].equal(next(ours)["id"])
    with pytest.raises(DatasetError, match="holds a finished data set"):
        ShardWriter(address, FIELDS, name="set")


def test_killed_while_it_sends_and_resumed(bucket: Path, tmp_path: Path) -> None:
    address, folder = f"s3://{bucket.name}/set", bucket / "set"
    scratch = tmp_path / "scratch"  # what a killed writer leaves behind
    scratch.mkdir()
    writer = subprocess.Popen([sys.executable, "-c", ENDLESS, address], env={**os.environ, "TMPDIR": str(scratch)})
    try:
        deadline = time.monotonic() + 60
        while not (folder / "shard-000001.safetensors").exists():
            assert writer.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait(30)
    time.sleep(0.2)  # what was on its way in the server
    with pytest.raises(UnfinishedDataset):
        open_dataset_source(address)
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("shard-*.safetensors")}
    for location in (address, tmp_path / "set"):
        with ShardWriter(location, BIG, name="set", shard_bytes=20 * 320_000) as again:
            again.write({"wave": np.broadcast_to(np.arange(100, dtype=np.int16)[:, None, None], (100, *WAVE))})
    assert files(folder) == files(tmp_path / "set")
    assert len(before) >= 2
    assert before == {name: (folder / name).stat().st_mtime_ns for name in before}, "nothing was sent twice"


def test_make_goes_on_where_it_was_cut_off(bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(6):
        np.save(raw / f"r{number}.npy", np.arange(300, dtype=np.float32).reshape(3, 100) + number)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    command = ["--from", str(raw), "--window", "20", "--split", "train=0.5,val=0.5", "--shard-size", "4K"]
    command += ["--workers", "1", "--name", "reach"]
    address = f"s3://{bucket.name}/reach"

    class Cut(assemble.StoreTarget):
        def finish(self, manifest: Manifest) -> None:
            if str(self).endswith("val"):
                raise KeyboardInterrupt
            super().finish(manifest)

    with monkeypatch.context() as cut:
        cut.setattr(assemble, "StoreTarget", Cut)
        assert run(["shard", "make", address, *command]) == 130
    train = read_manifest(bucket / "reach" / "train")
    assert not (bucket / "reach" / "val" / "manifest.json").exists()
    assert run(["shard", "make", address, *command]) == 0
    assert run(["shard", "make", str(tmp_path / "plain"), *command]) == 0
    for split in ("train", "val"):
        assert files(bucket / "reach" / split) == files(tmp_path / "plain" / split)
        source = source_of(f"{address}/{split}")
        assert verify(source, open_dataset_source(source)[1]) == []
    assert read_manifest(bucket / "reach" / "train") == train
    told = json.loads((bucket / "reach" / "report.json").read_bytes())
    assert (told["recordings"], told["units_reused"]) == (6, told["units"])
    assert run(["shard", "make", address, *command]) == 2, "it is finished"
