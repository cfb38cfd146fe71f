"""Reading what ranks wrote and reported, wherever their hosts are, and keeping a copy on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...model.ids import HostId
from ..reports import SAVED, report_name
from .attempt_files import AttemptFiles, HostStatus
from .records import Key
from .sight import Sight

CHUNK = 2**20
REPORTS_EVERY_S = 5.0
"""Reports are lines of many seconds: they need not be looked for at every step."""
_TAIL_BYTES = 2**18


def tail(sight: Sight, key: Key, rank: int, lines: int) -> tuple[str, ...]:
    """The last lines that a rank wrote; empty where its log cannot be reached."""
    data = b""
    for host in sight.hosts_of(key):
        data = data or _read(sight, key, host, rank, -_TAIL_BYTES, _TAIL_BYTES)
    data = data or AttemptFiles(sight.folders.logs, *key).read_log(rank, -_TAIL_BYTES, _TAIL_BYTES)
    return tuple(data.decode(errors="replace").splitlines()[-lines:])


def mirror(sight: Sight, folder: Path, *, reports: bool = True) -> None:
    """Appends what is new in the logs of all attempts seen last to `folder/<job>/<attempt>/<rank>.log`.

    Their reports go to the folder `reports` beside; with `reports` False only those of attempts that end.
    """
    nodes = sight.nodes()
    for key, hosts in sight.statuses.items():
        for host, status in hosts.items():
            node = nodes.get(host)
            if node is None or not node.alive or not isinstance(status, HostStatus):
                continue
            if sight.machines.is_local(node) and Path(sight.folders.on(host).logs).resolve() == folder.resolve():
                continue  # the ranks write there themselves
            for rank in status.ranks:
                _append(sight, key, host, rank, AttemptFiles(folder, *key).log(rank))
            if reports or status.stopping or status.exits:
                _append_reports(sight, key, host, status.ranks, AttemptFiles(folder, *key))


def _append_reports(sight: Sight, key: Key, host: HostId, ranks: Sequence[int], copies: AttemptFiles) -> None:
    names = [report_name(rank) for rank in ranks] + ([SAVED] if 0 in ranks else [])
    offsets = {name: _size(copies.report(name)) for name in names}
    logs = sight.folders.on(host).logs
    asked = sight.machines.ask(sight.living((host,)), "read_reports", lambda _host: (logs, *key, offsets, CHUNK))
    answer = asked.get(host, {})
    for name, piece in answer.items() if isinstance(answer, dict) else ():
        copies.report(name).parent.mkdir(parents=True, exist_ok=True)
        with copies.report(name).open("ab") as file:
            file.write(piece)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _append(sight: Sight, key: Key, host: HostId, rank: int, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    with copy.open("ab") as file:
        while data := _read(sight, key, host, rank, file.tell(), CHUNK):
            file.write(data)
            if len(data) < CHUNK:
                return


def _read(sight: Sight, key: Key, host: HostId, rank: int, offset: int, limit: int) -> bytes:
    living = sight.living((host,))
    logs = sight.folders.on(host).logs
    answer = sight.machines.ask(living, "read_log", lambda _host: (logs, *key, rank, offset, limit)).get(host, b"")
    return b"" if isinstance(answer, Exception) else bytes(answer)
