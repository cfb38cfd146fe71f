"""Parts into data sets: shards are linked under their final names, the manifest comes last, whatever kills the job."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import OfflineError
from ..files import fsync_folder, write_atomic
from ..manifest import MANIFEST_NAME, MARKER_NAME, Manifest, Shard, read_manifest
from .splits import Splits
from .unit import part_folder


def assemble(
    out: Path, name: str, splits: Splits, parts: Sequence[Path], provenance: Mapping[str, Any]
) -> dict[str, Manifest]:
    """One data set per split that has samples: in `out`, or in `out/SPLIT` where there are several.

    Raises OfflineError if there is no sample at all, or if two parts have different fields.
    """
    manifests = {}
    for split in splits.names:
        pieces = [(folder, read_manifest(folder)) for part in parts if (folder := part_folder(part, split)).is_dir()]
        if not pieces:
            continue
        for folder, piece in pieces[1:]:
            if piece.fields != pieces[0][1].fields:
                raise OfflineError(
                    f"the recordings do not give the same fields: {pieces[0][1].fields} in unit "
                    f"{pieces[0][0].parent.name}, {piece.fields} in unit {folder.parent.name}"
                )
        manifests[split] = _join(out / split, f"{name}-{split}" if split else name, pieces, provenance)
    if not manifests:
        raise OfflineError(f"{out}: not one sample is left of all recordings; the cleaning function dropped them all")
    return manifests


def _join(folder: Path, name: str, pieces: Sequence[tuple[Path, Manifest]], provenance: Mapping[str, Any]) -> Manifest:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER_NAME).touch()
    shards: list[Shard] = []
    for source, piece in pieces:
        for shard in piece.shards:
            file = f"shard-{len(shards):06d}.safetensors"
            _link(source / shard.file, folder / file)
            shards.append(replace(shard, file=file))
    manifest = Manifest(name, pieces[0][1].fields, tuple(shards), provenance)
    fsync_folder(folder)
    write_atomic(folder / MANIFEST_NAME, manifest.to_bytes())
    (folder / MARKER_NAME).unlink()
    return manifest


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        with source.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 4 << 20)
            writer.flush()
            os.fsync(writer.fileno())
