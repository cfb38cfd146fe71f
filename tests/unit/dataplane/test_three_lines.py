"""The move of docs/dataplane.md: a script with torch's DataLoader becomes one with ours by three lines."""

import re
from pathlib import Path
from typing import Any

import torch

from phalanx.dataplane import ShardDataset

from .conftest import MakeDataset

DOCS = Path(__file__).resolve().parents[3] / "docs" / "dataplane.md"
SCRIPT = """
from torch.utils.data import DataLoader
dataset = MyDataset("recordings/")
loader = DataLoader(dataset, batch_size=8)
seen = []
for step, batch in enumerate(loader):
    seen += batch["id"].tolist()
    if step == 11:
        break
"""


class Slow(torch.utils.data.Dataset[Any]):
    """What the script had: the same samples, one by one."""

    def __init__(self, dataset: ShardDataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self._dataset[index]


def test_three_lines_are_enough(make_dataset: MakeDataset, tmp_path: Path) -> None:
    make_dataset(count=96)
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if "# 3" in text]
    new = [line for line in block.splitlines() if re.search(r"# [123]\b", line)]
    assert len(new) == 3
    new = [line.replace("/data/reach/train", str(tmp_path / "set")).replace("256 *", "8 *") for line in new]
    lines = SCRIPT.strip().splitlines()
    with ShardDataset(tmp_path / "set") as dataset:
        before: dict[str, Any] = {"MyDataset": lambda _: Slow(dataset)}
        exec("\n".join(lines), before)
    after: dict[str, Any] = {"world_size": 1}
    exec("\n".join([*new, *lines[3:]]), after)
    after["loader"].close()
    after["dataset"].close()
    assert before["seen"] == list(range(96))
    assert sorted(after["seen"]) == list(range(96))  # an epoch, shuffled
    assert after["seen"] != before["seen"]
