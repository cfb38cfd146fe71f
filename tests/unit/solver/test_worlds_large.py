"""Trials where hosts are counted by columns: what victims leave for higher levels is no room for those below."""

from dataclasses import replace

from small_worlds import box, gang, queued, running, world

from phalanx.model.job import Preemptible
from phalanx.model.policy import Policy
from phalanx.solver.solve import solve
from phalanx.solver.world import NOW
from phalanx.solver.worlds import Worlds

HOSTS = 50
"""Enough for counts by columns."""


def test_a_job_has_no_place_on_what_a_victim_leaves_for_higher_levels() -> None:
    hosts = [box(f"h{n:02}") for n in range(HOSTS)]
    # One card is free on each of two hosts, so that enough is free in all for a job that fits on neither.
    cards = {n: range(7 if n in (2, 3) else 8) for n in range(2, HOSTS)}
    full = [running(gang(f"r{n:02}", 1, len(taken), tier=1), (f"h{n:02}", taken)) for n, taken in cards.items()]
    anytime = {"preemptible": Preemptible.ANYTIME}
    victim = running(gang("victim", 2, 8, **anytime), ("h00", range(8)), ("h01", range(8)), ran_s=3_600)
    urgent, small = queued(gang("urgent", 1, 8, tier=1)), queued(gang("small", 1, 2, **anytime))
    snapshot = world(hosts, *full, victim, urgent, small)
    decision = solve(snapshot, Policy())
    assert [act.job for act in decision.preemptions] == ["victim"]
    worlds = Worlds(snapshot, Policy(), decision.starts, decision.preemptions)
    worlds.see(small)
    for there in (NOW, replace(NOW, all_hosts=True), replace(NOW, no_limits=True)):
        assert worlds.free(small.job, there) == 2_000
        assert not worlds.could(small, there)
        assert worlds.placement(small, there) is None
