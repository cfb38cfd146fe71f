"""Small data sets whose samples say who they are."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import Field, Manifest, ShardWriter

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
