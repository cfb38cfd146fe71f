"""Trading places among alike gangs: beside plans and preemptions every rule and every other goal stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from small_worlds import NOW_S, begin, box, gang, placement, queued, running, world

from phalanx.model.decision import Start
from phalanx.model.host import CachedDataset, Host
from phalanx.model.ids import HostId, ReservationId
from phalanx.model.job import DatasetRef, Job, Preemptible
from phalanx.model.policy import Policy, SolvePolicy
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.exchange import exchange
from phalanx.solver.goals import values
from phalanx.solver.plan import Plan, assemble
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify, verify_starts
from phalanx.solver.verify_planned import Planned

POLICY = Policy()
WAITS = POLICY.time.starve_after_s
BIG = gang("big", 2, 8, walltime_limit_s=3_600)
PLANNED_S = NOW_S + 5_000


def having(host: Host, name: str) -> Host:
    there = CachedDataset(dataset=name, digest="", shards=10, shards_total=10, size_mib=1_000_000)
    return replace(host, cached=(there,))


def reading(name: str, dataset: str, **more: object) -> Job:
    return replace(gang(name, 1, 8, walltime_limit_s=600), dataset=DatasetRef(name=dataset, size_mib=1_000_000), **more)


X, Y = reading("x", "p"), reading("y", "q")
CROSSED = [begin(X, ("h1", range(8))), begin(Y, ("h2", range(8)))]
"""Each where the other's data is."""


def fleet(*records: JobRecord) -> Snapshot:
    return world([having(box("h1"), "q"), having(box("h2"), "p"), box("h3")], *records)


def planned(snapshot: Snapshot, starts: Sequence[Start], victims: Sequence[str] = ()) -> Plan:
    """These starts, and a plan for big on h1 and h3 behind them."""
    big = next(record for record in snapshot.jobs if record.id == "big")
    seats = placement(BIG, ("h1", range(8)), ("h3", range(8)))
    return assemble(snapshot, POLICY, starts, victims, [Planned(big, seats, PLANNED_S)])


def hosts_of(plan: Plan) -> dict[str, tuple[HostId, ...]]:
    return {start.job: start.placement.hosts for start in plan.starts}


def checked(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan after the exchange: rules kept, goals but `economy` equal and that not worse."""
    assert verify_starts(snapshot, POLICY, plan.starts, plan.preemptions, plan.reservations) == ()
    traded = exchange(snapshot, POLICY, plan)
    assert verify_starts(snapshot, POLICY, traded.starts, traded.preemptions, traded.reservations) == ()
    before, after = (
        {goal.name: goal.value for goal in values(snapshot, POLICY, each.starts, each.preemptions, each.reservations)}
        for each in (plan, traded)
    )
    assert after.pop("economy") >= before.pop("economy")
    assert after == before
    return traded


def test_places_are_traded_and_plans_stay() -> None:
    work = running(gang("v", 1, 8, walltime_limit_s=4_000), ("h3", range(8)))
    snapshot = fleet(work, queued(BIG, WAITS), queued(X), queued(Y))
    plan = planned(snapshot, CROSSED)
    traded = checked(snapshot, plan)
    assert hosts_of(traded) == {"x": ("h2",), "y": ("h1",)}
    assert traded.reservations == plan.reservations
    assert [r.planned_start_s for r in traded.reservations] == [PLANNED_S]


def test_a_promise_goes_on_as_it_was_and_others_are_released() -> None:
    seats = placement(BIG, ("h1", range(8)), ("h3", range(8)))
    facts = {"placement": seats, "planned_start_s": PLANNED_S, "created_s": NOW_S - 90}
    promise = Reservation(id=ReservationId("r"), job=BIG.id, version=4, broken=1, **facts)
    snapshot = fleet(queued(BIG, WAITS), queued(X), queued(Y))
    other = replace(promise, id=ReservationId("s"), job=gang("gone").id)
    snapshot = replace(snapshot, reservations=(promise, other))
    plan = planned(snapshot, CROSSED)
    traded = checked(snapshot, plan)
    assert hosts_of(traded) == {"x": ("h2",), "y": ("h1",)}
    assert traded.reservations == (promise,)
    assert traded.releases == ("s",)


@pytest.mark.parametrize("limits", [(600, 601), (4_900, 50_000)])
def test_who_is_over_later_does_not_take_a_place_that_is_planned(limits: tuple[int, int]) -> None:
    x, y = replace(X, walltime_limit_s=limits[0]), replace(Y, walltime_limit_s=limits[1])
    snapshot = fleet(queued(BIG, WAITS), queued(x), queued(y))
    plan = planned(snapshot, [begin(x, ("h1", range(8))), begin(y, ("h2", range(8)))])
    assert checked(snapshot, plan) == plan


def test_victims_leave_for_those_who_come_to_their_places() -> None:
    work = [running(gang(f"v{n}", preemptible=Preemptible.ANYTIME), (f"h{n}", [0]), ran_s=1_000) for n in (1, 2)]
    snapshot = fleet(*work, queued(BIG, WAITS), queued(X), queued(Y))
    plan = planned(snapshot, CROSSED, ["v1", "v2"])
    assert {act.job: act.beneficiaries for act in plan.preemptions} == {"v1": ("x",), "v2": ("y",)}
    traded = checked(snapshot, plan)
    assert {act.job: act.beneficiaries for act in traded.preemptions} == {"v1": ("y",), "v2": ("x",)}
    assert {start.job: start.after for start in traded.starts} == {"x": ("v2",), "y": ("v1",)}
    assert traded.reservations == plan.reservations


def test_a_host_that_is_held_for_a_gang_is_not_traded_away() -> None:
    lost = queued(X, replacing=(HostId("h1"),), replacing_until_s=NOW_S + 100)
    snapshot = fleet(lost, queued(Y), queued(BIG, WAITS))
    plan = planned(snapshot, CROSSED)
    assert checked(snapshot, plan) == plan


def test_a_spare_is_for_gangs_that_lost_a_host() -> None:
    lost = queued(X, replacing=(HostId("h9"),), replacing_until_s=NOW_S + 100)
    snapshot = fleet(lost, queued(Y))
    spare = replace(snapshot, hosts=(replace(snapshot.hosts[0], spare=True), *snapshot.hosts[1:]))
    plan = assemble(spare, POLICY, CROSSED, ())
    assert checked(spare, plan) == plan


def test_a_round_without_the_exact_stage_trades_and_plans() -> None:
    work = running(gang("v", 1, 8, walltime_limit_s=4_000), ("h3", range(8)))
    wide = gang("wide", 3, 8)
    snapshot = fleet(work, queued(X, 900), queued(Y, 800), queued(wide, WAITS))
    numbers = Policy(solve=SolvePolicy(exact_columns=0))
    decision = solve(snapshot, numbers)
    assert {start.job: start.placement.hosts for start in decision.starts} == {"x": ("h2",), "y": ("h1",)}
    (reservation,) = decision.reservations
    assert (reservation.job, reservation.planned_start_s) == ("wide", NOW_S + 4_000 - 60 + 40)
    assert not verify(snapshot, numbers, decision)
