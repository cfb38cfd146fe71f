"""`phalanx shard` and `phalanx cache` as a user calls them."""

import json
from pathlib import Path

import numpy as np
import pytest

from phalanx.api.cli.root import run

from .conftest import MakeDataset


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(4):
        np.save(folder / f"r{number}.npy", np.arange(300, dtype=np.float32).reshape(3, 100) + number)
    return folder


def test_make_inspect_verify_stats(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "reach"
    command = ["shard", "make", str(out), "--from", str(raw), "--window", "20", "--step", "10", "--zscore"]
    assert run([*command, "--split", "train=0.5,val=0.5", "--workers", "1", "--shard-size", "4K"]) == 0
    told = capsys.readouterr()
    assert "reach/train: " in told.out
    assert "4 recordings, 1 units, " in told.out
    assert told.err.startswith("unit 1 of 1: 36 samples")
    assert run(["shard", "inspect", str(out / "train"), "--picture", str(tmp_path / "w.svg"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["fields"] == [{"name": "data", "dtype": "float32", "shape": [3, 20]}]
    assert shown["provenance"]["splits"] == [["train", 0.5], ["val", 0.5]]
    assert (tmp_path / "w.svg").read_text().count("<polyline") % 3 == 0
    assert run(["shard", "inspect", str(out / "train")]) == 0
    assert "3 x 20" in capsys.readouterr().out
    assert run(["shard", "verify", str(out / "train")]) == 0
    assert "shards are whole" in capsys.readouterr().out
    assert run(["shard", "stats", str(out / "train"), "--json"]) == 0
    (field,) = json.loads(capsys.readouterr().out)["fields"]
    assert field["not_finite"] == 0
    assert -1.8 < field["smallest"] < field["mean"] < field["largest"] < 1.8


def test_a_split_into_which_nothing_fell_is_told(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "reach"
    command = ["shard", "make", str(out), "--from", str(raw), "--window", "20", "--workers", "1"]
    assert run([*command, "--split", "train=0.999999,val=0.000001"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{out}/train: 20 samples")
    assert told[1] == f"{out}/val: nothing fell into this split"


def test_verify_names_what_is_wrong(
    make_dataset: MakeDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_dataset(count=40)
    (tmp_path / "set" / "shard-000001.safetensors").unlink()
    bad = tmp_path / "set" / "shard-000003.safetensors"
    bad.write_bytes(bad.read_bytes()[:-1] + b"\xff")
    assert run(["shard", "verify", str(tmp_path / "set"), "--json"]) == 1
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [fault[:18] for fault in faults] == ["shard shard-000001", "shard shard-000003"]
    assert run(["shard", "verify", str(tmp_path / "set")]) == 1
    assert "3 of 5 shards are whole" in capsys.readouterr().out


def test_stats_are_those_of_numpy(
    make_dataset: MakeDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_dataset(count=100)
    assert run(["shard", "stats", str(tmp_path / "set"), "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["fields"]}
    assert found["id"]["values"] == 100
    assert found["id"]["mean"] == pytest.approx(49.5)
    assert found["id"]["deviation"] == pytest.approx(np.arange(100).std())
    assert run(["shard", "stats", str(tmp_path / "set")]) == 0
    assert "wave" in capsys.readouterr().out


def test_prefetch_fills_the_cache_as_far_as_it_goes(
    make_dataset: MakeDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = make_dataset(count=96, per_shard=8)
    size = manifest.shards[0].size_bytes
    options = ["--cache", str(tmp_path / "cache")]
    assert run(["cache", "prefetch", str(tmp_path / "set"), *options, "--budget", str(5 * size)]) == 0
    assert "5 of 12 shards of set are here" in (told := capsys.readouterr().out)
    assert "7 shards did not fit" in told
    assert run(["cache", "prefetch", str(tmp_path / "set"), *options, "--budget", "1M", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"shards": 12, "bytes": 12 * size, "left_out": 0}
    assert run(["cache", "list", *options, "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["datasets"]
    assert (entry["dataset"], entry["shards_cached"], entry["shards_total"]) == ("set", 12, 12)
    assert run(["cache", "list", *options]) == 0
    assert "12 of 12" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shard", "make", "out", "--from", "raw"], "either --clean MODULE:FUNCTION or --window N"),
        (["shard", "make", "out", "--from", "none", "--window", "3"], "no such file or folder"),
        (["shard", "make", "out", "--from", "raw", "--window", "3", "--split", "a=2"], "add up to 1"),
        (["shard", "make", "out", "--from", "raw", "--clean", "a:b", "--param", "x"], "write NAME=VALUE"),
        (["shard", "make", "out", "--from", "raw", "--window", "3", "--shard-size", "many"], "is no size"),
        (["shard", "inspect", "raw"], "no data set here"),
        (["shard", "stats", "nothing"], "no data set here"),
        (["cache", "prefetch", "raw", "--cache", "c", "--budget", "1"], "no data set here"),
        (["shard", "verify", "s3x://b"], "no local folder"),
    ],
)
def test_wrong_input_is_one_sentence(
    raw: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert message in told
    assert "Traceback" not in told
