"""What the adapter remembers of each attempt across its own death: written before the effect it tells of."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...model.ids import HostId, JobId
from .supervisor import write_durably

Key = tuple[JobId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One attempt. `cluster` is the identity of the Ray cluster it was reserved on; `cards` by host as placed.

    `launched` is set before the first runner is asked to start ranks, `releasing` before the group is removed;
    `unclean` tells, by host, what the last release found left behind.
    """

    job: JobId
    attempt: int
    cluster: str
    cards: dict[HostId, tuple[int, ...]]
    grace_s: int = 30
    launched: bool = False
    releasing: bool = False
    unclean: dict[HostId, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """(job, attempt)."""
        return self.job, self.attempt

    @property
    def hosts(self) -> tuple[HostId, ...]:
        """The hosts placed on."""
        return tuple(self.cards)


class Records:
    """The records of one site, one small file each in `folder`.

    `installation` is a name of its own, made when the folder was: it tells this installation's processes from those
    of another one on the same machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        identity = folder / "installation"
        if not identity.exists():
            write_durably(identity, uuid.uuid4().hex)
        self.installation = identity.read_text()
        self._known: dict[Key, Record] = {}
        for path in sorted(folder.glob("*/*.json")):
            record = _read(path)
            self._known[record.key] = record

    def get(self, key: Key) -> Record | None:
        """The record of an attempt, or None."""
        return self._known.get(key)

    def all(self) -> tuple[Record, ...]:
        """Every record."""
        return tuple(self._known.values())

    def put(self, record: Record) -> None:
        """Writes the record, durably, if it says anything new."""
        if self._known.get(record.key) == record:
            return
        path = self._path(record.key)
        path.parent.mkdir(exist_ok=True)
        write_durably(path, json.dumps(asdict(record)))
        self._known[record.key] = record

    def drop(self, key: Key) -> None:
        """Forgets an attempt."""
        self._known.pop(key, None)
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: Key) -> Path:
        return self._folder / key[0] / f"{key[1]}.json"


def _read(path: Path) -> Record:
    document = json.loads(path.read_text())
    document["cards"] = {host: tuple(cards) for host, cards in document["cards"].items()}
    return Record(**document)
