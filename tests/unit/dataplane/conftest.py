"""Small data sets whose samples say who they are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import Field, Manifest, ShardWriter

from .object_server import ObjectServer

FIELDS = (Field("id", "int64", ()), Field("wave", "int16", (4, 8)), Field("target", "float32", (3,)))

MakeDataset = Callable[..., Manifest]


def rows(ids: np.ndarray) -> dict[str, np.ndarray]:
    """The samples with these ids: every value follows from the id."""
    return {
        "id": ids.astype(np.int64),
        "wave": np.broadcast_to(ids.astype(np.int16)[:, None, None], (len(ids), 4, 8)).copy(),
        "target": np.stack([ids, -ids, ids * 0.5], axis=1).astype(np.float32),
    }


@pytest.fixture
def make_dataset(tmp_path: Path) -> MakeDataset:
    """Writes `count` samples of 84 bytes from id `first` on, `per_shard` in a shard, to tmp_path/name."""

    def make(name: str = "set", count: int = 100, per_shard: int = 8, first: int = 0) -> Manifest:
        with ShardWriter(tmp_path / name, FIELDS, name=name, shard_bytes=per_shard * 84) as writer:
            writer.write(rows(np.arange(first, first + count)))
            return writer.close()

    return make


@pytest.fixture
def object_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server to which s3://, gs:// and az:// addresses lead."""
    server = ObjectServer()
    settings = {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "GOOGLE_BASE_URL": server.url,
        "GOOGLE_BEARER_TOKEN": "test",
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": server.url,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


@pytest.fixture
def stored_dataset(make_dataset: MakeDataset, object_server: ObjectServer, tmp_path: Path) -> Manifest:
    """A data set of 96 samples at s3://bucket/set, and in tmp_path/set."""
    manifest = make_dataset("set", count=96, per_shard=8)
    for path in (tmp_path / "set").iterdir():
        object_server.objects[f"bucket/set/{path.name}"] = path.read_bytes()
    return manifest
