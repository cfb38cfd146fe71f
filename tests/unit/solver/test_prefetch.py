"""Pre-stage orders: for whom, where, how much, how fast; and the verifier on each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_worlds import NOW_S, ask, begin, box, decide, gang, placement, queued, running, world

from phalanx.model.decision import Prefetch, Resize
from phalanx.model.host import CachedDataset, Host
from phalanx.model.ids import ReservationId
from phalanx.model.job import CheckpointPolicy, DatasetRef, Job
from phalanx.model.job_state import JobState, StopCause
from phalanx.model.policy import ObjectivePolicy, Policy, TimePolicy
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.prefetch import open_prefetches, prefetches
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify
from phalanx.solver.verify_prefetch import prefetch

POLICY = Policy(time=TimePolicy(drains_per_pool=2), objective=ObjectivePolicy(fetch_mbps=8_000))
EEG = DatasetRef(name="eeg", size_mib=1_000, shards=10)
MEG = DatasetRef(name="meg", size_mib=600, shards=10)


def disk(name: str, *cached: CachedDataset, free_mib: int = 5_000, **more: object) -> Host:
    return box(name, cached=cached, disk_free_mib=free_mib, **more)


def copy(name: str, shards: int, size_mib: int) -> CachedDataset:
    return CachedDataset(dataset=name, digest="", shards=shards, shards_total=10, size_mib=size_mib)


def reading(name: str, workers: int, data: DatasetRef | None = EEG, **more: object) -> Job:
    return replace(gang(name, workers, 8, walltime_limit_s=3_600), dataset=data, **more)


def plan(job: Job, in_s: int, *hosts: str) -> Reservation:
    seats = ((host, tuple(range(8))) for host in hosts)
    return Reservation(
        id=ReservationId(job.id),
        job=job.id,
        placement=placement(job, *seats),
        planned_start_s=NOW_S + in_s,
        created_s=NOW_S,
    )


def told(orders: tuple[Prefetch, ...]) -> list[tuple[str, str, str, int, int, int]]:
    return [(o.host, o.dataset.name, o.job, o.start_s - NOW_S, o.mib, o.mbps) for o in orders]


def ordered(snapshot: Snapshot, *plans: Reservation) -> list[tuple[str, str, str, int, int, int]]:
    """The orders for these plans; the verifier finds them right, and nothing else is."""
    decision = replace(decide(snapshot, policy=POLICY), reservations=plans)
    orders = prefetches(snapshot, POLICY, (), plans)
    assert list(prefetch(snapshot, POLICY, replace(decision, prefetches=orders))) == []
    return told(orders)


class TestOrders:
    def test_reserved_hosts_load_what_they_lack(self) -> None:
        job = reading("big", 3)
        hosts = [disk("a"), disk("b", copy("eeg", 7, 700)), disk("c", copy("eeg", 10, 1_000)), disk("d")]
        found = ordered(world(hosts, queued(job)), plan(job, 60, "a", "b", "c"))
        assert found == [("a", "eeg", "big", 60, 1_000, 8_000), ("b", "eeg", "big", 60, 300, 8_000)]

    def test_a_job_without_data_and_a_host_without_a_disk_that_is_told_of_load_nothing(self) -> None:
        bare, job = reading("bare", 1, None), reading("job", 1)
        snapshot = world([disk("a"), disk("b", free_mib=0)], queued(bare), queued(job))
        assert ordered(snapshot, plan(bare, 60, "a"), plan(job, 60, "b")) == []

    def test_a_plan_that_is_due_counts_as_now(self) -> None:
        job = reading("big", 1)
        assert [order[3] for order in ordered(world([disk("a")], queued(job)), plan(job, -20, "a"))] == [0]

    def test_the_disk_is_shared_out_in_the_order_of_the_starts(self) -> None:
        first, second, third = reading("z", 1), reading("y", 1, MEG), reading("x", 1)
        plans = (plan(second, 600, "a"), plan(first, 60, "a"), plan(third, 900, "a"))
        jobs = (queued(first), queued(second), queued(third))
        found = ordered(world([disk("a", free_mib=1_200)], *jobs), *plans)
        assert [order[1:5] for order in found] == [("eeg", "z", 60, 1_000), ("meg", "y", 600, 200)]
        assert [order[1] for order in ordered(world([disk("a", free_mib=1_000)], *jobs), *plans)] == ["eeg"]

    def test_data_sets_that_nobody_reads_make_room_and_others_do_not(self) -> None:
        job, reader = reading("big", 1), replace(gang("reader", 1, 1), dataset=MEG)
        here = disk("a", copy("meg", 10, 600), copy("old", 10, 250), free_mib=50)
        at_work = running(reader, ("a", (7,)))
        assert ordered(world([here], queued(job), at_work), plan(job, 60, "a"))[0][4] == 300
        assert ordered(world([here], queued(job)), plan(job, 60, "a"))[0][4] == 900

    def test_what_others_have_booked_of_the_network_is_theirs(self) -> None:
        job = reading("big", 1)
        for booked, speed in ((7_000, [3_000]), (1_000, [8_000]), (10_000, [])):
            request = ask(1, network_mbps=booked)
            other = running(gang("other", request=request), ("a", (0,)))
            snapshot = world([disk("a", network_mbps=10_000)], queued(job), other)
            assert [order[5] for order in ordered(snapshot, plan(job, 60, "a"))] == speed
        unstated = world([disk("a", network_mbps=0)], queued(job))
        assert [order[5] for order in ordered(unstated, plan(job, 60, "a"))] == [8_000]


class TestVictims:
    def test_a_start_that_waits_for_its_victims_is_loaded_for_and_one_that_does_not_loads_itself(self) -> None:
        job, victim = reading("big", 1, tier=1), gang("v", 1, 8, tier=4)
        snapshot = world([disk("a")], queued(job), running(victim, ("a", tuple(range(8))), ran_s=7_200))
        start = begin(job, ("a", tuple(range(8))))
        assert told(prefetches(snapshot, POLICY, [replace(start, after=(victim.id,))])) == [
            ("a", "eeg", "big", 0, 1_000, 8_000)
        ]
        assert prefetches(snapshot, POLICY, [start]) == ()

    def test_the_order_stands_until_the_victim_has_left(self) -> None:
        job, victim = reading("big", 1), gang("v", 1, 8)
        cards = tuple(range(8))
        seat = placement(job, ("a", cards))
        held = replace(queued(job), state=JobState.PLANNED, attempt=1, placement=seat, planned_s=NOW_S - 5)
        leaves = replace(running(victim, ("a", cards)), state=JobState.STOPPING)
        assert told(open_prefetches(world([disk("a")], held, leaves), POLICY)) == [("a", "eeg", "big", 0, 1_000, 8_000)]
        assert open_prefetches(world([disk("a")], held), POLICY) == ()


class TestReturns:
    def moves(self) -> tuple[JobRecord, Resize]:
        """It moves from `a` to `b`."""
        job = reading("mover", 1, checkpoint=CheckpointPolicy(interval_s=60, write_s=5, grace_s=30))
        record = running(job, ("a", tuple(range(8))), ran_s=7_200)
        return record, Resize(job=job.id, attempt=2, placement=placement(job, ("b", tuple(range(8)))))

    def test_a_host_to_which_a_gang_returns_loads_what_it_lacks(self) -> None:
        record, act = self.moves()
        for shards, missing in ((0, 1_000), (4, 600)):
            here = [copy("eeg", shards, 100 * shards)] if shards else []
            snapshot = world([disk("a"), disk("b", *here)], record)
            orders = prefetches(snapshot, POLICY, (), (), [act])
            assert told(orders) == [("b", "eeg", "mover", 0, missing, 8_000)]
            decision = replace(decide(snapshot, policy=POLICY), resizes=(act,), prefetches=orders)
            assert list(prefetch(snapshot, POLICY, decision)) == []
            assert list(prefetch(snapshot, POLICY, replace(decision, prefetches=()))) != []

    def test_the_order_stands_while_the_hosts_are_held_for_it(self) -> None:
        record, _ = self.moves()
        held = {"replacing": ("b",), "replacing_until_s": NOW_S + 60, "resized_to": 1}
        leaves = replace(record, state=JobState.STOPPING, stop_cause=StopCause.REQUEUED, **held)
        waits = replace(leaves, state=JobState.QUEUED, stop_cause=None, placement=None, started_s=None)
        fleet = [disk("a"), disk("b")]
        for there in (leaves, waits):
            assert told(open_prefetches(world(fleet, there), POLICY)) == [("b", "eeg", "mover", 0, 1_000, 8_000)]
        lost = replace(waits, resized_to=None)
        late = replace(waits, replacing_until_s=NOW_S)
        for there in (record, lost, late):
            assert open_prefetches(world(fleet, there), POLICY) == ()

    def test_none_once_it_starts(self) -> None:
        record, _ = self.moves()
        held = {"replacing": ("b",), "replacing_until_s": NOW_S + 60, "resized_to": 1}
        waits = replace(record, state=JobState.QUEUED, placement=None, started_s=None, **held)
        decision = solve(world([disk("a"), disk("b")], waits), POLICY)
        assert [start.job for start in decision.starts] == ["mover"]
        assert decision.prefetches == ()


class TestRounds:
    def starving(self) -> Snapshot:
        """`big` needs both hosts; the work on `b` ends in some minutes."""
        job = reading("big", 2)
        work = gang("work", 1, 8, walltime_limit_s=1_800)
        record: JobRecord = running(work, ("b", tuple(range(8))), ran_s=1_000)
        hosts = [disk("a"), disk("b", copy("eeg", 4, 400))]
        return world(hosts, queued(job, POLICY.time.starve_after_s), record)

    def test_a_round_orders_for_what_it_plans_and_the_orders_stand_between_rounds(self) -> None:
        snapshot = self.starving()
        decision = solve(snapshot, POLICY)
        assert verify(snapshot, POLICY, decision) == ()
        (made,) = decision.reservations
        in_s = made.planned_start_s - NOW_S
        assert in_s > 0
        assert told(decision.prefetches) == [
            ("a", "eeg", "big", in_s, 1_000, 8_000),
            ("b", "eeg", "big", in_s, 600, 8_000),
        ]
        after = replace(snapshot, reservations=decision.reservations)
        assert open_prefetches(after, POLICY) == decision.prefetches
        assert open_prefetches(snapshot, POLICY) == ()

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("mib", 999),
            ("mib", 1_001),
            ("mbps", 7_999),
            ("start_s", NOW_S),
            ("job", "work"),
            ("host", "nowhere"),
            ("dataset", MEG),
        ],
    )
    def test_an_order_told_wrongly_is_noticed(self, field: str, value: object) -> None:
        snapshot = self.starving()
        decision = solve(snapshot, POLICY)
        first, second = decision.prefetches
        wrong = replace(decision, prefetches=(replace(first, **{field: value}), second))
        assert {str(violation.family) for violation in verify(snapshot, POLICY, wrong)} == {"reservation"}

    def test_none_is_missing_doubled_needless_or_out_of_order(self) -> None:
        snapshot = self.starving()
        decision = solve(snapshot, POLICY)
        first, second = decision.prefetches
        needless = replace(first, host=first.host, dataset=MEG)
        for orders in ((first,), (), (second, first), (first, first, second), (first, needless, second)):
            assert verify(snapshot, POLICY, replace(decision, prefetches=orders)) != ()


SETS = st.builds(DatasetRef, name=st.sampled_from("abc"), size_mib=st.integers(0, 900), shards=st.just(10))
COPIES = st.builds(lambda name, shards: copy(name, shards, 90 * shards), st.sampled_from("abcd"), st.integers(0, 10))
DISKS = st.tuples(st.integers(0, 2_000), st.lists(COPIES, max_size=3, unique_by=lambda each: each.dataset))
PLANNED = st.lists(st.tuples(SETS, st.integers(-9, 9), st.sets(st.sampled_from(("h0", "h1")), min_size=1)), max_size=5)


@settings(deadline=None, max_examples=80)
@given(st.lists(DISKS, min_size=2, max_size=2), PLANNED, st.integers(0, 12_000), SETS)
def test_orders_of_any_world_are_right_fit_and_leave_nothing_out(disks, planned, booked, read) -> None:
    hosts = [disk(f"h{n}", *cached, free_mib=free, network_mbps=10_000) for n, (free, cached) in enumerate(disks)]
    jobs = [reading(f"j{n}", len(names), data) for n, (data, _, names) in enumerate(planned)]
    plans = tuple(plan(job, in_s, *sorted(names)) for job, (_, in_s, names) in zip(jobs, planned, strict=True))
    work = replace(gang("work", request=ask(1, network_mbps=booked)), dataset=read)
    found = ordered(world(hosts, *map(queued, jobs), running(work, ("h0", (0,)))), *plans)
    for host in hosts:
        mine = [order for order in found if order[0] == host.id]
        assert sum(order[4] for order in mine) <= host.disk_free_mib + sum(each.size_mib for each in host.cached)
        assert len({order[1] for order in mine}) == len(mine)
        assert [order[3] for order in mine] == sorted(order[3] for order in mine)
    if booked >= 10_000:
        assert [order for order in found if order[0] == "h0"] == []
