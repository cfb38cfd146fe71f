"""Reasons of gangs inside guarantees: what the guarantee lacks, what is short besides, who is in the way, what would help."""

from __future__ import annotations

from small_worlds import POLICY, ask, box, gang, role, running, world

from phalanx.model.decision import Reason, ReasonKind, RuleFamily
from phalanx.model.host import HostState
from phalanx.model.job import Job, Preemptible
from phalanx.model.snapshot import JobRecord
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.evict import greedy_plan
from phalanx.solver.explain import reasons
from phalanx.solver.greedy import greedy

NEVER = {"preemptible": Preemptible.NEVER}
FLEET = (box("h1"), box("a1", gpu_type="A100"))
TEAMS = (Team(id="lab", guarantee=(GpuQuota(gpu_type="H100", gpu_milli=8_000),)), Team(id="other"))


def why(*records: JobRecord | Job, fleet: tuple[object, ...] = FLEET) -> Reason:
    snapshot = world(fleet, *records, teams=TEAMS)
    plan = greedy_plan(snapshot, POLICY)
    (reason,) = reasons(snapshot, POLICY, plan.starts, plan.preemptions)
    return reason


def test_a_guarantee_that_is_used_up() -> None:
    held = running(gang("r", 1, 6, team="lab"), ("h1", range(6)))
    reason = why(held, gang("a", 1, 4, team="lab", **NEVER))
    assert (reason.kind, reason.families, reason.besides) == (ReasonKind.GUARANTEE, (RuleFamily.GUARANTEE,), "")
    assert "has 2 of 8 H100 left, and it asks 4" in reason.sentence
    assert reason.helps[0] == "starts at once with preemptible: by_higher"


def test_a_guarantee_that_is_used_up_is_not_all_that_is_short() -> None:
    held = running(gang("r", 1, 8, team="lab"), ("h1", range(8)))
    down = (box("h1"), box("h2", state=HostState.DOWN))
    reason = why(held, gang("a", 1, 4, team="lab", **NEVER), fleet=down)
    assert reason.families == (RuleFamily.GUARANTEE, RuleFamily.ELIGIBILITY)
    assert reason.besides == "hosts that take no work now"


def test_room_that_others_hold_on_the_type_that_is_covered() -> None:
    held = running(gang("r", 1, 8, team="other", tier=1), ("h1", range(8)))
    reason = why(held, gang("a", 1, 4, team="lab", **NEVER))
    assert (reason.kind, reason.families) == (ReasonKind.BUSY, (RuleFamily.CAPACITY,))
    assert reason.subject == "H100"
    assert reason.helps == ("starts at once with preemptible: by_higher",)


def test_borrowed_room_that_cannot_be_claimed_yet_is_named() -> None:
    held = running(gang("r", 1, 8, team="other", tier=4), ("h1", range(8)), ran_s=60)
    reason = why(held, gang("a", 1, 4, ["H100"], team="lab"), fleet=FLEET[:1])
    assert reason.families == (RuleFamily.PREEMPTION,)
    assert reason.subject == "r has run for 1 min of at least 10 min"


def test_borrowed_room_that_this_round_left_alone_is_not_called_in_use() -> None:
    held = running(gang("r", 1, 8, team="other", tier=4), ("h1", range(8)), ran_s=9_000)
    snapshot = world(FLEET, held, gang("a", 1, 4, ["H100"], team="lab"), teams=TEAMS)
    (reason,) = reasons(snapshot, POLICY, ())
    assert reason.kind is ReasonKind.UNDECIDED
    assert "others could be preempted for it" in reason.sentence


def test_fractions_of_two_roles_share_a_card() -> None:
    pair = gang("a", roles=(role("worker", 1, ask(0.3)), role("helper", 1, ask(0.3))))
    (start,) = greedy(world([box("h1", 1)], pair), POLICY)
    assert {worker.gpus for worker in start.placement.workers} == {(0,)}


def test_work_of_its_own_guarantee_that_this_round_left_alone_is_not_called_protected() -> None:
    """A gang of level 2 may evict work of level 1 inside its own guarantee; the greedy does not look for that."""
    held = running(gang("r", 1, 8, team="lab"), ("h1", range(8)), ran_s=9_000)
    reason = why(held, gang("a", 1, 4, ["H100"], team="lab", tier=2), fleet=FLEET[:1])
    assert reason.kind is ReasonKind.UNDECIDED
    assert "others could be preempted for it" in reason.sentence
    other = why(held, gang("a", 1, 4, ["H100"], team="other", tier=2), fleet=FLEET[:1])
    assert (other.families, other.subject) == (
        (RuleFamily.PREEMPTION,),
        "r is inside the guarantee of its team",
    )


def test_of_those_in_the_way_only_others_are_named_than_work_of_its_own_guarantee() -> None:
    jobs = [running(gang(name, 1, 4, team="lab"), ("h1", cards), ran_s=ran_s) for name, cards, ran_s in HALVES]
    reason = why(*jobs, gang("a", 1, 8, ["H100"], team="lab", tier=2), fleet=FLEET[:1])
    assert reason.families == (RuleFamily.PREEMPTION,)
    assert reason.subject == "young has run for 1 min of at least 10 min"


HALVES = (("old", range(4), 9_000), ("young", range(4, 8), 60))
