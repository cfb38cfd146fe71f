"""The loop of docs/dataplane.md: preempted at any step and resumed, it ends in the same weights."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from .conftest import MakeDataset

ROOT = Path(__file__).resolve().parents[3]


def loop() -> Any:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "dataplane.md").read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "def train(" in block]
    values: dict[str, Any] = {}
    exec(code, values)
    return values


def loss_of(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return ((model(batch["target"][:, :1] / 100) - batch["id"][:, None] / 50) ** 2).mean()


def test_the_loop_survives_preemption(
    make_dataset: MakeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(count=100)
    values = loop()
    calls = [0]

    def agree(_: object = None) -> bool:
        calls[0] += 1
        return calls[0] % 5 == 0 and calls[0] < 20  # asked to stop three times

    values["stop_requested"] = lambda: False

    def run(folder: Path) -> tuple[int, torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        done = values["train"](tmp_path / "set", folder, model, optimizer, loss_of, 17, 10)
        return done, model.weight.detach().clone()

    values["agree_to_stop"] = lambda: False
    whole = run(tmp_path / "whole")
    values["agree_to_stop"] = agree
    ends = []
    while not ends or ends[-1][0] < 17:
        ends.append(run(tmp_path / "stopped"))
    assert [done for done, _ in ends] == [5, 10, 15, 17]
    assert whole[0] == 17
    assert torch.equal(whole[1], ends[-1][1])


def test_the_cleaning_of_the_docs_and_of_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from phalanx.dataplane.offline import Drop, Recording

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "dataplane.md").read_text(), re.DOTALL)
    values: dict[str, Any] = {}
    exec(next(block for block in blocks if "def clean(" in block), values)
    data = np.random.default_rng(0).normal(size=(3, 600))
    (made,) = values["clean"](Recording("a", {"data": data}))
    assert made["data"].shape == (8, 3, 128)
    assert list(values["clean"](Recording("a", {"data": data[:, :5]}))) == [Drop("too short")]
    pytest.importorskip("scipy", reason="scipy is not installed")
    monkeypatch.syspath_prepend(ROOT / "examples")
    import clean_recordings

    long = np.random.default_rng(0).normal(size=(3, 6016))
    long[1, 3000] = 1e4
    dropped, kept = clean_recordings.clean(Recording("a", {"data": long}))
    assert dropped.samples == 2, "the windows in which the artefact lies"
    assert len(kept["data"]) == len(kept["start"]) == 93 - dropped.samples
