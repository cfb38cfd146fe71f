"""The end of a log file, read from its end."""

from __future__ import annotations

from pathlib import Path

_BLOCK = 64 * 2**10
_MOST = 4 * 2**20


def tail_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines, at most 4 MiB of them; empty where there is no such file."""
    try:
        with path.open("rb") as file:
            at = file.seek(0, 2)
            end = at
            raw = b""
            while at > 0 and end - at < _MOST and raw.count(b"\n") <= count:
                at = max(0, at - _BLOCK)
                file.seek(at)
                raw = file.read(end - at)
    except OSError:
        return []
    return raw.decode("utf-8", "replace").splitlines()[-count:]
