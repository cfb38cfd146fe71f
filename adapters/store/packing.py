"""Snapshots as the compressed JSON that rounds keep; hosts and jobs that did not change are not written anew."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable

from ...model.codec import document, encode
from ...model.snapshot import Snapshot

_LEVEL = 3
"""Of compression: half the time of the usual level or less, for a third more bytes."""

_MANY = ("hosts", "jobs", "reservations")
"""The fields of a snapshot with as many objects as there are hosts or jobs: nearly all of its text."""

_Known = dict[int, tuple[object, str]]
"""The text of an object by its identity, with the object, which is thereby kept alive."""

_known: _Known = {}


def pack(snapshot: Snapshot) -> bytes:
    """The snapshot's document as JSON, compressed; `codec.loads` of what zlib makes of it is the snapshot.

    The texts of the snapshot packed last are remembered. A record that the store has not changed is one object in all
    of its snapshots, so that of a steady fleet only what moved is written.
    """
    global _known
    fresh: _Known = {}
    many = {field: _joined(getattr(snapshot, field), _known, fresh) for field in _MANY}
    # One assignment, so that threads at most forget what another has just written.
    _known = fresh
    rest = document(
        Snapshot(
            now_s=snapshot.now_s,
            sites=snapshot.sites,
            hosts=(),
            teams=snapshot.teams,
            links=snapshot.links,
            store_version=snapshot.store_version,
        )
    )
    parts = [f"{json.dumps(name)}:{_text(value)}" for name, value in rest.items() if name not in many]
    parts.extend(f'"{name}":[{text}]' for name, text in many.items())
    return zlib.compress(f"{{{','.join(parts)}}}".encode(), _LEVEL)


def _joined(items: Iterable[object], known: _Known, fresh: _Known) -> str:
    texts = []
    for item in items:
        seen = known.get(id(item))
        if seen is None or seen[0] is not item:
            seen = item, _text(encode(item))
        fresh[id(item)] = seen
        texts.append(seen[1])
    return ",".join(texts)


def _text(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
