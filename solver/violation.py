"""A rule that a decision breaks, with a witness and by how much."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.decision import RuleFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """`subject` (a job, a host, a card, a goal) breaks a rule by `amount` > 0, in `unit`.

    `family` is None where what the decision says of itself is wrong: a goal's value or bound.
    """

    family: RuleFamily | None
    subject: str
    amount: int
    unit: str
    message: str

    def __str__(self) -> str:
        return f"{self.family or 'goals'}: {self.message}"
