"""The exit codes of `phalanx`, and how a fault becomes one paragraph on stderr."""

from __future__ import annotations

import sys
import textwrap
from enum import IntEnum


class Exit(IntEnum):
    """What a script may rely on; docs/command-line.md lists the same."""

    OK = 0
    NO = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    REFUSED = 4
    INTERRUPTED = 130


class Stop(Exception):
    """Ends the command with this exit code, saying `message` on stderr where there is one."""

    def __init__(self, code: Exit, message: str = "") -> None:
        self.code = code
        self.message = message
        super().__init__(message)


def complain(message: str) -> None:
    """One paragraph on stderr, wrapped; control characters of broken input are shown, not sent to the terminal."""
    clean = "".join(char if char.isprintable() else repr(char)[1:-1] for char in " ".join(message.split()))
    short = clean if len(clean) <= 2_000 else f"{clean[:2_000]} ..."
    print(textwrap.fill(f"phalanx: {short}", 110, break_long_words=False, break_on_hyphens=False), file=sys.stderr)
