"""The rows of `phalanx-bench dataplane` that are measured for ours alone, in a small form."""

from pathlib import Path

import numpy as np
import pytest

from phalanx.bench.feed import more
from phalanx.dataplane import Field, ShardWriter


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fields = [Field("x", "int16", (64,)), Field("y", "float32", (2,))]
    with ShardWriter(tmp_path / "set", fields, name="set", shard_bytes=16_384) as writer:
        writer.write({"x": np.zeros((1024, 64), np.int16), "y": np.zeros((1024, 2), np.float32)})
    return tmp_path / "set"


def test_a_far_store_delays_the_first_batch(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "")  # put back afterwards
    found = more.distant_store(data, tmp_path, 16)
    assert found["first_batch_s"] > 2 * more.WAIT_S  # the manifest, and shards
    assert found["gb_per_s"] > 0


def test_memory_small_and_variable_samples_and_mixtures(data: Path, tmp_path: Path) -> None:
    assert more.small_samples(tmp_path / "small", 8192)["samples_per_s"] > 0
    assert more.variable_samples(tmp_path / "variable", 512)["gb_per_s"] > 0
    assert more.mixture(data, 8)["share_of_one"] > 0
    grown = more.memory_over_epochs(data)
    assert grown["most_mib"] < grown["first_epoch_mib"] + 8
