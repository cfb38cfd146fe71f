"""What went wrong elsewhere when teams take back what they lent (K4, K8, K9, V10, V11, P8), with guarantees and pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from small_worlds import NOW_S, POLICY, ask, box, gang, queued, running, world

from phalanx.model.decision import ReasonKind
from phalanx.model.ids import SiteId
from phalanx.model.job import Preemptible
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy, ReservedPool
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.admission import admit
from phalanx.solver.evict import greedy_plan
from phalanx.solver.explain import reasons
from phalanx.solver.plan import Plan
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify, verify_starts

Planned = Callable[..., Plan]


def exact(snapshot: Snapshot, policy: Policy) -> Plan:
    """The plan of a whole round."""
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    return Plan(decision.starts, decision.preemptions)


@pytest.fixture(params=[greedy_plan, exact], ids=["greedy", "exact"])
def planned(request: pytest.FixtureRequest) -> Planned:
    """Solves and checks that no rule is broken."""

    def solved(snapshot: Snapshot, policy: Policy = POLICY) -> Plan:
        plan: Plan = request.param(snapshot, policy)
        assert verify_starts(snapshot, policy, plan.starts, plan.preemptions) == ()
        return plan

    return solved


def team(name: str, gpus: int = 0, parent: str | None = None) -> Team:
    quota = (GpuQuota(gpu_type="H100", gpu_milli=1_000 * gpus),) if gpus else ()
    return Team(id=name, guarantee=quota, parent=parent)


def runs(name: str, cards: Iterable[int], of: str, host: str = "h1", **more: object) -> JobRecord:
    """A job of tier 3 on those cards since a quarter of an hour."""
    gpus = tuple(cards)
    facts = {key: more.pop(key) for key in ("ran_s", "inside_guarantee") if key in more}
    asked = more.pop("request", None) or ask(len(gpus))
    return running(gang(name, request=asked, team=of, **more), (host, gpus), **{"ran_s": 900, **facts})


def asks(name: str, gpus: float, of: str, **more: object) -> JobRecord:
    return queued(gang(name, 1, gpus, team=of, **more))


def victims(plan: Plan) -> set[str]:
    return {act.job for act in plan.preemptions}


def started(plan: Plan) -> dict[str, bool]:
    """The starts, and whether each is inside its guarantee."""
    return {start.job: start.inside_guarantee for start in plan.starts}


def carried_out(snapshot: Snapshot, plan: Plan, later_s: int = 0) -> Snapshot:
    """A later round: victims wait again, and starts run."""
    placed = {start.job: start for start in plan.starts}
    jobs = []
    for record in snapshot.jobs:
        if record.id in victims(plan):
            times = (*record.evictions, snapshot.now_s)
            jobs.append(replace(record, state=JobState.QUEUED, placement=None, started_s=None, evictions=times))
        elif record.id in placed:
            start = placed[record.id]
            facts = {"placement": start.placement, "inside_guarantee": start.inside_guarantee}
            jobs.append(replace(record, state=JobState.RUNNING, started_s=NOW_S, attempt=start.attempt, **facts))
        else:
            jobs.append(record)
    return replace(snapshot, jobs=tuple(jobs), now_s=snapshot.now_s + later_s)


def test_k4_larger_than_the_guarantee_never_starts_and_the_next_takes_its_own_back_once(planned: Planned) -> None:
    teams = (team("A", 3), team("B"))
    four = asks("a4", 4, "A", preemptible=Preemptible.NEVER)
    snapshot = world([box("h1", 4)], runs("b1", [0, 1], "B"), four, asks("a3", 3, "A"), teams=teams)
    plan = planned(snapshot)
    assert (started(plan), victims(plan)) == ({"a3": True}, {"b1"})
    refused = admit(four.job, snapshot, POLICY)
    assert not refused.accepted
    assert "the guarantee of team A has 3 H100, and it asks 4" in str(refused.reason and refused.reason.sentence)
    for later_s in (0, 3_600):
        again = planned(carried_out(snapshot, plan, later_s))
        assert victims(again) == set()
        assert "a4" not in started(again)


def test_k8_nobody_leaves_while_there_is_room_then_just_one(planned: Planned) -> None:
    teams = (team("A", 8), team("B"))
    jobs = [runs(f"b{n}", range(8), "B", f"h{n}") for n in range(3)]
    free = world([box(f"h{n}") for n in range(4)], *jobs, asks("a", 8, "A"), teams=teams)
    assert (started(planned(free)), victims(planned(free))) == ({"a": True}, set())
    full = world([box(f"h{n}") for n in range(3)], *jobs, asks("a", 8, "A"), teams=teams)
    assert len(victims(planned(full))) == 1


def test_k9_a_borrower_that_two_owners_need_goes_for_one_of_them(planned: Planned) -> None:
    teams = (team("A", 2), team("B", 2), team("C"))
    borrowers = [runs(name, [card], "C", name, ran_s=900) for name, card in (("x", 0), ("y", 0), ("z", 0))]
    fleet = [box(name, 1) for name in ("x", "y", "z")]
    pair = {"request": ask(1), "team": "A"}
    a = queued(gang("a", 2, **pair))
    b = queued(gang("b", 2, **{**pair, "team": "B"}))
    plan = planned(world(fleet, *borrowers, a, b, teams=teams))
    assert len(started(plan)) == 1
    assert len(victims(plan)) == 2


def test_v10_who_frees_nothing_that_the_owner_needs_stays(planned: Planned) -> None:
    teams = (team("A", 4), team("B"))
    cores = runs("cores", (), "B", "h2", request=ask(0, cpu=4))
    snapshot = world([box("h1", 4), box("h2", 0)], runs("b", range(4), "B"), cores, asks("a", 4, "A"), teams=teams)
    assert victims(planned(snapshot)) == {"b"}


def test_v11_two_small_borrowers_for_one_owner(planned: Planned) -> None:
    teams = (team("A", 8), team("B"))
    small = [runs("x", range(4), "B"), runs("y", range(4, 8), "B")]
    plan = planned(world([box("h1")], *small, asks("a", 8, "A"), teams=teams))
    assert (started(plan), victims(plan)) == ({"a": True}, {"x", "y"})


def test_p8_the_borrower_that_ran_least_leaves_and_keeps_its_age(planned: Planned) -> None:
    teams = (team("A", 4), team("B"))
    e1, e2 = runs("e1", range(4), "B", ran_s=9_000), runs("e2", range(4, 8), "B", ran_s=700)
    e2 = replace(e2, submitted_s=NOW_S - 5_000)
    snapshot = world([box("h1")], e1, e2, asks("e3", 4, "B"), asks("a", 4, "A"), teams=teams)
    plan = planned(snapshot)
    assert (started(plan), victims(plan)) == ({"a": True}, {"e2"})
    later = carried_out(snapshot, plan)
    gone = replace(later, jobs=tuple(record for record in later.jobs if record.id != "a"))
    assert list(started(planned(gone))) == ["e2"]


def test_an_owner_that_uses_its_guarantee_already_takes_nothing_more(planned: Planned) -> None:
    teams = (team("A", 4), team("B"))
    snapshot = world(
        [box("h1")], runs("own", range(4), "A"), runs("b", range(4, 8), "B"), asks("a", 1, "A"), teams=teams
    )
    assert planned(snapshot) == Plan()


def test_teams_below_share_the_guarantee_of_the_one_above(planned: Planned) -> None:
    teams = (team("lab", 4), team("v", parent="lab"), team("w", parent="lab"), team("B"))
    snapshot = world([box("h1", 6)], runs("v1", [0, 1], "v"), runs("b", range(2, 6), "B"), teams=teams)
    two = replace(snapshot, jobs=(*snapshot.jobs, asks("w1", 2, "w")))
    assert started(planned(two)) == {"w1": True}
    three = replace(snapshot, jobs=(*snapshot.jobs, asks("w1", 3, "w")))
    assert planned(three) == Plan()


def test_production_of_others_spares_what_is_inside_and_incidents_do_not(planned: Planned) -> None:
    teams = (team("A", 4), team("B"))
    snapshot = world([box("h1")], runs("a", range(4), "A"), runs("b", range(4, 8), "B"), teams=teams)
    assert victims(planned(replace(snapshot, jobs=(*snapshot.jobs, asks("p", 4, "B", tier=2))))) == {"b"}
    whole = replace(snapshot, jobs=(*snapshot.jobs, asks("p", 8, "B", tier=2)))
    assert planned(whole) == Plan()
    (reason,) = reasons(whole, POLICY, ())
    assert "a is inside the guarantee of its team" in reason.sentence
    assert victims(planned(replace(snapshot, jobs=(*snapshot.jobs, asks("i", 8, "B", tier=1))))) == {"a", "b"}


def test_no_pair_evicts_each_other_over_the_rounds(planned: Planned) -> None:
    teams = (team("A", 4), team("B", 4))
    snapshot = world([box("h1")], runs("b", range(8), "B"), asks("a", 4, "A"), teams=teams)
    plan = planned(snapshot)
    assert (started(plan), victims(plan)) == ({"a": True}, {"b"})
    later = carried_out(snapshot, plan, 3_600)
    again = planned(later)
    assert victims(again) == set()


def test_a_never_job_waits_for_its_guarantee_and_is_told(planned: Planned) -> None:
    teams = (team("A", 4), team("B"))
    snapshot = world(
        [box("h1")], runs("own", range(4), "A"), asks("a", 2, "A", preemptible=Preemptible.NEVER), teams=teams
    )
    assert planned(snapshot) == Plan()
    (reason,) = reasons(snapshot, POLICY, ())
    assert reason.kind is ReasonKind.GUARANTEE
    assert "the guarantee of team A has 0 of 4 H100 left, and it asks 2" in reason.sentence


RESERVED = replace(POLICY, reserved=(ReservedPool(site=SiteId("s"), gpu_type="H100", gpu_milli=4_000),))


def test_the_reserved_pool_is_lent_to_preemptible_work_and_taken_back(planned: Planned) -> None:
    lent = asks("lent", 8, "B", preemptible=Preemptible.ANYTIME)
    assert list(started(planned(world([box("h1")], lent, teams=(team("B"),)), RESERVED))) == ["lent"]
    borrower = runs("lent", range(8), "B", preemptible=Preemptible.ANYTIME)
    plan = planned(world([box("h1")], borrower, asks("p", 4, "B", tier=2), teams=(team("B"),)), RESERVED)
    assert (list(started(plan)), victims(plan)) == (["p"], {"lent"})


def test_development_leaves_the_reserved_pool_alone(planned: Planned) -> None:
    jobs = [asks(f"d{n}", 2, "B") for n in range(4)]
    plan = planned(world([box("h1")], *jobs, asks("p", 4, "B", tier=2), teams=(team("B"),)), RESERVED)
    assert sorted(started(plan)) == ["d0", "d1", "p"]
    alone = planned(world([box("h1")], *jobs, teams=(team("B"),)), RESERVED)
    assert len(started(alone)) == 2


def test_who_waits_for_reserved_room_is_told(planned: Planned) -> None:
    snapshot = world([box("h1")], runs("d", range(4), "B"), asks("e", 2, "B"), teams=(team("B"),))
    assert planned(snapshot, RESERVED) == Plan()
    (reason,) = reasons(snapshot, RESERVED, ())
    assert reason.kind is ReasonKind.POOL
    assert "4 H100 at s" in reason.sentence
