"""The durable traces of one attempt on the hosts: started marks, exit codes, logs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..reports import REPORTS
from .supervisor import write_durably


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """One attempt on one host. `exits` are (rank, code) of the ended ranks.

    `supervised`: its supervisor lives. `orphaned`: its runner was lost while ranks ran, which stopped them.
    """

    started: bool = False
    supervised: bool = False
    orphaned: bool = False
    stopping: bool = False
    ranks: tuple[int, ...] = ()
    exits: tuple[tuple[int, int], ...] = ()

    @property
    def ended(self) -> bool:
        """Every rank has ended and nothing of them is left."""
        return self.started and not self.supervised and not self.orphaned and len(self.exits) == len(self.ranks)

    @property
    def lost(self) -> bool:
        """Its ranks were not let run to their end, or how they ended will never be known."""
        return self.started and (self.orphaned or (not self.supervised and len(self.exits) < len(self.ranks)))


class AttemptFiles:
    """The folder `<logs>/<job>/<attempt>` of a host."""

    def __init__(self, logs: str | Path, job: str, attempt: int) -> None:
        self.folder = Path(logs, job, str(attempt))

    def log(self, rank: int) -> Path:
        """What the rank writes."""
        return self.folder / f"{rank}.log"

    def exit(self, rank: int) -> Path:
        """The rank's exit code, once it has ended."""
        return self.folder / f"{rank}.exit"

    def orphaned(self, host: str) -> Path:
        """There if the host's runner was lost while its ranks ran."""
        return self.folder / f"host-{host}.orphaned"

    def spec(self, host: str) -> Path:
        """What the host's supervisor reads."""
        return self.folder / f"host-{host}.json"

    def mark_started(self, host: str, ranks: Sequence[int]) -> bool:
        """Claims the one start of this attempt on this host; False if it was claimed before, by whomever."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(self._mark(host), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(list(ranks)))
            file.flush()
            os.fsync(file.fileno())
        return True

    def status(self, host: str, *, supervised: bool, stopping: bool = False) -> HostStatus:
        """What the files say; whether the supervisor lives must be known from elsewhere."""
        try:
            text = self._mark(host).read_text()
        except FileNotFoundError:
            return HostStatus()
        # The mark is claimed before it is filled: whoever was killed in between started nothing.
        ranks = tuple(json.loads(text)) if text else (-1,)
        exits = ((rank, self._code(rank)) for rank in ranks)
        return HostStatus(
            started=True,
            supervised=supervised,
            orphaned=self.orphaned(host).exists(),
            stopping=stopping,
            ranks=ranks,
            exits=tuple((rank, code) for rank, code in exits if code is not None),
        )

    def write_spec(self, host: str, document: object) -> Path:
        """Writes what the supervisor will read and remove; for nobody else's eyes."""
        path = self.spec(host)
        write_durably(path, json.dumps(document), mode=0o600)
        return path

    def read_log(self, rank: int, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of the rank's log from `offset` on; a negative offset counts from the end."""
        return _piece(self.log(rank), offset, limit)

    def report(self, name: str) -> Path:
        """A file in which a rank reports of itself (`adapters/reports.py`)."""
        return self.folder / REPORTS / name

    def read_reports(self, offsets: Mapping[str, int], limit: int) -> dict[str, bytes]:
        """Up to `limit` bytes of each of these reports from its offset on; those with nothing new are left out."""
        pieces = {name: _piece(self.report(name), offset, limit) for name, offset in offsets.items()}
        return {name: piece for name, piece in pieces.items() if piece}

    def _mark(self, host: str) -> Path:
        return self.folder / f"host-{host}.started"

    def _code(self, rank: int) -> int | None:
        try:
            return int(self.exit(rank).read_text())
        except FileNotFoundError:
            return None


def _piece(path: Path, offset: int, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end + offset) if offset < 0 else offset)
            return file.read(limit)
    except FileNotFoundError:
        return b""
