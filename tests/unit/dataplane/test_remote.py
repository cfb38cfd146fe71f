"""Object stores: S3 and HTTP against a server of our own, well and ill behaved."""

import multiprocessing
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import Loader, Manifest, ObjectSource, ShardCache, ShardDataset, prefetch
from phalanx.dataplane.errors import CacheError, CorruptShard, DatasetError
from phalanx.dataplane.remote import Bandwidth, open_dataset_source

from .object_server import ObjectServer

pytest.importorskip("obstore", reason="obstore is not installed")


def source(**options: object) -> ObjectSource:
    return ObjectSource("s3://bucket/set", **{"pause_s": 0.01, "timeout_s": 5.0, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_the_same_samples_as_from_the_folder(
    stored_dataset: Manifest, object_server: ObjectServer, tmp_path: Path, scheme: str
) -> None:
    address = "s3://bucket/set" if scheme == "s3" else f"{object_server.url}/bucket/set/manifest.json"
    ids = np.random.default_rng(0).permutation(96)
    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(tmp_path / "set") as plain, ShardDataset(address, cache) as remote:
        assert remote.manifest == plain.manifest
        here, there = plain.gather(ids), remote.gather(ids)
        assert all(np.array_equal(here[name], there[name]) for name in here)
    with ShardDataset(address, cache) as again:
        again.gather(ids)
    assert object_server.gets(".safetensors") == 12


def test_the_loader_reads_from_the_store(stored_dataset: Manifest, tmp_path: Path) -> None:
    with (
        ShardDataset("s3://bucket/set", ShardCache(tmp_path / "cache", 10**6)) as dataset,
        Loader(dataset, 16, tail="drop") as loader,
    ):
        assert sorted(sample for batch in loader for sample in batch["id"].tolist()) == list(range(96))


def test_large_files_come_in_ranges_several_at_once(object_server: ObjectServer) -> None:
    body = np.random.default_rng(0).bytes(1_000_003)
    object_server.objects["bucket/set/big"] = body
    object_server.pause_s = 0.05
    pieces = list(map(bytes, source(range_bytes=100_000, at_once=4).stream("big")))
    assert b"".join(pieces) == body
    assert object_server.requests["GET", "bucket/set/big"] == 11
    assert 2 <= object_server.most_at_once <= 4


@pytest.mark.parametrize("kind", ["cut", "error", "slow"])
def test_a_request_that_fails_is_tried_again(object_server: ObjectServer, kind: str) -> None:
    body = bytes(range(256)) * 2000
    object_server.objects["bucket/set/big"] = body
    failures = [3]

    def fail_sometimes(_key: str, body: bytes) -> bytes | int | None:
        if failures[0] and len(body) > 1:
            failures[0] -= 1
            if kind == "slow":
                time.sleep(1.0)
                return body
            return 503 if kind == "error" else None
        return body

    object_server.misdeed = fail_sometimes
    made = source(range_bytes=60_000, timeout_s=0.5 if kind == "slow" else 5.0)
    assert b"".join(map(bytes, made.stream("big"))) == body
    assert failures == [0]


def test_a_store_that_stays_down_is_an_error_with_shard_store_and_cause(
    stored_dataset: Manifest, object_server: ObjectServer, tmp_path: Path
) -> None:
    dataset = ShardDataset(source(retries=1), ShardCache(tmp_path / "cache", 10**6, attempts=2))
    object_server.misdeed = lambda key, body: 503
    with pytest.raises(CacheError, match=r"shard shard-000001\.safetensors from s3://bucket/set: .*503.*2 tries.*host"):
        dataset.gather([9])
    object_server.close()
    with pytest.raises(CacheError, match=r"shard shard-000001\.safetensors from s3://bucket/set: broke off"):
        dataset.gather([9])
    object_server.__init__()  # type: ignore[misc]  # so that the fixture has something to close
    assert list((tmp_path / "cache" / "objects").iterdir()) == []


def test_a_lying_store_is_found_out(stored_dataset: Manifest, object_server: ObjectServer, tmp_path: Path) -> None:
    object_server.misdeed = lambda key, body: body if key.endswith("json") else bytes(len(body))
    dataset = ShardDataset(source(), ShardCache(tmp_path / "cache", 10**6, attempts=2))
    with pytest.raises(CorruptShard, match=r"shard-000000\.safetensors from s3://bucket/set: its bytes have"):
        dataset.gather([0])
    lies = [1]

    def once(key: str, body: bytes) -> bytes:
        return bytes(len(body)) if lies and lies.pop() else body

    object_server.misdeed = once
    assert dataset.gather([0])["id"].tolist() == [0]


def test_what_is_missing_or_refused_is_told_at_once(
    stored_dataset: Manifest, object_server: ObjectServer, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match="s3://bucket/none: no data set here"):
        ShardDataset("s3://bucket/none", ShardCache(tmp_path / "cache", 10**6))
    del object_server.objects["bucket/set/shard-000002.safetensors"]
    dataset = ShardDataset(source(), ShardCache(tmp_path / "cache", 10**6))
    with pytest.raises(CacheError, match=r"shard-000002\.safetensors is missing in s3://bucket/set"):
        dataset.gather([16])
    object_server.misdeed = lambda key, body: 403
    with pytest.raises(CacheError, match=r"shard-000003\.safetensors may not be read"):
        dataset.gather([24])
    with pytest.raises(DatasetError, match=r"manifest\.json cannot be read.*refused"):
        open_dataset_source("s3://bucket/set")
    assert object_server.gets("shard-000003.safetensors") == 1


def test_a_cache_is_asked_for(stored_dataset: Manifest) -> None:
    with pytest.raises(CacheError, match="read through a cache"):
        ShardDataset("s3://bucket/set")


def test_a_manifest_from_the_future(stored_dataset: Manifest, object_server: ObjectServer, tmp_path: Path) -> None:
    body = object_server.objects["bucket/set/manifest.json"]
    object_server.objects["bucket/set/manifest.json"] = body.replace(b'"version": 1', b'"version": 9')
    with pytest.raises(DatasetError, match="version 9; this version reads 'phalanx-shards' version 1"):
        ShardDataset("s3://bucket/set", ShardCache(tmp_path / "cache", 10**6))


def test_bandwidth_is_shared_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("phalanx.dataplane.remote.time.sleep", slept.append)
    monkeypatch.setattr("phalanx.dataplane.remote.time.monotonic", lambda: 100.0)
    limit = Bandwidth(1000)
    for _ in range(3):
        limit.take(500)
    Bandwidth(None).take(10**12)
    assert slept == [0.5, 1.0, 1.5]


def test_a_limited_source_still_gives_all(object_server: ObjectServer) -> None:
    object_server.objects["bucket/set/big"] = bytes(50_000)
    made = source(range_bytes=10_000, bytes_per_s=500_000)
    begun = time.monotonic()
    assert sum(map(len, made.stream("big"))) == 50_000
    assert time.monotonic() - begun >= 0.08  # 50,000 bytes at 500,000 a second, less the first


def test_prefetch_from_a_store(stored_dataset: Manifest, object_server: ObjectServer, tmp_path: Path) -> None:
    cache = ShardCache(tmp_path / "cache", 10**6)
    seen: list[tuple[int, int]] = []
    got = prefetch(stored_dataset, source(), cache, threads=3, progress=lambda *at: seen.append(at))
    assert (got.shards, got.left_out, seen[-1]) == (12, 0, (12, 12))
    before = object_server.gets(".safetensors")
    assert prefetch(stored_dataset, source(), cache, shards=[3, 4]).shards == 2
    assert object_server.gets(".safetensors") == before == 12


def _read_in_child(made: ObjectSource, answer: "multiprocessing.SimpleQueue[str]") -> None:
    try:
        answer.put(str(len(made.read("manifest.json"))))
    except DatasetError as error:
        answer.put(str(error))


def test_a_forked_child_is_told_instead_of_hanging_and_a_spawned_one_reads(
    stored_dataset: Manifest, object_server: ObjectServer
) -> None:
    made = source()
    size = len(made.read("manifest.json"))
    for method, expected in (("fork", "forked from one"), ("spawn", str(size))):
        context = multiprocessing.get_context(method)
        answer = context.SimpleQueue()
        child = context.Process(target=_read_in_child, args=(made, answer))  # type: ignore[attr-defined]
        child.start()
        assert expected in answer.get()
        child.join(30)
    assert pickle.loads(pickle.dumps(made)).read("manifest.json") == made.read("manifest.json")


def test_addresses_that_cannot_be() -> None:
    with pytest.raises(DatasetError, match="no local folder"):
        open_dataset_source("ftp://x/y")
    with pytest.raises(DatasetError, match="is no address of an object store"):
        ObjectSource("s3://")
    with pytest.raises(DatasetError, match="must be positive"):
        ObjectSource("s3://bucket/x", at_once=0)
