"""Data sets written straight to object stores: the bytes of a folder, resumed without sending twice, told when not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.dataplane import ShardCache, ShardDataset, ShardWriter, store_folder
from phalanx.dataplane.errors import DatasetError, OfflineError, UnfinishedDataset
from phalanx.dataplane.look import verify
from phalanx.dataplane.offline import Job, Windowing, make
from phalanx.dataplane.offline.run import work_folder
from phalanx.dataplane.remote import open_dataset_source

from .conftest import FIELDS, MakeDataset, rows
from .object_server import ObjectServer

pytest.importorskip("obstore", reason="obstore is not installed")

ROWS, PER_SHARD = 96, 8


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    made = store_folder.StoreFolder.__init__

    def quick(self: store_folder.StoreFolder, url: str) -> None:
        made(self, url, pause_s=0.001)

    monkeypatch.setattr(store_folder.StoreFolder, "__init__", quick)


def write(address: str, count: int = ROWS, first: int = 0) -> ShardWriter:
    """A writer that was given samples; shards of eight are on their way, nothing is finished."""
    writer = ShardWriter(address, FIELDS, name="set", shard_bytes=PER_SHARD * 84)
    writer.write(rows(np.arange(first, first + count)))
    return writer


def puts(server: ObjectServer) -> int:
    return sum(count for (method, key), count in server.requests.items() if method == "PUT" and "shard-" in key)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_store_gets_the_bytes_of_a_folder(
    object_server: ObjectServer, make_dataset: MakeDataset, tmp_path: Path, scheme: str
) -> None:
    expected = make_dataset("set", count=ROWS, per_shard=PER_SHARD)
    address = f"{scheme}://bucket/new/set"
    assert write(address).close() == expected
    stored = {key.rpartition("/")[2]: value for key, value in object_server.objects.items()}
    assert stored == {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    with ShardDataset(address, ShardCache(tmp_path / "cache", 10**7)) as dataset:
        assert dataset.gather(np.arange(ROWS))["id"].tolist() == list(range(ROWS))


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_what_is_there_with_the_same_checksum_is_not_sent_again(object_server: ObjectServer, scheme: str) -> None:
    address = f"{scheme}://bucket/set"
    dead = write(address, count=5 * PER_SHARD + 1)
    dead.abort()
    with pytest.raises(UnfinishedDataset, match=rf"{address}: unfinished data set"):
        open_dataset_source(address)
    before = {key for key in object_server.objects if "shard-" in key}
    assert before
    sent = puts(object_server)
    manifest = write(address).close()
    assert puts(object_server) - sent == 12 - len(before)
    source, found = open_dataset_source(address)
    assert found == manifest
    assert verify(source, found) == []


def test_shards_of_other_rows_are_replaced_and_more_of_them_removed(object_server: ObjectServer) -> None:
    address = "s3://bucket/set"
    write(address, first=1).abort()
    manifest = write(address, count=3 * PER_SHARD).close()
    assert sorted(object_server.objects) == [
        *("bucket/set/" + name for name in ("manifest.json", *(shard.file for shard in manifest.shards)))
    ]
    source, _ = open_dataset_source(address)
    assert verify(source, manifest) == []


def test_a_busy_store_is_asked_again_and_a_broken_one_told(object_server: ObjectServer) -> None:
    object_server.busy_puts = 3
    assert write("s3://bucket/set").close().rows == ROWS
    writer = write("s3://bucket/other", count=PER_SHARD)
    object_server.busy_puts = 10**6
    with pytest.raises(DatasetError, match=r"s3://bucket/other/shard-000000\.safetensors cannot be written"):
        writer.close()
    object_server.busy_puts = 0
    with pytest.raises(UnfinishedDataset):
        open_dataset_source("s3://bucket/other")
    assert write("s3://bucket/other", count=PER_SHARD).close().rows == PER_SHARD


def test_of_two_writers_the_later_stays(object_server: ObjectServer) -> None:
    first = write("s3://bucket/set", count=1)
    second = write("s3://bucket/set")
    with pytest.raises(DatasetError, match="s3://bucket/set: another writer has begun here; this one stops"):
        first.close()
    manifest = second.close()
    with pytest.raises(DatasetError, match="s3://bucket/set: holds a finished data set"):
        write("s3://bucket/set")
    source, _ = open_dataset_source("s3://bucket/set")
    assert verify(source, manifest) == []


def test_verify_reads_a_store_through(object_server: ObjectServer) -> None:
    write("s3://bucket/set").close()
    source, manifest = open_dataset_source("s3://bucket/set")
    key = "bucket/set/shard-000003.safetensors"
    object_server.objects[key] = object_server.objects[key][:-1] + b"\xff"
    del object_server.objects["bucket/set/shard-000005.safetensors"]
    faults = verify(source, manifest)
    assert [fault[:19] for fault in faults] == ["shard shard-000003.", "shard shard-000005."]
    assert "xxh3_128" in faults[0]
    assert "is missing" in faults[1]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://localhost/set", "cannot be written over HTTP"),
        ("ftp://localhost/set", "written to folders, file://, s3://, gs:// and az://"),
    ],
)
def test_addresses_that_take_no_data_sets(address: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        ShardWriter(address, FIELDS, name="set")


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        (
            "s3://bucket/set",
            {"ray": "local"},
            r"a Ray cluster needs a folder to work in that every host sees \(--work\)",
        ),
        ("set", {"work": "elsewhere"}, "a folder needs no other one to work in"),
        ("ftp://host/set", {}, "give a folder, or an s3://, gs:// or az:// address"),
    ],
)
def test_places_that_a_job_cannot_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OfflineError, match=message):
        make(Job("n", [], Windowing(2)), out, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_finished_address_is_told_before_a_job_begins(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write("s3://bucket/set").close()
    with pytest.raises(OfflineError, match="s3://bucket/set: holds a finished data set"):
        make(Job("n", [], Windowing(2)), "s3://bucket/set/")
    assert work_folder("s3://bucket/set") == work_folder("s3://bucket/set/")
    assert tmp_path in work_folder("s3://bucket/set").parents
