"""Admission beside reserved pools: what they leave to tiers 3 and 4 is all that these can ever have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_worlds import POLICY, ask, box, gang, queued, role, world

from phalanx.model.decision import ReasonKind, RuleFamily
from phalanx.model.host import Host, HostState
from phalanx.model.job import Job, Preemptible, TopologyConstraint
from phalanx.model.policy import Policy, ReservedPool
from phalanx.model.snapshot import JobRecord
from phalanx.model.topology import Layer
from phalanx.solver.admission import Admission, Admissions, admit
from phalanx.solver.explain import reasons

FLEET = (box("h1"), box("h2"), box("a1", gpu_type="A100"), box("x1", site="x"))


def keeping(**left: int) -> Policy:
    """A policy that reserves all but that many H100 at each of these sites."""
    cards = {"s": 16, "x": 8}
    pools = (
        ReservedPool(site=site, gpu_type="H100", gpu_milli=1_000 * (cards[site] - number))
        for site, number in left.items()
    )
    return replace(POLICY, reserved=tuple(pools), cross_site=True)


def judged(job: Job, policy: Policy, fleet: tuple[Host, ...] = FLEET) -> Admission:
    return admit(job, world(fleet), policy)


def test_more_than_the_pool_leaves_is_told_so_with_what_would_do() -> None:
    refused = judged(gang("a", 8, 1, ["H100"]), keeping(s=4, x=2))
    assert refused.reason is not None
    assert (refused.reason.kind, refused.reason.families) == (ReasonKind.NEVER_FITS, (RuleFamily.RESERVED,))
    assert (refused.reason.asked, refused.reason.available) == (8_000, 4_000)
    assert refused.reason.sentence == (
        "It can never start beside what is kept for tiers 1 and 2, which leaves 4 H100 at s; it asks 8. "
        "It could run with 4 workers instead of 8, or with preemptible: anytime."
    )
    assert judged(gang("a", 4, 1, ["H100"]), keeping(s=4, x=2)).accepted


@pytest.mark.parametrize(
    "job",
    [
        gang("a", 8, 1, ["H100"], tier=2),
        gang("a", 8, 1, ["H100"], preemptible=Preemptible.ANYTIME),
        gang("a", 8, 1),
        gang("a", 1, 0, request=ask(0)),
    ],
)
def test_whom_a_pool_does_not_concern(job: Job) -> None:
    assert judged(job, keeping(s=4, x=2)).accepted


def test_one_site_without_a_pool_is_enough() -> None:
    assert judged(gang("a", 8, 1, ["H100"]), keeping(s=0)).accepted
    assert not judged(gang("a", 9, 1, ["H100"]), keeping(s=0)).accepted


def test_across_sites_what_each_leaves_counts_together() -> None:
    assert judged(gang("a", 14, 1, ["H100"], cross_site=True), keeping(s=10, x=4)).accepted
    refused = judged(gang("a", 15, 1, ["H100"], cross_site=True), keeping(s=10, x=4))
    assert refused.reason is not None
    assert refused.reason.families == (RuleFamily.RESERVED,)
    assert refused.nearest == "with 14 workers instead of 15"


def test_hosts_that_are_out_of_work_now_count() -> None:
    fleet = (box("h1"), box("h2", state=HostState.DOWN), *FLEET[2:])
    assert judged(gang("a", 4, 1, ["H100"]), keeping(s=4, x=2), fleet).accepted


def test_several_roles() -> None:
    pair = gang("a", roles=(role("worker", 3, ask(1), ["H100"]), role("helper", 2, ask(1), ["H100"])))
    assert judged(pair, keeping(s=5, x=2)).accepted
    refused = judged(pair, keeping(s=4, x=2))
    assert refused.reason is not None
    assert (refused.reason.families, refused.reason.asked) == ((RuleFamily.RESERVED,), 5_000)


def test_inside_one_host_the_pool_of_its_site_counts() -> None:
    host = (TopologyConstraint(layer=Layer.HOST),)
    refused = judged(gang("a", 1, 8, ["H100"], topology=host), keeping(s=7, x=7))
    assert refused.reason is not None
    assert refused.nearest == "with 7 GPUs per worker"


def test_a_waiting_job_hears_the_same_and_a_demoted_one_may_have_the_idle_part() -> None:
    job = gang("a", 8, 1, ["H100"])
    snapshot, policy = world(FLEET, job), keeping(s=4, x=2)
    (reason,) = reasons(snapshot, policy, ())
    assert (reason.kind, reason.families) == (ReasonKind.NEVER_FITS, (RuleFamily.RESERVED,))
    admissions = Admissions(snapshot, policy)
    assert admissions.never_fits(JobRecord(job=job, submitted_s=0)) is not None
    assert admissions.never_fits(queued(job, demoted=True)) is None
