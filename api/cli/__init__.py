"""The command line: `phalanx`. Commands are imported when called, so that `phalanx --help` answers at once.

Exit codes: 0 done, 1 the answer is no (a violation, a job that failed), 2 the input is wrong, 3 the service cannot be
reached or has failed, 4 the service refused; 130 after Ctrl-C.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs `phalanx` with the arguments of this process, and exits."""
    from .root import run

    sys.exit(run(sys.argv[1:]))
