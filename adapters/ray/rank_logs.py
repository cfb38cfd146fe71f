"""Reading what ranks wrote and reported, wherever their hosts are, and keeping a copy on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...model.ids import HostId
from ..reports import SAVED, report_name
from ..retention import AttemptFolder
from .attempt_files import AttemptFiles, HostStatus
from .compat import Node
from .records import Key
from .sight import Sight

CHUNK = 2**20
REPORTS_EVERY_S = 5.0
"""Reports are lines of many seconds: they need not be looked for at every step."""
_TAIL_BYTES = 2**18

Choose = Callable[[Sequence[AttemptFolder]], Sequence[Key]]
"""Which of these folders may go."""


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


def clean_up(sight: Sight, choose: Choose) -> int:
    """Removes the folders of attempts that `choose` names, on every living machine; returns how many are gone."""
    count = 0
    done: set[tuple[str, str]] = set()
    for host, node in sight.nodes().items():
        logs = sight.folders.on(host).logs
        # Hosts of one machine may keep their logs in one folder.
        if not node.alive or (node.address, logs) in done:
            continue
        done.add((node.address, logs))
        found = _ask_one(sight, host, node, "attempt_folders", logs)
        gone = () if isinstance(found, Exception) else choose(found)
        told = _ask_one(sight, host, node, "remove_attempts", logs, gone) if gone else 0
        count += told if isinstance(told, int) else 0
    return count


def _ask_one(sight: Sight, host: HostId, node: Node, method: str, *arguments: object) -> Any:
    """What the caretaker of the host's machine answers; a PhalanxError where it does not."""
    return sight.machines.ask({host: node}, method, lambda _host: arguments)[host]


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
