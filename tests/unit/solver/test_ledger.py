"""The ledger: what is held of limits and where labels are follows every worker that comes and goes."""

from __future__ import annotations

from small_worlds import ask, box, gang, placement, role, running, world

from phalanx.model.ids import HostId, TeamId
from phalanx.model.job import AntiAffinity, Job
from phalanx.model.placement import WorkerPlacement
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer
from phalanx.solver.books import Books
from phalanx.solver.ranks import Ranks

LAB = TeamId("lab")
TEAMS = (
    Team(id=LAB, limit=(GpuQuota(gpu_type="H100", gpu_milli=4_000),)),
    Team(id=TeamId("vision"), parent=LAB, limit=(GpuQuota(gpu_type="A100", gpu_milli=1_500),)),
)
WEB = (AntiAffinity(label="web", layer=Layer.RACK),)


def fleet(*records: JobRecord | Job) -> Snapshot:
    hosts = [box("h1", rack="r1"), box("h2", rack="r1"), box("h3", rack="r2"), box("a1", gpu_type="A100", rack="r2")]
    return world(hosts, *records, teams=TEAMS)


def seat(job: Job, host: str, *gpus: int) -> WorkerPlacement:
    return placement(job, (host, gpus)).workers[0]


def test_a_limit_counts_what_runs_below_it() -> None:
    held = running(gang("r", 1, 3, team="vision"), ("h1", range(3)))
    ledger = Books(fleet(held)).ledger
    assert ledger.held((LAB, "H100")) == 3_000
    assert ledger.allows(TeamId("vision"), {"H100": 1_000})
    assert not ledger.allows(TeamId("vision"), {"H100": 1_001})
    assert list(ledger.exceeded(TeamId("vision"), {"H100": 1_001, "A100": 1_501})) == [
        (LAB, "H100"),
        (TeamId("vision"), "A100"),
    ]
    assert ledger.allows(LAB, {"A100": 8_000})


def test_fractions_count_as_what_they_are_and_go_again() -> None:
    books, tenth = Books(fleet()), gang("a", request=ask(0.1), team="vision")
    books.take(tenth, seat(tenth, "a1", 0))
    assert books.ledger.held((TeamId("vision"), "A100")) == 100
    books.give(tenth, seat(tenth, "a1", 0))
    assert books.ledger.held((TeamId("vision"), "A100")) == 0


def test_a_label_closes_its_domain_while_its_job_is_there() -> None:
    job = gang("a", team="vision", anti_affinity=WEB)
    books = Books(fleet(job))
    before = len(books.changed)
    books.take(job, seat(job, "h1", 0))
    closed = [host for host in ("h1", "h2", "h3") if books.ledger.closed({"web"}, HostId(host))]
    assert closed == ["h1", "h2"]
    assert set(books.changed[before:]) == {"h1", "h2"}, "an index looks at the whole rack again"
    assert not books.ledger.closed({"db"}, HostId("h1"))
    books.give(job, seat(job, "h1", 0))
    assert not books.ledger.closed({"web"}, HostId("h1"))


def test_trials_with_the_gang_in_hand_close_nothing() -> None:
    job = gang("a", team="vision", anti_affinity=WEB)
    books = Books(fleet(job))
    books.pencil(job, seat(job, "h1", 0), 1)
    assert not books.ledger.closed({"web"}, HostId("h1"))


def test_a_stopped_job_returns_unless_a_start_took_its_place_in_a_limit() -> None:
    old, new = running(gang("r", 1, 3, team="vision"), ("h1", range(3))), gang("a", 1, 2, team="vision")
    books, worker = Books(fleet(old, new)), placement(old.job, ("h1", range(3))).workers[0]
    books.give(old.job, worker)
    assert books.returns(old.job, worker)
    books.take(new, seat(new, "h2", 0, 1))
    assert not books.returns(old.job, worker)


def test_beyond_a_limit_it_returns_as_long_as_nothing_starts_there() -> None:
    old = running(gang("r", 1, 6, team="vision"), ("h1", range(6)))
    books, worker = Books(fleet(old)), placement(old.job, ("h1", range(6))).workers[0]
    books.give(old.job, worker)
    assert books.returns(old.job, worker)


def test_a_stopped_job_returns_unless_a_start_with_its_label_is_in_its_domain() -> None:
    old, new = (
        running(gang("r", team="vision", anti_affinity=WEB), ("h1", [0])),
        gang("a", team="vision", anti_affinity=WEB),
    )
    pair = running(gang("q", team="vision", anti_affinity=WEB), ("h2", [0]))
    books, worker = Books(fleet(old, pair, new)), placement(old.job, ("h1", [0])).workers[0]
    books.give(old.job, worker)
    assert books.returns(old.job, worker), "jobs that were together already may stay so"
    books.take(new, seat(new, "h2", 1))
    assert not books.returns(old.job, worker)


def test_what_a_victim_leaves_is_kept_from_its_own_level_less_what_higher_ones_take() -> None:
    old = running(gang("r", 1, 3, team="vision", anti_affinity=WEB), ("h1", range(3)))
    high = running(gang("a", 1, 2, team="vision", tier=1), ("h2", range(2)))
    books = Books(fleet(old))
    books.give(old.job, placement(old.job, ("h1", range(3))).workers[0])
    left = Ranks(fleet(old)).leaving([old])
    books.keep_back(4, left, [])
    assert books.ledger.allows(TeamId("vision"), {"H100": 4_000})
    assert not books.ledger.closed({"web"}, HostId("h2"))
    books.keep_back(2, left, [])
    assert not books.ledger.allows(TeamId("vision"), {"H100": 1_001})
    assert books.ledger.closed({"web"}, HostId("h2"))
    assert high.placement is not None
    books.keep_back(2, left, [(6, high, high.placement)])
    assert books.ledger.kept((LAB, "H100")) == 1_000


def test_a_limit_is_tight_where_the_gang_may_not_have_all_it_asks_of_a_type() -> None:
    both = gang("a", roles=(role("x", 2, ask(1), ["H100", "A100"]), role("y", 1, ask(1), ["A100"])), team="vision")
    assert Books(fleet()).ledger.tight_limits(both) == {(TeamId("vision"), "A100")}
