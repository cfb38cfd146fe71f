"""The verifier on guarantees and reserved pools: for each rule a plan just inside and one just outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from small_worlds import POLICY, ask, begin, box, gang, queued, running, world

from phalanx.model.decision import Start
from phalanx.model.ids import JobId, SiteId
from phalanx.model.job import Job, Preemptible
from phalanx.model.policy import Policy, ReservedPool
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.goals import values
from phalanx.solver.plan import assemble
from phalanx.solver.rights import rights_of
from phalanx.solver.verify import verify_starts
from phalanx.solver.verify_rights import unserved

Broken = list[tuple[str, str, int, str]]
OWNER = Team(id="owner", guarantee=(GpuQuota(gpu_type="H100", gpu_milli=4_000),))
CHILD, OTHER = Team(id="child", parent="owner"), Team(id="other")
RESERVED = replace(POLICY, reserved=(ReservedPool(site=SiteId("s"), gpu_type="H100", gpu_milli=2_000),))


def old(name: str, cards: Iterable[int], team: str, **more: object) -> JobRecord:
    """A job of tier 3 that runs long enough to be evicted."""
    gpus = tuple(cards)
    facts = {key: more.pop(key) for key in ("inside_guarantee", "demoted", "ran_s") if key in more}
    request = more.pop("request", None) or ask(len(gpus))
    job = gang(name, request=request, team=team, **more)
    return running(job, ("h1", gpus), **{"ran_s": 900, **facts})


def fleet(*records: JobRecord | Job, gpus: int = 8) -> Snapshot:
    return world([box("h1", gpus)], *records, teams=(OWNER, CHILD, OTHER))


def inside(job: Job, *cards: int) -> Start:
    return replace(begin(job, ("h1", cards)), inside_guarantee=True)


def planned(snapshot: Snapshot, starts: list[Start], *victims: str, policy: Policy = POLICY) -> Broken:
    plan = assemble(snapshot, policy, starts, [JobId(name) for name in victims])
    found = verify_starts(snapshot, policy, plan.starts, plan.preemptions)
    assert all(violation.message and violation.amount > 0 for violation in found)
    return [(str(v.family), v.subject, v.amount, v.unit) for v in found]


class TestInside:
    def test_just_what_is_guaranteed(self) -> None:
        job = gang("a", 1, 4, team="child")
        assert planned(fleet(job), [inside(job, 0, 1, 2, 3)]) == []
        job = gang("a", 1, 5, team="child")
        assert planned(fleet(job), [inside(job, 0, 1, 2, 3, 4)]) == [("guarantee", "owner", 1_000, "milli-GPU")]

    def test_work_outside_and_victims_count_as_use(self) -> None:
        job = gang("a", 1, 2, team="owner")
        assert planned(fleet(old("r", [0, 1], "child"), job), [inside(job, 2, 3)]) == []
        assert planned(fleet(old("r", [0, 1, 2], "child"), job), [inside(job, 3, 4)]) == [
            ("guarantee", "owner", 1_000, "milli-GPU")
        ]
        high = gang("a", 1, 2, team="owner", tier=1)
        gone = planned(fleet(old("r", range(8), "child"), high), [inside(high, 0, 1)], "r")
        assert ("guarantee", "owner", 2_000, "milli-GPU") in gone

    def test_level_0_neither_uses_nor_has_any(self) -> None:
        job = gang("a", 1, 4, team="owner")
        assert planned(fleet(old("r", [0, 1], "child", demoted=True), job), [inside(job, 4, 5, 6, 7)]) == []
        low = gang("a", team="owner", preemptible=Preemptible.ANYTIME)
        assert planned(fleet(low), [inside(low, 0)]) == [("guarantee", "a", 1_000, "milli-GPU")]

    def test_without_gpus_or_holder_nothing_is_inside(self) -> None:
        cpu = gang("a", request=ask(0), team="owner")
        assert [v[:2] for v in planned(fleet(cpu), [inside(cpu)])] == [("guarantee", "a")]
        job = gang("a", team="other")
        assert planned(fleet(job), [inside(job, 0)]) == [("guarantee", "a", 1_000, "milli-GPU")]

    def test_never_starts_inside_only(self) -> None:
        job = gang("a", team="owner", preemptible=Preemptible.NEVER)
        assert planned(fleet(job), [begin(job, ("h1", [0]))]) == [("guarantee", "a", 1_000, "milli-GPU")]
        assert planned(fleet(job), [inside(job, 0)]) == []
        top = gang("a", team="other", preemptible=Preemptible.NEVER, tier=2)
        assert planned(fleet(top), [begin(top, ("h1", [0]))]) == []
        demoted = queued(job, demoted=True)
        assert planned(fleet(demoted), [begin(job, ("h1", [0]))]) == []

    def test_the_flag_comes_first_then_the_longest_running(self) -> None:
        late, early = old("late", [0, 1, 2], "owner", ran_s=700), old("early", [3, 4, 5], "owner", ran_s=900)
        small = old("small", [6], "owner", ran_s=650)
        assert rights_of(fleet(late, early, small)).inside == {"early", "small"}
        assert rights_of(fleet(replace(late, inside_guarantee=True), early, small)).inside == {"late", "small"}


class TestWhoMayEvictWhom:
    def one(self, victim: JobRecord, job: Job, *, claims: bool = False) -> bool:
        start = replace(begin(job, ("h1", range(8))), inside_guarantee=claims)
        found = planned(fleet(victim, job), [start], victim.id)
        return not [family for family, *_ in found if family == "preemption"]

    def test_an_owner_takes_back_from_its_own_level_what_is_borrowed(self) -> None:
        job = gang("a", 1, 4, team="owner")
        borrower = old("r", range(8), "other")
        for claims in (True, False):
            start = replace(begin(job, ("h1", range(4))), inside_guarantee=claims)
            found = planned(fleet(borrower, job), [start], "r")
            assert (found == []) is claims

    def test_not_from_tiers_1_and_2(self) -> None:
        job = gang("a", 1, 4, team="owner", tier=2)
        start = replace(begin(job, ("h1", range(4))), inside_guarantee=True)
        assert planned(fleet(old("r", range(8), "other", tier=2), job), [start], "r") != []

    def test_inside_work_leaves_for_its_own_team_and_for_tier_1_alone(self) -> None:
        covered = old("r", range(4), "owner")
        for team, tier, may in (("child", 2, True), ("other", 2, False), ("other", 1, True), ("owner", 3, False)):
            job = gang("a", 1, 8, team=team, tier=tier)
            assert self.one(covered, job) is may, (team, tier)

    def test_more_than_the_guarantee_is_not_inside(self) -> None:
        assert self.one(old("r", range(5), "owner"), gang("a", 1, 8, team="other", tier=2))

    def test_goals_count_inside_starts_less_inside_victims(self) -> None:
        covered, job = old("r", range(4), "owner"), gang("a", 1, 8, team="other", tier=1)
        plan = assemble(fleet(covered, job), POLICY, [begin(job, ("h1", range(8)))], [covered.id])
        reached = {g.name: g.value for g in values(fleet(covered, job), POLICY, plan.starts, plan.preemptions)}
        assert reached["guarantee[1]"] == -4_000
        assert "guarantee[3]" not in reached
        mine = gang("b", 1, 3, team="owner")
        goals = values(fleet(mine), POLICY, [inside(mine, 0, 1, 2)])
        assert (goals[0].name, goals[0].value, goals[0].unit) == ("guarantee[1]", 3_000, "mGPU")


class TestReserved:
    def test_level_1_leaves_the_reserved_cards(self) -> None:
        job = gang("a", 1, 6, team="other")
        assert planned(fleet(job), [begin(job, ("h1", range(6)))], policy=RESERVED) == []
        job = gang("a", 1, 7, team="other")
        assert planned(fleet(job), [begin(job, ("h1", range(7)))], policy=RESERVED) == [
            ("reserved", "s/H100", 1_000, "milli-GPU")
        ]

    def test_running_work_of_level_1_counts_and_other_levels_do_not(self) -> None:
        job, held = gang("a", 1, 4, team="other"), old("r", [0, 1, 2], "other")
        assert planned(fleet(held, job), [begin(job, ("h1", range(3, 7)))], policy=RESERVED) == [
            ("reserved", "s/H100", 1_000, "milli-GPU")
        ]
        for levels in ({"tier": 2}, {"preemptible": Preemptible.ANYTIME}):
            other = old("r", [0, 1, 2], "other", **levels)
            assert planned(fleet(other, job), [begin(job, ("h1", range(3, 7)))], policy=RESERVED) == []
            lent = gang("b", 1, 8, team="other", **levels)
            assert planned(fleet(lent), [begin(lent, ("h1", range(8)))], policy=RESERVED) == []

    def test_broken_cards_and_hosts_that_take_no_work_are_no_part_of_it(self) -> None:
        job = gang("a", 1, 6, team="other")
        spare = world([box("h1"), box("h2", spare=True)], job)
        assert planned(spare, [begin(job, ("h1", range(6)))], policy=RESERVED) == []
        cards = [replace(gpu, healthy=gpu.index != 7) for gpu in box("h1").gpus]
        broken = world([replace(box("h1"), gpus=tuple(cards))], job)
        assert planned(broken, [begin(job, ("h1", range(6)))], policy=RESERVED) == [
            ("reserved", "s/H100", 1_000, "milli-GPU")
        ]

    def test_what_a_borrower_leaves_of_it_is_for_who_may_evict_it(self) -> None:
        job = gang("a", 1, 4, team="owner")
        snapshot = fleet(old("r", [0, 1, 2], "other"), job)
        start = inside(job, 3, 4, 5, 6)
        plan = assemble(snapshot, RESERVED, [start], [JobId("r")])
        assert plan.starts[0].after == ("r",)
        assert planned(snapshot, [start], "r", policy=RESERVED) == []
        outside = planned(snapshot, [replace(start, inside_guarantee=False)], "r", policy=RESERVED)
        assert ("reserved", "s/H100", 1_000, "milli-GPU") in outside

    def test_a_victim_that_frees_none_of_what_is_needed_is_needless(self) -> None:
        job = gang("a", 1, 3, team="owner")
        snapshot = fleet(old("r", [0, 1, 2], "other"), job)
        assert planned(snapshot, [inside(job, 3, 4, 5)], "r", policy=RESERVED) == [("preemption", "r", 1, "needless")]


def test_flows_find_the_way_around() -> None:
    covered, lent = old("own", range(4), "owner"), old("loan", [4, 5], "other")
    rights = rights_of(fleet(covered, lent))
    own, loan = rights.runner(covered), rights.runner(lent)
    mine = rights.starter(queued(gang("x", team="child", tier=2)), inside=False)
    theirs = rights.starter(queued(gang("y", team="other", tier=2)), inside=False)
    # Mine may use both, theirs only the loan: mine gives the loan up for them.
    assert unserved(0, {own: 4, loan: 2}, {mine: 4, theirs: 2}) == 0
    assert unserved(0, {loan: 2, own: 4}, {mine: 4, theirs: 2}) == 0
    assert unserved(0, {own: 4, loan: 2}, {mine: 3, theirs: 3}) == 1
    assert unserved(1, {own: 4, loan: 2}, {mine: 3, theirs: 3}) == 0
    assert unserved(-1, {own: 4, loan: 2}, {mine: 4, theirs: 1}) == 0
    assert unserved(-1, {own: 4, loan: 2}, {mine: 3, theirs: 2}) == 1, "the excess counts against theirs too"
    assert unserved(-9, {own: 4}, {theirs: 0}) == 0
