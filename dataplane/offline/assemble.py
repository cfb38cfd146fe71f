"""Parts into data sets: shards are linked or uploaded under their final names, the manifest comes last, whatever kills
the job."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import OfflineError
from ..files import fsync_folder, write_atomic
from ..manifest import MANIFEST_NAME, MARKER_NAME, Manifest, Shard, read_manifest
from ..store_folder import StoreFolder
from ..store_target import StoreTarget
from ..targets import shard_name
from .splits import Splits
from .unit import part_folder

REPORT_NAME = "report.json"
Out = Path | str
_UPLOADS = 4


def place_of(out: Out, split: str) -> Out:
    """Where the data set of a split stands: the folder or the address itself where there is only one."""
    if isinstance(out, Path):
        return out / split
    return f"{out.rstrip('/')}/{split}" if split else out


def is_finished(out: Out, splits: Splits) -> bool:
    """Whether every split has its manifest. Raises DatasetError if a store cannot be asked."""
    places = [place_of(out, split) for split in splits.names]
    return all(
        (place / MANIFEST_NAME).exists()
        if isinstance(place, Path)
        else StoreFolder(place).found(MANIFEST_NAME) is not None
        for place in places
    )


def write_report(out: Out, report: bytes) -> None:
    """Puts the job's report beside its data sets."""
    if isinstance(out, Path):
        write_atomic(out / REPORT_NAME, report)
    else:
        StoreFolder(out).put(REPORT_NAME, report)


def assemble(
    out: Out, name: str, splits: Splits, parts: Sequence[Path], provenance: Mapping[str, Any]
) -> dict[str, Manifest]:
    """One data set per split that has samples: in `out`, a folder or an address of an object store, or in `out/SPLIT`
    where there are several.

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
        shards = _numbered(pieces)
        manifest = Manifest(
            f"{name}-{split}" if split else name, pieces[0][1].fields, tuple(shard for _, shard in shards), provenance
        )
        place = place_of(out, split)
        if isinstance(place, Path):
            _link_all(place, shards, manifest)
        else:
            _upload_all(place, shards, manifest)
        manifests[split] = manifest
    if not manifests:
        raise OfflineError(f"{out}: not one sample is left of all recordings; the cleaning function dropped them all")
    return manifests


def _numbered(pieces: Sequence[tuple[Path, Manifest]]) -> list[tuple[Path, Shard]]:
    """The shards of all parts under their final names, each with the file it stands in."""
    standing = [(source / shard.file, shard) for source, piece in pieces for shard in piece.shards]
    return [(path, replace(shard, file=shard_name(number))) for number, (path, shard) in enumerate(standing)]


def _link_all(folder: Path, shards: Sequence[tuple[Path, Shard]], manifest: Manifest) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER_NAME).touch()
    for path, shard in shards:
        _link(path, folder / shard.file)
    fsync_folder(folder)
    write_atomic(folder / MANIFEST_NAME, manifest.to_bytes())
    (folder / MARKER_NAME).unlink()


def _upload_all(address: str, shards: Sequence[tuple[Path, Shard]], manifest: Manifest) -> None:
    if StoreFolder(address).found(MANIFEST_NAME) == manifest.to_bytes():
        return  # this job was here before it was killed
    target = StoreTarget(address, uploads=_UPLOADS)
    try:
        for path, shard in shards:
            target.add(shard, path)
        target.finish(manifest)
    finally:
        target.release()


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        with source.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 4 << 20)
            writer.flush()
            os.fsync(writer.fileno())
