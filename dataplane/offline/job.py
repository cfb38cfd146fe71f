"""What the offline job is asked to make, and its report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..manifest import Manifest
from ..writer import DEFAULT_SHARD_BYTES
from .inputs import code_digest, load_function
from .recordings import Input
from .splits import Splits
from .steps import Windowing

UNIT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """What to make. `clean` is MODULE:FUNCTION, called with a Recording and `params`, or the built-in windowing.

    `shard_bytes` is the size that a shard aims at; recordings are cut into units of about `unit_bytes`.
    """

    name: str
    inputs: Sequence[Input]
    clean: str | Windowing
    params: Mapping[str, Any] = field(default_factory=dict)
    splits: Splits = Splits()
    shard_bytes: int = DEFAULT_SHARD_BYTES
    unit_bytes: int = UNIT_BYTES
    drop_failing: bool = False

    def describe(self) -> dict[str, Any]:
        """All that the bytes of the data set depend on, in plain JSON."""
        function = self.clean if isinstance(self.clean, str) else repr(self.clean)
        code = code_digest(load_function(self.clean)) if isinstance(self.clean, str) else ""
        return {
            "name": self.name,
            "clean": function,
            "code": code,
            "params": dict(self.params),
            "splits": [list(share) for share in self.splits.shares],
            "by_sample": self.splits.by_sample,
            "drawn_by": "label",
            "seed": self.splits.seed,
            "shard_bytes": self.shard_bytes,
            "unit_bytes": self.unit_bytes,
            "drop_failing": self.drop_failing,
        }

    def units(self) -> list[tuple[Input, ...]]:
        """The inputs in their order, cut where about `unit_bytes` are together."""
        units: list[list[Input]] = [[]]
        weight = 0
        for each in self.inputs:
            if units[-1] and weight + each.weight > self.unit_bytes:
                units.append([])
                weight = 0
            units[-1].append(each)
            weight += each.weight
        return [tuple(unit) for unit in units]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a job: a manifest per split, what was dropped by reason, and how it went."""

    manifests: dict[str, Manifest]
    recordings: int
    dropped: dict[str, int]
    units: int
    units_reused: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The report for `--json`."""
        sets = {
            split or "all": {"samples": m.rows, "shards": len(m.shards), "bytes": m.size_bytes, "digest": m.digest}
            for split, m in self.manifests.items()
        }
        return {
            "data_sets": sets,
            "recordings": self.recordings,
            "dropped": self.dropped,
            "units": self.units,
            "units_reused": self.units_reused,
            "seconds": round(self.seconds, 1),
        }
