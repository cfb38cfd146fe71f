"""The faults that Phalanx raises; expected outcomes (infeasible, timed out, refused) are values instead.

PhalanxError
├── InvalidInput         what a user or a file gave is wrong: where, what, and what would be right
├── IllegalTransition    a job was asked to change state in a way the table of states forbids
├── StaleTerm            an actor whose lease has passed to another tried to write
├── NotFound             a job, host, round or team of that name does not exist
└── StoreUnavailable     the database cannot be reached, is busy, or belongs to another version of Phalanx
"""

from __future__ import annotations


class PhalanxError(Exception):
    """Something went wrong inside Phalanx."""


class InvalidInput(PhalanxError, ValueError):
    """Input that cannot be accepted.

    `path` says where ("jobs[3].roles[0].count"), `problem` what is wrong, `expected` what would be right.
    """

    def __init__(self, path: str, problem: str, expected: str = "") -> None:
        self.path = path
        self.problem = problem
        self.expected = expected
        super().__init__(path, problem, expected)

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        right = f"; expected {self.expected}" if self.expected else ""
        return f"{where}{self.problem}{right}"

    def under(self, prefix: str) -> InvalidInput:
        """The same fault seen from one level further out: `prefix` is put before the path."""
        joined = prefix if not self.path else prefix + (self.path if self.path.startswith("[") else f".{self.path}")
        return InvalidInput(joined, self.problem, self.expected)


class IllegalTransition(PhalanxError):
    """A job was asked to change state in a way the table of states forbids."""


class StaleTerm(PhalanxError):
    """The lease of this scheduler or adapter has passed to another one; nothing was written."""


class NotFound(PhalanxError):
    """No such job, host, round or team."""


class StoreUnavailable(PhalanxError):
    """The database cannot be used now; nothing was written."""
