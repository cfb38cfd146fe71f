"""The solver as the service calls it: imported on first use, so that a process that never solves starts fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.decision import Decision, Reason, Start
from ..model.ids import JobId
from ..model.job import Job
from ..model.policy import Policy
from ..model.snapshot import Snapshot

if TYPE_CHECKING:
    from ..solver.admission import Admission
    from ..solver.forecast import Chosen
    from ..solver.guard import Guard
    from ..solver.verify import Violation

Solver = Callable[[Snapshot, Policy], Decision]
Verifier = Callable[[Snapshot, Policy, Decision], "tuple[Violation, ...]"]
Admitter = Callable[[Job, Snapshot, Policy], "Admission"]
Explain = Callable[[Snapshot, Policy, Decision, JobId], Reason | None]


def solve(snapshot: Snapshot, policy: Policy, *, guard: Guard | None = None) -> Decision:
    """`phalanx.solver.solve.solve`."""
    from ..solver.solve import solve as solver

    return solver(snapshot, policy, guard=guard)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The solver's guard: wall time left until `at` on the monotonic clock, by which the round is to be committed."""

    at: float

    def remaining_s(self) -> float:
        """Seconds left."""
        return self.at - time.monotonic()


def guarded(seconds: float) -> Solver:
    """The solver with that much wall time as a guard outside its deterministic budget, counted from each call."""
    return lambda snapshot, policy: solve(snapshot, policy, guard=Deadline(time.monotonic() + seconds))


def within(seconds: float) -> Solver:
    """As `guarded`, counted from now on, whatever is done and however often it is called until then."""
    deadline = Deadline(time.monotonic() + seconds)
    return lambda snapshot, policy: solve(snapshot, policy, guard=deadline)


def verify(snapshot: Snapshot, policy: Policy, decision: Decision) -> tuple[Violation, ...]:
    """`phalanx.solver.verify.verify`: all violations of the rules, none for a decision that may be carried out."""
    from ..solver.verify import verify as verifier

    return verifier(snapshot, policy, decision)


def decide(snapshot: Snapshot, policy: Policy) -> Chosen | Sequence[Start]:
    """What a round would do, without proof and at once: forecasts and what-ifs run many rounds."""
    from ..solver.evict import greedy_plan

    return greedy_plan(snapshot, policy)


def admit(job: Job, snapshot: Snapshot, policy: Policy) -> Admission:
    """`phalanx.solver.admission.admit`: whether this fleet could ever run the job, and the nearest that would fit."""
    from ..solver.admission import admit as admission

    return admission(job, snapshot, policy)


def why(snapshot: Snapshot, policy: Policy, decision: Decision, job: JobId) -> Reason | None:
    """`phalanx.solver.why.why`: why the job waits, worked out for it alone where its round left that open."""
    from ..solver.why import why as explain

    return explain(snapshot, policy, decision, job)


def sentence(reason: Reason) -> str:
    """The reason in the words of the user."""
    if reason.sentence:
        return reason.sentence
    from ..solver.wording import sentence as wording

    return wording(reason)
