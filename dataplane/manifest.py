"""The manifest of a data set: what is in it, in which shards, with which checksums."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import DatasetError, UnfinishedDataset
from .fields import Field

FORMAT = "phalanx-shards"
VERSION = 1
MANIFEST_NAME = "manifest.json"
MARKER_NAME = "writing.lock"


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard file: its name, samples (>= 1), bytes of the whole file, and their xxh3_128 in hexadecimal.

    `items` holds (name, number of items) of each variable field, in the order of the fields.
    """

    file: str
    rows: int
    size_bytes: int
    xxh3_128: str
    items: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.file or "/" in self.file or self.file.startswith("."):
            raise DatasetError(f"shard file name {self.file!r}: must be a plain visible name without '/'")
        if self.rows < 1 or self.size_bytes < 1:
            raise DatasetError(
                f"shard {self.file}: rows and bytes must be positive, not {self.rows} and {self.size_bytes}"
            )
        if len(self.xxh3_128) != 32 or set(self.xxh3_128) - set("0123456789abcdef"):
            raise DatasetError(f"shard {self.file}: {self.xxh3_128!r} is no xxh3_128 in lower-case hexadecimal")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A finished data set. `provenance` is free JSON saying how the samples were made."""

    name: str
    fields: tuple[Field, ...]
    shards: tuple[Shard, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def digest(self) -> str:
        """SHA-256 over name, fields and shards: what identifies the samples and their order, not how they came."""
        content = {key: value for key, value in self.to_json().items() if key != "provenance"}
        return hashlib.sha256(_canonical(content)).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The manifest as its file holds it (docs/dataplane.md)."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "fields": [_field_json(field) for field in self.fields],
            "shards": [_shard_json(shard) for shard in self.shards],
            "provenance": dict(self.provenance),
        }

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json(), indent=1, sort_keys=True).encode() + b"\n"


def _field_json(field: Field) -> dict[str, Any]:
    content = {"name": field.name, "dtype": field.dtype, "shape": list(field.shape)}
    return {**content, "variable": True} if field.variable else content


def _shard_json(shard: Shard) -> dict[str, Any]:
    content = {"file": shard.file, "rows": shard.rows, "bytes": shard.size_bytes, "xxh3_128": shard.xxh3_128}
    return {**content, "items": dict(shard.items)} if shard.items else content


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def manifest_path(location: str | Path) -> Path:
    """The manifest's path of a data set given as folder, manifest file or file:// address.

    Raises DatasetError for an address of any other kind.
    """
    text = str(location)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    elif "://" in text:
        raise DatasetError(f"{text}: no local folder and no file:// address")
    path = Path(text)
    return path if path.name == MANIFEST_NAME else path / MANIFEST_NAME


def read_manifest(location: str | Path) -> Manifest:
    """Reads and checks a manifest.

    Raises UnfinishedDataset when shards stand there without a manifest, DatasetError when there is no data set,
    or one of another format or version.
    """
    path = manifest_path(location)
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _why_missing(path.parent) from None
    return parse_manifest(data, str(path))


def parse_manifest(data: bytes, origin: str) -> Manifest:
    """The manifest in these bytes. Raises DatasetError, naming `origin`, if they are none of this version."""
    try:
        content = json.loads(data)
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise DatasetError(
                f"{origin}: format {content['format']!r} version {content['version']!r}; "
                f"this version reads {FORMAT!r} version {VERSION}"
            )
        manifest = _parse(content)
        counts = (content["rows"], content["bytes"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{origin}: not a readable manifest ({type(error).__name__}: {error})") from error
    if counts != (manifest.rows, manifest.size_bytes):
        raise DatasetError(
            f"{origin}: rows and bytes {counts} differ from the shards' {manifest.rows}, {manifest.size_bytes}"
        )
    return manifest


def _parse(content: dict[str, Any]) -> Manifest:
    fields = tuple(
        Field(f["name"], f["dtype"], tuple(f["shape"]), bool(f.get("variable", False))) for f in content["fields"]
    )
    variable = [field.name for field in fields if field.variable]
    shards = tuple(
        Shard(
            s["file"], s["rows"], s["bytes"], s["xxh3_128"], tuple((name, int(s["items"][name])) for name in variable)
        )
        for s in content["shards"]
    )
    if not fields or not shards:
        raise DatasetError("a data set has at least one field and one shard")
    return Manifest(content["name"], fields, shards, content["provenance"])


def _why_missing(folder: Path) -> DatasetError:
    if (folder / MARKER_NAME).exists():
        return UnfinishedDataset(
            f"{folder}: unfinished data set (no {MANIFEST_NAME}); run the job that writes it again"
        )
    return DatasetError(f"{folder}: no data set here (no {MANIFEST_NAME})")
