"""One gang against every placement there is: the greedy finds one where one exists, and admission never lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from strategies import policies, snapshots

from phalanx.model.decision import Start
from phalanx.model.host import Host
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.admission import admit
from phalanx.solver.books import Books
from phalanx.solver.demand import candidates
from phalanx.solver.empty_fleet import well
from phalanx.solver.greedy import greedy
from phalanx.solver.verify import verify_starts


def possible(snapshot: Snapshot, policy: Policy, record: JobRecord) -> bool:
    """Whether any placement of the gang keeps every rule, by trying them all."""
    job = record.job
    asked = [(role, index) for role in job.roles for index in range(role.count)]
    books = Books(snapshot)

    def search(placed: list[WorkerPlacement]) -> bool:
        if len(placed) == len(asked):
            start = Start(job=record.id, attempt=record.attempt + 1, placement=Placement(workers=tuple(placed)))
            ways = (start, replace(start, inside_guarantee=True))
            return any(verify_starts(snapshot, policy, [way]) == () for way in ways)
        role, index = asked[len(placed)]
        number = 1 if role.request.fractional else role.request.whole_gpus
        for host in snapshot.hosts:
            for gpus in card_sets(books, host, number):
                worker = WorkerPlacement(role=role.name, index=index, host=host.id, gpus=gpus)
                if books.fits(job, worker):
                    books.take(job, worker)
                    found = search([*placed, worker])
                    books.give(job, worker)
                    if found:
                        return True
        return False

    return search([])


def card_sets(books: Books, host: Host, number: int) -> Iterator[tuple[int, ...]]:
    """Sets of cards, of equal ones one: cards of equal kind and load are interchangeable."""
    seen = set()
    cards = books.hosts[host.id].cards
    for gpus in combinations(sorted(cards), number):
        looks = tuple(
            sorted(
                (cards[i].kind, cards[i].healthy, cards[i].milli, cards[i].memory_mib, *sorted(cards[i].teams))
                for i in gpus
            )
        )
        if looks not in seen:
            seen.add(looks)
            yield gpus


@settings(deadline=None, max_examples=150)
@given(snapshot=snapshots(max_hosts=3, max_cards=3, max_jobs=1, max_workers=3), policy=policies())
def test_a_gang_starts_iff_some_placement_keeps_every_rule(snapshot: Snapshot, policy: Policy) -> None:
    for record in candidates(snapshot):
        if len(record.job.roles) == 1:
            assert bool(greedy(snapshot, policy)) == possible(snapshot, policy, record)


@settings(deadline=None, max_examples=150)
@given(snapshot=snapshots(max_hosts=3, max_cards=3, max_jobs=1, max_workers=3, max_running=0), policy=policies())
def test_a_gang_is_refused_only_where_no_placement_on_the_empty_fleet_exists(
    snapshot: Snapshot, policy: Policy
) -> None:
    empty = replace(snapshot, hosts=tuple(replace(well(host), windows=()) for host in snapshot.hosts))
    # Admission does not look at reserved pools: they may change, and a job larger than the rest may wait for that.
    policy = replace(policy, reserved=())
    for record in snapshot.jobs:
        admission = admit(record.job, snapshot, policy)
        queued = replace(record, state=JobState.QUEUED, placement=None, not_before_s=0, demoted=False)
        fits = possible(replace(empty, jobs=(queued,)), policy, queued)
        assert admission.accepted or not fits
        # Only gangs of several roles may be given the benefit of the doubt.
        assert fits or not admission.accepted or len(record.job.roles) > 1
        assert (admission.reason is None) == admission.accepted
