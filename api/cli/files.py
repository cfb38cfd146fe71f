"""Reading the documents that commands take, with the file's name in every complaint."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TypeVar

from ...model.codec import decode, loads
from ...model.errors import InvalidInput
from ...model.policy import Policy

T = TypeVar("T")
MAX_BYTES = 512 * 2**20
"""The largest document that is read, in bytes; a snapshot of 10,000 hosts takes a twentieth of it."""


def read_document(path: Path, expected: type[T]) -> T:
    """The Snapshot, Decision, ... in a JSON file, or on stdin for "-". Raises InvalidInput naming the file."""
    raw = read_bytes(path)
    try:
        return loads(raw, expected)
    except InvalidInput as fault:
        raise _in_file(path, fault) from None


def read_policy(path: Path | None) -> Policy:
    """The policy of a TOML file (a top-level [policy] table, as in phalanx.toml, is taken too) or JSON document."""
    if path is None:
        return Policy()
    if path.suffix == ".json":
        return read_document(path, Policy)
    try:
        table = tomllib.loads(read_bytes(path).decode("utf-8"))
        policy: Policy = decode(table.get("policy", table), Policy)
        return policy
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"not TOML: {error}", "a policy in TOML") from None
    except InvalidInput as fault:
        raise _in_file(path, fault) from None


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, or of stdin for "-", if they are not too many. Raises InvalidInput."""
    if str(path) == "-":
        raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise InvalidInput(str(path), f"cannot be read ({error.strerror})", "a readable file") from None
    if len(raw) > MAX_BYTES:
        raise InvalidInput(str(path), f"larger than {MAX_BYTES // 2**20} MiB", "a smaller document")
    return raw


def write_text(path: Path, text: str) -> None:
    """Writes a whole text file. Raises InvalidInput where it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be written ({error.strerror})", "a writable place") from None


def _in_file(path: Path, fault: InvalidInput) -> InvalidInput:
    return InvalidInput(f"{path}: {fault.path}" if fault.path else str(path), fault.problem, fault.expected)
