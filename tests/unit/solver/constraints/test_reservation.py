"""Reservation: one planned start a gang, on what hosts come to have by then; starts are over in time or leave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from ortools.sat.python import cp_model

from phalanx.model.host import Window
from phalanx.model.ids import JobId
from phalanx.model.job import AntiAffinity, Preemptible, Role, WorkerRequest
from phalanx.model.policy import Policy, TimePolicy
from phalanx.model.snapshot import JobRecord
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer
from phalanx.solver.classes import Instance
from phalanx.solver.constraints import reservation
from phalanx.solver.later import later_id, plans
from phalanx.solver.variables import Variables

NOW_S = 10_000
POLICY = Policy(time=TimePolicy(drains_per_pool=2))
HANDOVER_S = 70
"""Launch, grace and cleaning: what a start needs beside its walltime limit."""

PAIR = Role(name="w", request=WorkerRequest(gpu_milli=2_000))
CARD = Role(name="w", request=WorkerRequest(gpu_milli=1_000))
HALF = Role(name="w", request=WorkerRequest(gpu_milli=500))

Plan = tuple[int, Mapping[str, int]]
"""A planned start in seconds from now, and the workers on each host."""


def cores(number: int, count: int = 1) -> Role:
    return Role(name="w", count=count, request=WorkerRequest(cpu_milli=number * 1_000))


def fresh(record: JobRecord) -> JobRecord:
    """The job as one that waits too briefly to be planned."""
    return replace(record, submitted_s=NOW_S - 10)


def leaves(world: Any, name: str, in_s: int, role: Role, *seats: tuple[str, tuple[int, ...]], **more: Any) -> JobRecord:
    """Running work that is out of the way of its like in that many seconds."""
    return world.running(name, role, *seats, walltime_limit_s=3_600 + in_s - 40, **more)


def stays(world: Any, card: int, *, never: bool = True) -> JobRecord:
    """Work on the card until long after all that is planned here."""
    kind = Preemptible.NEVER if never else Preemptible.BY_HIGHER
    return leaves(world, f"n{card}", 50_000, CARD, ("a", (card,)), preemptible=kind)


class Round:
    """The reservation family alone over one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = replace(instance, policy=POLICY)
        self.plans = plans(self.instance)

    def starts(self, job: str) -> tuple[int, ...]:
        """The candidate starts of the gang's plan, in seconds from now."""
        (gang,) = (gang for gang in self.plans.gangs if gang.record.id == job)
        return tuple(start_s - NOW_S for start_s in gang.starts)

    def fits(self, **fixed: Any) -> bool:
        """Whether it allows exactly this, everything else not happening."""
        return self._solved(exactly=True, **fixed)

    def possible(self, **fixed: Any) -> bool:
        """Whether it allows this, whatever happens beside."""
        return self._solved(exactly=False, **fixed)

    def _solved(
        self,
        *,
        exactly: bool,
        plan: Mapping[str, Plan | tuple[Plan, ...]] | None = None,
        start: Mapping[str, Mapping[str, int]] | None = None,
        cards: Mapping[tuple[str, int], int] | None = None,
        gone: Iterable[str] = (),
        stay: Iterable[str] = (),
    ) -> bool:
        model = cp_model.CpModel()
        variables = Variables(model, self.instance, self.plans)
        reservation.add(model, self.instance, variables)
        wanted: dict[int, int] = {}
        for job in gone:
            wanted[variables.evicted(JobId(job)).index] = 1
        for job in stay:
            wanted[variables.evicted(JobId(job)).index] = 0
        for gang in variables.placed:
            job = str(gang.record.id)
            later = gang.id == later_id(gang.record)
            chosen = (plan or {}).get(job, ()) if later else ()
            times = (chosen,) if chosen and isinstance(chosen[0], int) else chosen
            hosts = times[0][1] if later and times else (start or {}).get(job, {}) if not later else {}
            if hosts:
                wanted[variables.started(gang).index] = 1
            (workers,) = gang.workers
            assert set(hosts) <= {slot.host for slot in workers.slots}, f"{job} has no slot on one of {set(hosts)}"
            for slot in workers.slots:
                if slot.host in hosts:
                    wanted[variables.workers_at(workers, slot).index] = hosts[slot.host]
            for in_s, _ in times:
                at = gang.starts.index(NOW_S + in_s)
                wanted[variables.planned_at(gang)[at].index] = 1
            if not later and workers.role.request.fractional:
                for card in self.instance.hosts["a"].cards:
                    variable = variables.on_card(workers, self.instance.hosts["a"].id, card)
                    if variable is not None and (exactly or (job, card.index) in (cards or {})):
                        wanted[variable.index] = (cards or {}).get((job, card.index), 0)
        for index in self._deciding(variables) if exactly else wanted:
            model.add(model.get_int_var_from_proto_index(index) == wanted.get(index, 0))
        return cp_model.CpSolver().solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)

    def _deciding(self, variables: Variables) -> list[int]:
        """Starts, plans and their times, workers in places and on cards, victims."""
        found = [variables.evicted(victim.id) for victim in self.instance.victims]
        for gang in variables.placed:
            found.append(variables.started(gang))
            for workers in gang.workers:
                found += [variables.workers_at(workers, slot) for slot in workers.slots]
                hosts = self.instance.hosts.values()
                on = [variables.on_card(workers, host.id, card) for host in hosts for card in host.cards]
                found += [variable for variable in on if variable is not None]
        for later in self.plans.gangs:
            found += variables.planned_at(later)
        return [variable.index for variable in found]


class TestPlannedStart:
    def round(self, world: Any) -> Round:
        """Two of four cards are free, and work leaves the others."""
        work = [leaves(world, "v", 100, CARD, ("a", (0,))), leaves(world, "w", 300, CARD, ("a", (1,)))]
        return Round(world.instance([world.host("a")], [*work, world.job("big", PAIR)]))

    def test_a_plan_has_one_of_its_candidate_starts(self, world: Any) -> None:
        case = self.round(world)
        assert case.starts("big") == (0, 100, 300)
        assert case.fits()
        for in_s in (0, 100, 300):
            assert case.fits(plan={"big": (in_s, {"a": 1})})
        assert not case.possible(plan={"big": ((0, {"a": 1}), (300, {"a": 1}))})

    def test_a_gang_that_starts_has_no_plan(self, world: Any) -> None:
        case = self.round(world)
        assert case.fits(start={"big": {"a": 1}})
        assert not case.possible(start={"big": {"a": 1}}, plan={"big": (300, {"a": 1})})

    def test_where_nobody_starves_nothing_is_planned(self, world: Any) -> None:
        assert Round(world.instance([world.host("a")], [fresh(world.job("j", PAIR))])).plans.gangs == ()


@pytest.mark.parametrize(("in_s", "open_"), [(0, True), (930, True), (931, False), (3_999, False), (4_000, True)])
def test_a_plan_is_over_before_a_window_or_starts_behind_it(world: Any, in_s: int, open_: bool) -> None:
    windows = (Window(start_s=NOW_S + 2_000, end_s=NOW_S + 4_000),)
    hosts = [world.host("a", windows=windows), world.host("b")]
    work = leaves(world, "v", in_s or 1, CARD, ("b", (0,)))
    case = Round(world.instance(hosts, [work, world.job("big", CARD, walltime_limit_s=1_000)]))
    assert case.fits(plan={"big": (in_s, {"b": 1})})
    if open_:
        assert case.fits(plan={"big": (in_s, {"a": 1})})
    else:
        assert not case.possible(plan={"big": (in_s, {"a": 1})})


class TestHosts:
    @pytest.mark.parametrize(
        ("resource", "capacity"), [("cpu_milli", 10_000), ("memory_mib", 100), ("network_mbps", 1_000)]
    )
    def test_a_start_is_over_in_time_or_leaves_the_reserved_room(
        self, world: Any, resource: str, capacity: int
    ) -> None:
        def part(tenths: int) -> Role:
            return Role(name="w", request=WorkerRequest(**{"cpu_milli": 1, resource: capacity * tenths // 10}))

        host = world.host("a", **{resource: capacity})
        for tenths, limit_s, right in ((2, 50_000, True), (3, 50_000, False), (3, 931, False), (3, 930, True)):
            small = fresh(world.job("small", part(tenths), walltime_limit_s=limit_s))
            work = leaves(world, "v", 1_000, part(5), ("a", ()))
            case = Round(world.instance([host], [work, world.job("big", part(8)), small]))
            fixed = {"plan": {"big": (1_000, {"a": 1})}, "start": {"small": {"a": 1}}}
            assert case.starts("big") == (1_000,)
            assert case.fits(**fixed) if right else not case.possible(**fixed)

    def test_a_start_of_a_higher_level_moves_the_plan(self, world: Any) -> None:
        high = fresh(world.job("high", cores(5), tier=1, walltime_limit_s=3_000))
        work = leaves(world, "v", 1_000, cores(5), ("a", ()))
        case = Round(world.instance([world.host("a", cpu_milli=10_000)], [work, world.job("big", cores(8)), high]))
        assert case.starts("big") == (1_000, 3_000 + HANDOVER_S)
        assert case.fits(plan={"big": (1_000, {"a": 1})})
        assert not case.possible(plan={"big": (1_000, {"a": 1})}, start={"high": {"a": 1}})
        assert case.fits(plan={"big": (3_000 + HANDOVER_S, {"a": 1})}, start={"high": {"a": 1}})

    def test_of_two_plans_the_later_one_finds_the_earlier_one_there(self, world: Any) -> None:
        for later_cores, right in ((6, True), (7, False)):
            jobs = [world.job("p", cores(4)), world.job("q", cores(later_cores))]
            work = leaves(world, "v", 1_000, cores(5), ("a", ()))
            case = Round(world.instance([world.host("a", cpu_milli=10_000)], [work, *jobs]))
            fixed = {"plan": {"p": (0, {"a": 1}), "q": (1_000, {"a": 1})}}
            assert case.fits(**fixed) if right else not case.possible(**fixed)
        assert not case.possible(plan={"p": (1_000, {"a": 1}), "q": (1_000, {"a": 1})})

    def test_a_plan_does_not_count_what_comes_behind_it(self, world: Any) -> None:
        jobs = [world.job("p", cores(5)), world.job("q", cores(3), tier=2)]
        work = [
            leaves(world, "v", 1_000, cores(5), ("a", ())),
            leaves(world, "w", 1_000, cores(9), ("b", ()), preemptible=Preemptible.NEVER),
        ]
        case = Round(world.instance([world.host(name, cpu_milli=10_000) for name in "ab"], [*work, *jobs]))
        # The higher level need not wait for v; the lower one has v and q beside it, if q is there by then.
        assert not case.possible(plan={"p": (0, {"a": 1}), "q": (0, {"a": 1})}, stay=("v",))
        assert case.fits(plan={"p": (1_000, {"a": 1}), "q": (0, {"a": 1})})
        assert case.fits(plan={"p": (0, {"a": 1}), "q": (1_000, {"a": 1})})

    def test_a_host_that_is_too_full_now_binds_only_who_comes_to_it(self, world: Any) -> None:
        work = [leaves(world, name, in_s, cores(6), ("a", ())) for name, in_s in (("v", 500), ("w", 1_000))]
        hosts = [world.host("a", cpu_milli=10_000), world.host("b", cpu_milli=10_000)]
        case = Round(world.instance(hosts, [*work, world.job("big", cores(4))]))
        assert case.fits(plan={"big": (0, {"b": 1})})
        assert not case.possible(plan={"big": (0, {"a": 1})})
        assert case.fits(plan={"big": (500, {"a": 1})})


class TestCards:
    def test_running_work_leaves_them_to_the_second(self, world: Any) -> None:
        work = [leaves(world, name, in_s, CARD, ("a", (n,))) for n, (name, in_s) in enumerate((("v", 99), ("w", 100)))]
        hosts = [world.host("a", gpus=2), world.host("b", gpus=2)]
        case = Round(world.instance(hosts, [*work, world.job("big", PAIR)]))
        assert case.fits(plan={"big": (99, {"b": 1})})
        assert not case.possible(plan={"big": (99, {"a": 1})})
        assert case.fits(plan={"big": (100, {"a": 1})})

    @pytest.mark.parametrize(
        ("workers", "limit_s", "right"), [(1, 50_000, True), (2, 50_000, False), (2, 931, False), (2, 930, True)]
    )
    def test_whole_workers_leave_enough_or_are_over(self, world: Any, workers: int, limit_s: int, right: bool) -> None:
        small = Role(name="w", count=2, request=WorkerRequest(gpu_milli=1_000))
        jobs = [world.job("big", PAIR), fresh(world.job("small", small, walltime_limit_s=limit_s))]
        work = leaves(world, "v", 1_000, CARD, ("a", (0,)))
        case = Round(world.instance([world.host("a", gpus=3)], [work, *jobs]))
        fixed = {"plan": {"big": (1_000, {"a": 1})}, "start": {"small": {"a": workers}}}
        assert case.fits(**fixed) if right else not case.possible(**fixed)

    @pytest.mark.parametrize(
        ("cards", "limit_s", "right"),
        [((1, 1), 50_000, True), ((1, 2), 50_000, False), ((1, 2), 931, False), ((1, 2), 930, True)],
    )
    def test_fractions_linger_on_their_cards(
        self, world: Any, cards: tuple[int, int], limit_s: int, right: bool
    ) -> None:
        jobs = [fresh(world.job(name, HALF, walltime_limit_s=limit_s)) for name in "fg"]
        work = leaves(world, "v", 1_000, CARD, ("a", (0,)))
        case = Round(world.instance([world.host("a", gpus=3)], [work, world.job("big", PAIR), *jobs]))
        fixed = {
            "plan": {"big": (1_000, {"a": 1})},
            "start": {"f": {"a": 1}, "g": {"a": 1}},
            "cards": {("f", cards[0]): 1, ("g", cards[1]): 1},
        }
        assert case.fits(**fixed) if right else not case.possible(**fixed)

    def test_plans_one_after_the_other_have_cards_of_their_own(self, world: Any) -> None:
        jobs = [world.job("p", CARD), world.job("q", CARD)]
        case = Round(world.instance([world.host("a", gpus=2)], [leaves(world, "v", 1_000, CARD, ("a", (0,))), *jobs]))
        assert case.fits(plan={"p": (0, {"a": 1}), "q": (1_000, {"a": 1})})
        assert case.fits(plan={"q": (0, {"a": 1}), "p": (1_000, {"a": 1})})
        assert not case.possible(plan={"p": (0, {"a": 1}), "q": (0, {"a": 1})})
        alone = Round(world.instance([world.host("a", gpus=1)], [leaves(world, "v", 1_000, CARD, ("a", (0,))), *jobs]))
        assert not alone.possible(plan={"p": (1_000, {"a": 1}), "q": (1_000, {"a": 1})})

    def test_a_higher_level_takes_the_cards_of_work_that_it_may_evict(self, world: Any) -> None:
        work = leaves(world, "v", 1_000, CARD, ("a", (0,)))
        for role, right in ((CARD, True), (PAIR, False)):
            jobs = [world.job("p", role), world.job("q", CARD, tier=2)]
            case = Round(world.instance([world.host("a", gpus=2), world.host("b", gpus=2)], [work, *jobs]))
            fixed = {"plan": {"p": (0, {"a": 1}), "q": (0, {"a": 1})}}
            assert case.fits(**fixed) if right else not case.possible(**fixed)
        assert case.fits(plan={"p": (1_000, {"a": 1}), "q": (0, {"b": 1})})
        assert not case.possible(plan={"p": (0, {"a": 1})}, stay=("v",))

    def test_a_start_of_a_higher_level_moves_the_plan(self, world: Any) -> None:
        high = fresh(world.job("high", CARD, tier=1, walltime_limit_s=3_000))
        work = leaves(world, "v", 1_000, CARD, ("a", (0,)), preemptible=Preemptible.NEVER)
        case = Round(world.instance([world.host("a", gpus=2)], [work, world.job("big", PAIR), high]))
        assert not case.possible(plan={"big": (1_000, {"a": 1})}, start={"high": {"a": 1}})
        assert case.fits(plan={"big": (3_000 + HANDOVER_S, {"a": 1})}, start={"high": {"a": 1}})

    def test_kinds_are_counted_apart(self, world: Any) -> None:
        host = world.host("a", gpus=2)
        mixed = replace(host, gpus=(host.gpus[0], replace(host.gpus[1], gpu_type="A100")))
        case = Round(world.instance([mixed, world.host("b", gpus=2)], [world.job("big", PAIR)]))
        (gang,) = case.plans.gangs
        assert {slot.host for workers in gang.workers for slot in workers.slots} == {"b"}


class TestLevels:
    """Plans of several levels on the cards of one host: a higher one finds the cards of lower work sooner."""

    def test_both_cannot_have_the_one_card_that_each_finds_clear(self, world: Any) -> None:
        """The higher gang could evict who is on it, the lower one waits for it to end; the other card is held for long."""
        work = [leaves(world, "v", 1_000, CARD, ("a", (0,))), stays(world, 1)]
        case = Round(
            world.instance([world.host("a", gpus=2)], [*work, world.job("p", CARD), world.job("q", CARD, tier=2)])
        )
        assert case.fits(plan={"p": (1_000, {"a": 1})})
        assert case.fits(plan={"q": (0, {"a": 1})})
        assert not case.possible(plan={"p": (1_000, {"a": 1}), "q": (0, {"a": 1})})

    def test_a_card_that_is_clear_for_the_higher_one_too_late_does_not_count(self, world: Any) -> None:
        """Of the second card the work may be evicted in 500 s only, and the lower gang never finds it clear by its time."""
        work = [
            leaves(world, "v", 1_000, CARD, ("a", (0,))),
            replace(stays(world, 1, never=False), started_s=NOW_S - 100),
        ]
        case = Round(
            world.instance([world.host("a", gpus=2)], [*work, world.job("p", CARD), world.job("q", CARD, tier=2)])
        )
        assert case.starts("q") == (0, 500)
        assert not case.possible(plan={"p": (1_000, {"a": 1}), "q": (0, {"a": 1})})
        assert case.fits(plan={"p": (1_000, {"a": 1}), "q": (500, {"a": 1})})

    def test_the_card_of_a_start_is_there_for_the_plan_behind_it(self, world: Any) -> None:
        """Whichever of the plans comes behind it, and whether it is of the higher or the lower level."""
        brief = fresh(world.job("s", CARD, tier=1, walltime_limit_s=3_000))
        case = Round(
            world.instance([world.host("a", gpus=2)], [brief, world.job("p", CARD), world.job("q", CARD, tier=2)])
        )
        over_s = 3_000 + HANDOVER_S
        for first, second in (("p", "q"), ("q", "p")):
            assert case.fits(start={"s": {"a": 1}}, plan={first: (0, {"a": 1}), second: (over_s, {"a": 1})})
        assert not case.possible(start={"s": {"a": 1}}, plan={"p": (0, {"a": 1}), "q": (0, {"a": 1})})

    def test_each_may_have_the_card_that_only_it_finds_clear(self, world: Any) -> None:
        """Work that the higher one evicts and the lower one would wait for; work that ends between their starts."""
        jobs = [world.job("p", CARD), world.job("q", CARD, tier=2)]
        work = [
            stays(world, 0, never=False),
            leaves(world, "w", 1_000, CARD, ("a", (2,)), preemptible=Preemptible.NEVER),
        ]
        case = Round(world.instance([world.host("a", gpus=3)], [*work, *jobs]))
        assert case.fits(plan={"p": (0, {"a": 1}), "q": (0, {"a": 1})})
        work = leaves(world, "v", 1_000, CARD, ("a", (0,)), preemptible=Preemptible.NEVER)
        case = Round(world.instance([world.host("a", gpus=2)], [work, *jobs]))
        assert case.fits(plan={"p": (1_000, {"a": 1}), "q": (0, {"a": 1})})

    def test_the_higher_one_alone_needs_cards_that_it_finds_clear(self, world: Any) -> None:
        work = [leaves(world, "v", 1_000, CARD, ("a", (0,))), stays(world, 1)]
        case = Round(
            world.instance([world.host("a", gpus=3)], [*work, world.job("p", CARD), world.job("q", PAIR, tier=2)])
        )
        assert case.fits(plan={"q": (0, {"a": 1})})
        assert not case.possible(plan={"p": (0, {"a": 1}), "q": (0, {"a": 1})})


class TestVictims:
    def test_a_victim_is_not_in_the_way(self, world: Any) -> None:
        work = world.running("v", PAIR, ("a", (0, 1)), walltime_limit_s=90_000)
        other = leaves(world, "w", 1_000, CARD, ("a", (2,)), preemptible=Preemptible.NEVER)
        high = fresh(world.job("high", CARD, tier=1, walltime_limit_s=500))
        three = Role(name="w", request=WorkerRequest(gpu_milli=3_000))
        hosts = [world.host("a", gpus=3), world.host("b", gpus=3)]
        case = Round(world.instance(hosts, [work, other, world.job("big", three), high]))
        fixed = {"plan": {"big": (1_000, {"a": 1})}, "start": {"high": {"a": 1}}}
        assert case.fits(**fixed, gone=("v",))
        assert not case.possible(**fixed, stay=("v",))
        assert not case.possible(plan={"big": (0, {"a": 1})}, gone=("v",))

    def test_what_a_victim_leaves_on_the_host_is_there_for_plans(self, world: Any) -> None:
        work = world.running("v", cores(6), ("a", ()), walltime_limit_s=90_000)
        high = fresh(world.job("high", cores(4), tier=1, walltime_limit_s=500))
        hosts = [world.host(name, cpu_milli=10_000) for name in "ab"]
        case = Round(world.instance(hosts, [work, world.job("big", cores(6)), high]))
        fixed = {"plan": {"big": (0, {"a": 1})}, "start": {"high": {"a": 1}}}
        assert case.fits(**fixed, gone=("v",))
        assert not case.possible(**fixed, stay=("v",))

    def test_nobody_leaves_for_a_plan_alone(self, world: Any) -> None:
        work = world.running("v", PAIR, ("a", (0, 1)), walltime_limit_s=90_000)
        jobs = [work, world.job("big", PAIR), fresh(world.job("high", CARD, tier=1)), fresh(world.job("like", CARD))]
        case = Round(world.instance([world.host("a"), world.host("b")], jobs))
        assert case.fits(gone=("v",), start={"high": {"a": 1}})
        assert not case.possible(gone=("v",), start={"high": {"a": 0, "b": 1}})
        assert not case.possible(gone=("v",), start={"high": {"a": 0, "b": 0}, "like": {"a": 1}})

    def test_a_limit_or_a_label_brings_them_together(self, world: Any) -> None:
        hosts = [world.host("a", rack="r"), world.host("b", rack="r"), world.host("c", rack="s")]
        near, wide = ((AntiAffinity(label="x", layer=layer),) for layer in (Layer.HOST, Layer.RACK))
        limit = (GpuQuota(gpu_type="H100", gpu_milli=4_000),)
        for limits, labels, right in ((None, (), False), (limit, (), True), (None, near, False), (None, wide, True)):
            teams = [Team(id="t", limit=limits), Team(id="other")]
            work = world.running("v", PAIR, ("a", (0, 1)), walltime_limit_s=90_000, anti_affinity=labels)
            high = fresh(world.job("high", CARD, tier=1, anti_affinity=labels))
            jobs = [work, world.job("big", PAIR, team="other"), high]
            case = Round(world.instance(hosts, jobs, teams=teams))
            fixed = {"gone": ("v",), "start": {"high": {"a": 0, "b": 1, "c": 0}}}
            assert case.fits(**fixed) if right else not case.possible(**fixed)
