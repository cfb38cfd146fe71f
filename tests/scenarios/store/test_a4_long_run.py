"""A4, K20: after a long run of submissions, cancellations, lost hosts and rounds, the store that lived through it and
the one opened anew decide the same; nothing was ever booked twice, started twice or left behind.
"""

from __future__ import annotations

import random

import pytest
from store_world import HOSTS, World, cards_held, check_books

from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.adapters.fakes.executor import FakeExecutor, Script
from phalanx.adapters.reconcile import events_of, reconcile
from phalanx.model.job import Preemptible
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy, SolvePolicy
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify

POLICY = Policy(solve=SolvePolicy(exact_columns=0))


def script(intent) -> Script:
    """How an attempt behaves, told by its name."""
    dice = random.Random(f"{intent.job.id}/{intent.attempt}")
    return Script(
        run_s=dice.randrange(1, 200),
        codes=tuple(int(dice.random() < 0.05) for _ in intent.placement.workers),
        refused="no such image" if dice.random() < 0.05 else "",
        stop_s=dice.randrange(1, 40),
        ignores_warning=dice.random() < 0.1,
    )


class Fleet:
    """The scheduler's loop and each site's adapter over one store, on a virtual clock."""

    def __init__(self, store, seed: int) -> None:
        self.world, self.dice, self.jobs = World(store), random.Random(seed), 0
        self.clock = VirtualClock(self.world.now)
        self.sites = {
            site: FakeExecutor(self.clock, [h for h in store.hosts() if h.path.site == site], script) for site in "ab"
        }

    def step(self) -> None:
        self.world.now = self.clock.now_s()
        self.users()
        self.accidents()
        self.round()
        for site in self.sites:
            self.adapter(site)
        check_books(self.world.store)
        assert all(len(owners) == 1 for owners in cards_held(self.world.store).values())
        assert all(count == 1 for executor in self.sites.values() for count in executor.launches.values())
        self.clock.sleep(self.dice.randrange(1, 30))

    def users(self) -> None:
        for _ in range(self.dice.randrange(3)):
            self.jobs += 1
            older = f"j{self.dice.randrange(1, self.jobs)}" if self.jobs > 1 and self.dice.random() < 0.1 else None
            self.world.submit(
                f"j{self.jobs}",
                team=self.dice.choice(["red", "blue"]),
                workers=self.dice.choice([1, 1, 2]),
                gpus=self.dice.choice([1, 2, 4, 8]),
                tier=self.dice.choice([1, 2, 3, 4]),
                preemptible=self.dice.choice([Preemptible.BY_HIGHER, Preemptible.ANYTIME]),
                queue_deadline_s=self.dice.choice([None, 600]),
                after=(older,) if older else (),
            )
        live = self.world.store.snapshot(self.world.now).jobs
        if live and self.dice.random() < 0.2:
            self.world.store.cancel(self.dice.choice(live).id, now_s=self.world.now)

    def accidents(self) -> None:
        host = self.dice.choice(HOSTS)
        executor, kind = self.sites[host[0]], self.dice.random()
        if kind < 0.03:
            executor.lose_host(host)
        elif kind < 0.06:
            executor.silence(host)
        elif kind < 0.4:
            executor.return_host(host)

    def round(self) -> None:
        store, now_s = self.world.store, self.world.now
        store.sweep(now_s)
        snapshot = store.snapshot(now_s)
        decision = solve(snapshot, POLICY)
        assert verify(snapshot, POLICY, decision) == ()
        assert store.commit(decision, snapshot, term=self.world.term, now_s=now_s).committed

    def adapter(self, site: str) -> None:
        store, executor, now_s = self.world.store, self.sites[site], self.world.now
        observation = executor.observe()
        intents = store.intents(site)
        hosts = [host for host in store.hosts() if host.path.site == site]
        store.append(tuple(events_of(intents, observation, now_s, hosts)), now_s=now_s)
        for instruction in reconcile(intents, observation):
            store.append(executor.apply(instruction), now_s=now_s)


@pytest.mark.parametrize("seed", [1])
def test_a_long_run_and_a_fresh_start_decide_the_same(backend, seed: int) -> None:
    fleet = Fleet(backend.open(POLICY), seed)
    for _ in range(4):
        for _ in range(15):
            fleet.step()
        now_s = fleet.clock.now_s()
        lived, fresh = fleet.world.store.snapshot(now_s), backend.open(POLICY).snapshot(now_s)
        assert fresh == lived
        assert solve(fresh, POLICY) == solve(lived, POLICY)
    for record in fleet.world.store.snapshot(fleet.clock.now_s()).jobs:
        fleet.world.store.cancel(record.id, now_s=fleet.clock.now_s())
    for host in HOSTS:
        fleet.sites[host[0]].return_host(host)
    for _ in range(12):
        fleet.world.now = fleet.clock.now_s()
        fleet.adapter("a")
        fleet.adapter("b")
        fleet.clock.sleep(20)
    assert fleet.world.store.snapshot(fleet.clock.now_s()).jobs == ()
    assert all(executor.observe().gangs == () for executor in fleet.sites.values())
    states = {record.state for record in fleet.world.store.jobs(limit=1000).jobs}
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED} <= states
