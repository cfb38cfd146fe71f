"""The offline job: inputs of all kinds, deterministic bytes, resuming, splits, reports."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.dataplane import ShardDataset, read_manifest
from phalanx.dataplane.errors import OfflineError
from phalanx.dataplane.offline import Job, Recording, Splits, Windowing, find_inputs, make, windows, zscore
from phalanx.dataplane.offline.inputs import from_iterable
from phalanx.dataplane.offline.splits import parse_splits


def recordings(folder: Path, count: int = 6) -> Path:
    folder.mkdir()
    for number in range(count):
        data = np.arange(4 * (50 + 10 * number), dtype=np.int16).reshape(4, -1) + 1000 * number
        np.save(folder / f"r{number}.npy", data)
    return folder


def job(inputs: Any, **changes: Any) -> Job:
    return Job(
        **{"name": "n", "inputs": inputs, "clean": Windowing(20, 10), "shard_bytes": 3000, "unit_bytes": 900, **changes}
    )


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("report.json", ".job.lock")
    }


def test_windows_overlap_and_are_views() -> None:
    data = np.arange(20).reshape(2, 10)
    cut = windows(data, 4, 3)
    assert cut.shape == (3, 2, 4)
    assert cut[1, 1].tolist() == [13, 14, 15, 16]
    assert np.shares_memory(cut, data)
    assert windows(data, 11).shape == (0, 2, 11)
    with pytest.raises(OfflineError, match="at least 1"):
        windows(data, 4, 0)


def test_zscore() -> None:
    scored = zscore(np.array([[1, 2, 3], [5, 5, 5]]))
    assert scored.dtype == np.float32
    assert scored[0].tolist() == pytest.approx([-1.2247449, 0, 1.2247449])
    assert scored[1].tolist() == [0, 0, 0]


def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    inputs = find_inputs([str(recordings(tmp_path / "raw"))])
    one = make(job(inputs), tmp_path / "one")
    make(job(inputs), tmp_path / "two", workers=2)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert one.units > 2
    assert one.manifests[""].rows == sum((50 + 10 * number - 20) // 10 + 1 for number in range(6))
    with ShardDataset(tmp_path / "one") as dataset:
        assert dataset[0]["data"][1].tolist() == list(range(50, 70))
        assert dataset[1]["data"][0].tolist() == list(range(10, 30))
    assert not (tmp_path / "one" / ".parts").exists()


def test_a_failed_job_goes_on_where_it_was(tmp_path: Path) -> None:
    raw = recordings(tmp_path / "raw")
    good = (raw / "r4.npy").read_bytes()
    (raw / "r4.npy").write_bytes(b"x" * len(good))
    inputs = find_inputs([str(raw)])
    with pytest.raises(OfflineError, match=r"recording .*r4\.npy: ValueError"):
        make(job(inputs), tmp_path / "out")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("part.json")}
    assert len(kept) >= 2
    with pytest.raises(OfflineError, match="differs in unit_bytes"):
        make(job(inputs, unit_bytes=10**6), tmp_path / "out")
    (raw / "r4.npy").write_bytes(good)
    inputs = find_inputs([str(raw)])
    report = make(job(inputs), tmp_path / "out", fresh=False)
    assert report.units_reused == len(kept)
    make(job(inputs), tmp_path / "whole")
    assert files(tmp_path / "whole") == files(tmp_path / "out")
    with pytest.raises(OfflineError, match="holds a finished data set"):
        make(job(inputs), tmp_path / "out")


def test_fresh_throws_the_parts_of_another_job_away(tmp_path: Path) -> None:
    inputs = from_iterable([("a", np.zeros((1, 30), np.int16)), ("b", np.zeros((1, 3), np.int16))])
    with pytest.raises(OfflineError, match="function dropped them all"):
        make(job(inputs[1:]), tmp_path / "out")
    assert make(job(inputs), tmp_path / "out", fresh=True).manifests[""].rows == 2


def test_failing_recordings_can_be_dropped(tmp_path: Path) -> None:
    raw = recordings(tmp_path / "raw")
    (raw / "r1.npy").write_bytes(b"no array")
    np.save(raw / "short.npy", np.zeros((4, 5), np.int16))
    report = make(job(find_inputs([str(raw)]), drop_failing=True), tmp_path / "out")
    assert sum(report.dropped.values()) == 2
    assert report.dropped["recording shorter than a window"] == 1
    assert json.loads((tmp_path / "out" / "report.json").read_text())["dropped"] == report.dropped
    assert dict(read_manifest(tmp_path / "out").provenance)["dropped"] == report.dropped


def test_windows_that_are_not_finite_are_dropped(tmp_path: Path) -> None:
    data = np.zeros((2, 100), np.float32)
    data[1, 25] = np.nan
    report = make(job(from_iterable([("a", data)])), tmp_path / "out")
    assert report.dropped == {"value not finite": 2}
    assert report.manifests[""].rows == 7


def test_splits_keep_recordings_whole_and_samples_apart(tmp_path: Path) -> None:
    inputs = from_iterable((f"r{n}", np.full((1, 100), n, np.int16)) for n in range(40))
    shares = (("train", 0.7), ("val", 0.3))
    whole = make(job(inputs, splits=Splits(shares)), tmp_path / "whole")
    seen = {}
    for split in ("train", "val"):
        with ShardDataset(tmp_path / "whole" / split) as dataset:
            seen[split] = set(dataset.gather(range(len(dataset)))["data"].ravel().tolist())
    assert seen["train"].isdisjoint(seen["val"])
    assert seen["train"] | seen["val"] == set(range(40))
    assert sum(m.rows for m in whole.manifests.values()) == 40 * 9
    mixed = make(job(inputs, splits=Splits(shares, by_sample=True)), tmp_path / "mixed")
    assert 0.6 < mixed.manifests["train"].rows / 360 < 0.8
    assert {m.name for m in mixed.manifests.values()} == {"n-train", "n-val"}
    for text, message in (("a=1,b=1", "add up to 1"), ("a", "NAME=SHARE"), ("a b=1", "a name of its own")):
        with pytest.raises(OfflineError, match=message):
            parse_splits(text)


def test_a_recording_falls_into_the_same_split_wherever_its_folder_stands(tmp_path: Path) -> None:
    found = []
    for place in ("here", "elsewhere/deep"):
        raw = tmp_path / place / "raw"
        (raw / "session").mkdir(parents=True)
        for number in range(30):
            np.save(raw / "session" / f"r{number}.npy", np.full((1, 100), number, np.int16))
        shares = (("train", 0.5), ("val", 0.5))
        report = make(job(find_inputs([str(raw)]), splits=Splits(shares)), tmp_path / place / "out")
        found.append({split: (manifest.rows, manifest.digest) for split, manifest in report.manifests.items()})
    assert found[0] == found[1]
    assert sum(rows for rows, _ in found[0].values()) == 30 * 9
    assert len(found[0]) == 2


CLEAN = """
import numpy as np
from phalanx.dataplane.offline import Drop
def clean(recording, least=0):
    data = np.asarray(recording.data)
    yield Drop("first row", 1)
    yield {"row": data[1:], "events": [np.arange(int(n), dtype=np.int16) for n in data[1:, 0]], "label": data[1:, 0] > least}
def give():
    for number in range(5):
        yield f"r{number}", np.full((4, 3), number, np.int32)
def die(recording):
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_users_function_and_iterable_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cleaning_a.py").write_text(CLEAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    inputs = find_inputs(["cleaning_a:give"])
    made = job(inputs, clean="cleaning_a:clean", params={"least": 2}, unit_bytes=100)
    report = make(made, tmp_path / "out", workers=2)
    assert report.dropped == {"first row": 5}
    with ShardDataset(tmp_path / "out") as dataset:
        assert [(f.name, f.dtype, f.variable) for f in dataset.fields] == [
            ("row", "int32", False),
            ("events", "int16", True),
            ("label", "bool", False),
        ]
        assert dataset[14]["events"].tolist() == [0, 1, 2, 3]
        assert [bool(sample["label"]) for sample in dataset] == [False] * 9 + [True] * 6
    with pytest.raises(OfflineError, match="a worker process died"):
        make(job(inputs, clean="cleaning_a:die", unit_bytes=100), tmp_path / "dead", workers=2)
    with pytest.raises(OfflineError, match="cannot be imported"):
        make(job(inputs, clean="cleaning_a:nothing"), tmp_path / "other")


def test_hdf5_and_zarr(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    data = np.arange(200, dtype=np.int16).reshape(2, 100)
    with h5py.File(tmp_path / "a.nwb", "w") as file:
        file["acquisition/ephys/data"] = data
        file["acquisition/rate"] = np.float64(30_000)
    zarr.save_array(str(tmp_path / "b.zarr"), data + 1000)
    group = zarr.open_group(str(tmp_path / "c.zarr"), mode="w")
    group.create_array("deep/data", data=data + 2000)
    for path, key in (("a.nwb", ("acquisition/ephys/data",)), ("b.zarr", ()), ("c.zarr", ("deep/data",))):
        report = make(job(find_inputs([str(tmp_path / path)], keys=key)), tmp_path / f"out-{path}")
        assert report.manifests[""].rows == 9
    with ShardDataset(tmp_path / "out-c.zarr") as dataset:
        assert dataset[0]["data"][1, 0].item() == 2100
    with pytest.raises(OfflineError, match="no array nothing; there is"):
        make(job(find_inputs([str(tmp_path / "a.nwb")], keys=["nothing"])), tmp_path / "out")
    with pytest.raises(OfflineError, match="say which with --key"):
        make(job(find_inputs([str(tmp_path / "a.nwb")])), tmp_path / "out2")


def by_row(recording: Recording) -> Any:
    arrays = recording.arrays
    yield {"x": np.asarray(arrays["x"], np.float32), "blob": [np.frombuffer(b, np.uint8) for b in arrays["blob"]]}


def test_rows_of_a_query(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE trials (id INTEGER, x REAL, blob BLOB)")
        connection.executemany("INSERT INTO trials VALUES (?, ?, ?)", [(n, n / 2, b"z" * (n % 3)) for n in range(9000)])
    connection.close()
    with pytest.raises(OfflineError, match="ORDER BY"):
        find_inputs([f"sqlite:///{path}"], query="SELECT * FROM trials")
    with pytest.raises(OfflineError, match="no such table"):
        find_inputs([f"sqlite:///{path}"], query="SELECT * FROM none_such ORDER BY 1")
    with pytest.raises(OfflineError, match="there is no file"):
        find_inputs(["sqlite:///none.db"], query="SELECT 1 ORDER BY 1")
    inputs = find_inputs([f"sqlite:///{path}"], query="SELECT * FROM trials ORDER BY id;")
    assert len(inputs) == 3
    report = make(job(inputs, clean=f"{__name__}:by_row"), tmp_path / "out")
    assert report.manifests[""].rows == 9000
    with ShardDataset(tmp_path / "out") as dataset:
        assert dataset[8999]["x"].item() == 4499.5
        assert len(dataset[8999]["blob"]) == 8999 % 3


def test_inputs_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    for address, message in (
        (str(tmp_path / "a.txt"), "unknown ending"),
        (str(tmp_path / "b.npy"), "no such file"),
        (str(tmp_path), "no recordings in"),
    ):
        with pytest.raises(OfflineError, match=message):
            find_inputs([address])
    with pytest.raises(OfflineError, match="item 1 of the iterable is a int"):
        from_iterable([("a", np.zeros(3)), 5])
    twice = recordings(tmp_path / "raw", 1) / "r0.npy"
    with pytest.raises(OfflineError, match="two recordings are called"):
        find_inputs([str(twice), str(twice)])


def test_recordings_of_different_fields_are_refused(tmp_path: Path) -> None:
    inputs = from_iterable([("a", np.zeros((1, 30), np.int16)), ("b", np.zeros((2, 30), np.int16))])
    with pytest.raises(OfflineError, match="do not give the same fields"):
        make(job(inputs, unit_bytes=1), tmp_path / "out")
    with pytest.raises(OfflineError, match="recording b"):
        make(job(inputs), tmp_path / "together")


SLOW = """
import time
from phalanx.dataplane.offline import windows
def clean(recording):
    time.sleep(0.15)
    yield {"data": windows(recording.data, 20, 10).copy()}
"""


@pytest.mark.slow
def test_a_job_killed_at_any_moment_ends_in_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "slow_cleaning.py").write_text(SLOW)
    recordings(tmp_path / "raw", 10)
    command = [sys.executable, "-m", "phalanx.api.cli", "shard", "make"]
    options = ["--from", "raw", "--clean", "slow_cleaning:clean", "--unit-size", "400", "--shard-size", "2000"]
    subprocess.run([*command, "whole", *options, "--workers", "1", "--name", "n"], check=True, cwd=tmp_path)
    for turn in range(3):
        process = subprocess.Popen(
            [*command, "killed", *options, "--workers", "2", "--name", "n"], cwd=tmp_path, start_new_session=True
        )
        # A pattern of fixed depth: a walk of the whole tree trips over folders that the job removes meanwhile.
        while not list((tmp_path / "killed" / ".parts").glob("*/part.json"))[turn:] and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.07 * turn)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    told = subprocess.run(
        [*command, "killed", *options, "--workers", "2", "--name", "n", "--json"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert json.loads(told.stdout)["units_reused"] >= 2
    assert files(tmp_path / "whole") == files(tmp_path / "killed")


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "slow_cleaning.py").write_text(SLOW.replace("0.15", "60"))
    recordings(tmp_path / "raw", 4)
    command = [sys.executable, "-m", "phalanx.api.cli", "shard", "make", "out", "--from", "raw", "--workers", "2"]
    process = subprocess.Popen(
        [*command, "--clean", "slow_cleaning:clean", "--unit-size", "400"],
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(list((tmp_path / "out" / ".parts").glob("0*"))) < 2 and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in told
