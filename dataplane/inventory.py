"""What a host's shard cache holds: read by the host's agent, which has neither torch nor the training packages."""

import json
from dataclasses import dataclass
from pathlib import Path

# The folders of a cache; cache.py writes them.
OBJECTS = "objects"
DATASETS = "datasets"
LOCKS = "locks"
OBJECT_SUFFIX = ".shard"


@dataclass(frozen=True, slots=True)
class CachedDataset:
    """How much of one data set a cache holds.

    `digest` is the manifest's digest (two data sets may share a name); shards and bytes count whole cached shards
    against those of the data set. A shard that two data sets share counts for both.
    """

    dataset: str
    digest: str
    shards_cached: int
    shards_total: int
    bytes_cached: int
    bytes_total: int


def inventory(cache_root: str | Path) -> tuple[CachedDataset, ...]:
    """What the cache in `cache_root` holds, per data set ever used there, by name and digest.

    Takes no lock: shards that come or go meanwhile may or may not be counted. A folder that does not exist holds
    nothing; a record that cannot be read is left out.
    """
    root = Path(cache_root)
    try:
        present = {path.name for path in (root / OBJECTS).iterdir()}
        records = sorted((root / DATASETS).glob("*.json"))
    except FileNotFoundError:
        return ()
    found = [_count(record, present) for record in records]
    return tuple(sorted((entry for entry in found if entry), key=lambda entry: (entry.dataset, entry.digest)))


def _count(record: Path, present: set[str]) -> CachedDataset | None:
    try:
        content = json.loads(record.read_bytes())
        shards = [(str(digest), int(size)) for digest, size in content["shards"]]
        name = str(content["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    cached = [size for digest, size in shards if digest + OBJECT_SUFFIX in present]
    return CachedDataset(name, record.stem, len(cached), len(shards), sum(cached), sum(size for _, size in shards))
