"""Whatever the world: one reason for each waiting job, and what it blames is to blame."""

from __future__ import annotations

from hypothesis import given, settings
from strategies import policies, snapshots

from phalanx.model.decision import ReasonKind
from phalanx.model.job_state import WAITING
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.books import Books
from phalanx.solver.explain import reasons
from phalanx.solver.greedy import greedy
from phalanx.solver.placing import Placer

STANDING = {ReasonKind.NEVER_FITS, ReasonKind.HELD, ReasonKind.BLOCKED, ReasonKind.BACK_OFF}


@settings(deadline=None, max_examples=120)
@given(snapshot=snapshots(max_hosts=5, max_jobs=6), policy=policies())
def test_every_waiting_job_has_one_true_reason(snapshot: Snapshot, policy: Policy) -> None:
    starts = greedy(snapshot, policy)
    started = {start.job for start in starts}
    found = reasons(snapshot, policy, starts)
    waiting = [record for record in snapshot.jobs if record.state in WAITING and record.id not in started]
    assert [reason.job for reason in found] == [record.id for record in waiting]
    for record, reason in zip(waiting, found, strict=True):
        assert reason.sentence.endswith(".")
        assert (reason.kind in STANDING - {ReasonKind.NEVER_FITS}) <= (not reason.families)
        if reason.kind is ReasonKind.OUTRANKED and not reason.besides:
            assert reason.subject
            assert Placer(snapshot, policy, Books(snapshot)).place(record) is not None
        elif reason.kind is ReasonKind.UNDECIDED:
            assert len(record.job.roles) > 1, "a gang of one role is placed wherever it fits"
