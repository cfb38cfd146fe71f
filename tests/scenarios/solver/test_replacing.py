"""V2: a gang that lost a host gets its others back, with the returned host or a spare, before new work; for a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from grains import all_proven
from small_worlds import NOW_S, POLICY, begin, box, decide, gang, queued, world

from phalanx.model.host import HostState
from phalanx.model.ids import SiteId
from phalanx.model.policy import Policy, ReservedPool, SolvePolicy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify

GREEDY = Policy(solve=SolvePolicy(exact_columns=0))
HELD = {"replacing": ("h1", "h2", "h3"), "replacing_until_s": NOW_S + 200}


def after_the_loss(*, back: bool, spare: bool = False, until_s: int = 200, **newcomer: object) -> Snapshot:
    """J1(3x8) lost h2; J2(1x8) is older and waits too. All three hosts are empty, h2 as `back` says."""
    lost = HostState.READY if back else HostState.DOWN
    hosts = [box("h1"), box("h2", state=lost), box("h3"), box("s1", spare=True, state=HostState.READY)]
    first = queued(gang("j1", 3, 8), 100, **{**HELD, "replacing_until_s": NOW_S + until_s})
    return world(hosts if spare else hosts[:3], first, queued(gang("j2", 1, 8, **newcomer), 5_000))


def starts(snapshot: Snapshot, policy: Policy) -> dict[str, tuple[str, ...]]:
    decision = solve(snapshot, policy)
    assert not verify(snapshot, policy, decision)
    return {start.job: tuple(sorted(start.placement.hosts)) for start in decision.starts}


@pytest.mark.parametrize("policy", [POLICY, GREEDY])
class TestHeldHosts:
    def test_nobody_else_takes_them_while_the_lost_one_is_away(self, policy: Policy) -> None:
        assert starts(after_the_loss(back=False), policy) == {}

    def test_the_returned_host_is_the_gangs(self, policy: Policy) -> None:
        assert starts(after_the_loss(back=True), policy) == {"j1": ("h1", "h2", "h3")}

    def test_a_spare_replaces_the_lost_host_and_is_open_to_nobody_else(self, policy: Policy) -> None:
        assert starts(after_the_loss(back=False, spare=True), policy) == {"j1": ("h1", "h3", "s1")}
        alone = world([box("s1", spare=True)], gang("j2", 1, 8))
        assert starts(alone, policy) == {}

    def test_after_the_grace_the_others_are_free_and_the_gang_waits_with_its_age(self, policy: Policy) -> None:
        for until_s in (0, -50):
            assert starts(after_the_loss(back=False, spare=True, until_s=until_s), policy).keys() == {"j2"}

    def test_a_higher_level_does_not_wait(self, policy: Policy) -> None:
        assert starts(after_the_loss(back=False, tier=1), policy).keys() == {"j2"}


def test_a_spare_that_replaces_a_host_is_in_no_reserved_pool() -> None:
    """The pool keeps more from level 1 than there is, but the spare's cards are none of it."""
    pool = ReservedPool(site=SiteId("s"), gpu_type="H100", gpu_milli=8_000)
    policy = replace(POLICY, reserved=(pool,))
    held = {"attempt": 1, "replacing": ("h1",), "replacing_until_s": NOW_S + 200}
    lost, small = queued(gang("j1", 1, 2), 100, **held), queued(gang("j3", 1, 1), 50, **held)
    fleet = [box("h1", 8, state=HostState.DOWN), box("s1", 2, spare=True)]
    snapshot = world(fleet, lost, small, gang("j2", 1, 2))
    decision = solve(snapshot, policy)
    assert {start.job: start.placement.hosts for start in decision.starts} == {"j1": ("s1",)}
    assert verify(snapshot, policy, decision) == ()
    assert all_proven(decision)


def test_the_verifier_refuses_held_hosts_and_spares() -> None:
    snapshot = after_the_loss(back=False, spare=True)
    for host, why in (("h1", "held for job j1"), ("s1", "a spare"), ("h2", "down")):
        found = verify(snapshot, POLICY, decide(snapshot, begin(snapshot.jobs[1].job, (host, range(8)))))
        assert [violation.family for violation in found] == ["eligibility"]
        assert why in found[0].message
    two = replace(snapshot.jobs[1], replacing=("h1",), replacing_until_s=NOW_S + 10)
    both = replace(snapshot, jobs=(snapshot.jobs[0], two))
    assert not verify(both, POLICY, decide(both, begin(two.job, ("h1", range(8)))))
    assert starts(both, POLICY) == {"j1": ("h1", "h3", "s1")}
    gone = replace(both, jobs=(replace(both.jobs[0], replacing=("h1",)), two))
    assert starts(gone, POLICY).keys() == {"j1"}
    assert starts(replace(gone, hosts=(*gone.hosts[:1], *gone.hosts[2:3])), POLICY).keys() == {"j2"}
