"""Names that cannot be mistaken, and what the adapter remembers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.adapters.ray.names import Names
from phalanx.adapters.ray.records import Record, Records

NAMES = Names(namespace="phx", site="a")


def test_names_come_back() -> None:
    assert NAMES.attempt_of(NAMES.group("train-1.5_x", 3)) == ("train-1.5_x", 3)
    assert NAMES.runner("j", 3, "h0") == "phx/a/j/3/h0"


@pytest.mark.parametrize("name", ["phx/a-b/j/1", "phx/ab/j/1", "phx/a/j", "phx/a/j/x", "phx/a/j/1/h0", "", "other"])
def test_other_names_are_not_ours(name: str) -> None:
    assert NAMES.attempt_of(name) is None


def test_records_outlive_the_process(tmp_path: Path) -> None:
    records = Records(tmp_path / "a")
    record = Record(job="j", attempt=2, cluster="c1", cards={"h0": (0, 1), "h1": ()}, grace_s=7)
    records.put(record)
    records.put(replace(record, launched=True, unclean={"h0": "64 CPU"}))
    again = Records(tmp_path / "a")
    assert again.installation == records.installation
    assert again.all() == (replace(record, launched=True, unclean={"h0": "64 CPU"}),)
    assert again.get(("j", 2)).hosts == ("h0", "h1")
    again.drop(("j", 2))
    again.drop(("j", 2))
    assert Records(tmp_path / "a").all() == ()


def test_two_installations_have_two_names(tmp_path: Path) -> None:
    assert Records(tmp_path / "a").installation != Records(tmp_path / "b").installation
