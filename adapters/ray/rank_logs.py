"""Reading what ranks wrote, wherever their hosts are, and keeping a copy on this machine."""

from __future__ import annotations

from pathlib import Path

from ...model.ids import HostId
from .attempt_files import AttemptFiles, HostStatus
from .records import Key
from .sight import Sight

CHUNK = 2**20
_TAIL_BYTES = 2**18


def tail(sight: Sight, key: Key, rank: int, lines: int) -> tuple[str, ...]:
    """The last lines that a rank wrote; empty where its log cannot be reached."""
    data = b""
    for host in sight.hosts_of(key):
        data = data or _read(sight, key, host, rank, -_TAIL_BYTES, _TAIL_BYTES)
    data = data or AttemptFiles(sight.folders.logs, *key).read_log(rank, -_TAIL_BYTES, _TAIL_BYTES)
    return tuple(data.decode(errors="replace").splitlines()[-lines:])


def mirror(sight: Sight, folder: Path) -> None:
    """Appends what is new in the logs of all attempts seen last to `folder/<job>/<attempt>/<rank>.log`."""
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
