"""Orders carried out by the dataplane: the cache of a host filled with what is missing, within the order."""

from dataclasses import replace

import numpy as np
import pytest

from phalanx.api.inventory import cache_inventory
from phalanx.api.prefill import CacheFiller
from phalanx.dataplane import Field, ShardWriter
from phalanx.model.decision import Prefetch
from phalanx.model.job import DatasetRef

SHARDS = 6


@pytest.fixture
def manifest(tmp_path):
    """Six shards of 64 KiB at tmp_path/sets/eeg."""
    fields = (Field("wave", "int16", (512,)),)
    with ShardWriter(tmp_path / "sets" / "eeg", fields, name="eeg", shard_bytes=65_536) as writer:
        writer.write(
            {
                "wave": np.arange(64 * SHARDS * 512).astype(np.int16).reshape(-1, 512)
                + np.arange(64 * SHARDS, dtype=np.int16)[:, None]
            }
        )
        return writer.close()


@pytest.fixture
def filler(tmp_path):
    return CacheFiller(cache=tmp_path / "cache", datasets=str(tmp_path / "sets"), budget=2**24)


def order(manifest, mib=60, **more):
    dataset = DatasetRef(name="eeg", digest=manifest.digest, size_mib=60, shards=SHARDS)
    return Prefetch(host="n1", dataset=replace(dataset, **more), job="big", start_s=9, mib=mib, mbps=8_000)


def there(tmp_path):
    return sum(entry.shards for entry in cache_inventory(tmp_path / "cache"))


def never():
    return False


def test_it_loads_what_is_missing_and_nothing_twice(tmp_path, manifest, filler):
    assert len(manifest.shards) == SHARDS
    assert filler(order(manifest, mib=20), never) == ""
    assert there(tmp_path) == 2, "a third of the data set was ordered"
    first = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache" / "objects").iterdir()}
    assert filler(order(manifest, mib=40), never) == ""
    assert there(tmp_path) == SHARDS
    assert {path: path.stat().st_mtime_ns for path in first} == first
    for path in (tmp_path / "sets" / "eeg").glob("*.safetensors"):
        path.unlink()
    assert filler(order(manifest), never) == "", "nothing is read again"


def test_it_ends_between_shards_when_the_order_no_longer_stands(tmp_path, manifest, filler):
    assert replace(filler, threads=1)(order(manifest), lambda: there(tmp_path) >= 2) == ""
    assert 2 <= there(tmp_path) < SHARDS


def test_it_keeps_to_the_bandwidth(tmp_path, manifest, filler):
    naps = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phalanx.dataplane.bandwidth.time.sleep", naps.append)
        assert replace(filler, bandwidth=100_000, threads=1)(order(manifest), never) == ""
    assert sum(naps) >= SHARDS * 65_536 / 100_000


@pytest.mark.parametrize(
    ("change", "asked", "words"),
    [
        ({"datasets": None}, {}, "without --datasets"),
        ({"budget": None}, {}, "without --budget"),
        ({}, {"name": "../eeg"}, "no place below"),
        ({}, {"name": "s3://elsewhere/eeg"}, "no place below"),
        ({}, {"name": "meg"}, "no data set"),
        ({}, {"digest": "another"}, "has the digest"),
        ({"budget": 1_000}, {}, "cannot hold even one shard"),
        ({"budget": 200_000}, {}, "did not fit"),
    ],
)
def test_what_keeps_it_from_loading_is_said(manifest, filler, change, asked, words):
    assert words in replace(filler, **change)(order(manifest, **asked), never)
