"""Admission: what can never start is refused with the numbers, and with a request near it that could."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from small_worlds import NOW_S, POLICY, ask, box, card, gang, queued, role, running, world

from phalanx.model.decision import ReasonKind, RuleFamily
from phalanx.model.host import Host, HostState, Window
from phalanx.model.ids import SiteId, TeamId
from phalanx.model.job import AntiAffinity, CheckpointPolicy, Job, Parallelism, Preemptible, TopologyConstraint
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer, Site
from phalanx.solver.admission import Admission, admit, lent

RACKED = (TopologyConstraint(layer=Layer.RACK),)


def fleet() -> list[Host]:
    return [
        box("h1", rack="r1"),
        box("h2", rack="r1"),
        box("h3", rack="r2"),
        box("a1", 4, "A100", rack="r2"),
        box("t1", gpu_type="L4", site="t"),
    ]


def judged(job: Job, hosts: list[Host] | None = None, policy: Policy = POLICY) -> Admission:
    return admit(job, world(hosts or fleet()), policy)


@pytest.mark.parametrize(
    "job",
    [
        gang("a", 1, 8),
        gang("a", 3, 8),
        gang("a", 2, 8, topology=RACKED),
        gang("a", 16, request=ask(0.5)),
        gang("a", request=ask(0, cpu=64)),
        gang("a", roles=(role("big", 2, ask(8)), role("cpu", 4, ask(0, cpu=8)))),
    ],
)
def test_what_an_empty_fleet_holds_is_accepted(job: Job) -> None:
    admission = judged(job)
    assert (admission.accepted, admission.reason, admission.nearest) == (True, None, "")


def test_neither_running_work_nor_hosts_out_of_work_count_against_a_job() -> None:
    hosts = [box("h1", state=HostState.DOWN), box("h2", spare=True), box("h3", [card(0, healthy=False)])]
    snapshot = world(hosts, running(gang("r", 1, 8), ("h2", range(8))))
    assert admit(gang("a", 2, 8), snapshot, POLICY).accepted


@pytest.mark.parametrize(
    ("job", "family", "asked", "available", "unit", "nearest"),
    [
        (gang("a", 1, 8, types=["H200"]), RuleFamily.ELIGIBILITY, 1, 0, "GPU types", "on H100"),
        (gang("a", request=ask(1, card_gib=96)), RuleFamily.ELIGIBILITY, 96 * 1024, 80 * 1024, "MiB", "with 80 GiB of memory per GPU"),
        (gang("a", 1, 16), RuleFamily.CAPACITY, 16_000, 8_000, "mGPU", "with 8 GPUs per worker"),
        (gang("a", 1, 8, types=["A100"]), RuleFamily.CAPACITY, 8_000, 4_000, "mGPU", "with 4 GPUs per worker"),
        (gang("a", request=ask(1, cpu=65)), RuleFamily.CAPACITY, 65_000, 64_000, "milli-cores", "with 64 CPU cores per worker"),
        (gang("a", request=ask(0, cpu=1, memory_gib=600)), RuleFamily.CAPACITY, 600 * 1024, 512 * 1024, "MiB", "with 512 GiB of memory per worker"),
        (gang("a", request=ask(1, network_mbps=200_000)), RuleFamily.CAPACITY, 200_000, 100_000, "Mbit/s", "with 100000 Mbit/s per worker"),
        (gang("a", 4, 8, types=["H100"]), RuleFamily.CAPACITY, 4, 3, "workers", "with 3 workers instead of 4"),
        (gang("a", 3, 8, topology=RACKED), RuleFamily.TOPOLOGY, 3, 2, "workers", "with 2 workers instead of 3"),
        (gang("a", 2, 8, types=["H100"], topology=(TopologyConstraint(layer=Layer.HOST),)), RuleFamily.TOPOLOGY, 2, 1, "workers", "with 1 worker instead of 2"),
        (gang("a", 2, 8, parallelism=Parallelism(tensor=2)), RuleFamily.CAPACITY, 2, 0, "workers", "with 4 GPUs per worker"),
    ],
)  # fmt: skip
def test_refused_with_the_numbers_and_the_nearest(
    job: Job, family: RuleFamily, asked: int, available: int, unit: str, nearest: str
) -> None:
    admission = judged(job)
    assert not admission.accepted
    reason = admission.reason
    assert reason is not None
    assert (reason.kind, reason.families, reason.asked, reason.available, reason.unit) == (
        ReasonKind.NEVER_FITS,
        (family,),
        asked,
        available,
        unit,
    )
    assert admission.nearest == nearest
    assert nearest in reason.sentence


def test_sites_without_such_gpus() -> None:
    pinned = judged(gang("a", 1, 1, types=["H100"], sites=(SiteId("t"),)))
    assert pinned.reason is not None
    assert (pinned.reason.unit, pinned.nearest) == ("sites", "on L4")
    unknown = judged(gang("a", sites=(SiteId("mars"),)))
    assert unknown.reason is not None
    assert "pinned to mars; the fleet has s, t" in unknown.reason.sentence


def test_production_with_gpus_off_premises_only() -> None:
    snapshot = replace(world([box("h1")]), sites=(Site(id=SiteId("s"), on_premises=False),))
    refused = admit(gang("a", tier=1), snapshot, POLICY)
    assert (refused.accepted, refused.nearest) == (False, "at any site, off premises too")
    assert refused.reason is not None
    assert "it must stay on premises, and s is not" in refused.reason.sentence
    assert admit(gang("a", tier=3), snapshot, POLICY).accepted


def test_no_gpus_at_all() -> None:
    refused = judged(gang("a"), [box("c1", 0)])
    assert refused.reason is not None
    assert refused.reason.sentence == "It can never start on this fleet, which has no GPU."


def test_no_hosts_at_all() -> None:
    refused = admit(gang("a"), world([]), POLICY)
    assert refused.reason is not None
    assert "the fleet has no sites" in refused.reason.sentence
    bare = replace(world([]), sites=(Site(id=SiteId("s")),))
    assert "no hosts at s" in str(admit(gang("a"), bare, POLICY).reason)


def test_roles_that_fit_alone_and_not_together() -> None:
    job = gang("a", roles=(role("x", 2, ask(8), ["H100"]), role("y", 2, ask(8), ["H100"])), topology=RACKED)
    refused = judged(job)
    assert refused.reason is not None
    assert (refused.reason.asked, refused.reason.available) == (32_000, 16_000)


def test_never_preemptible_needs_production_or_a_guarantee() -> None:
    def asked(tier: int, *teams: Team) -> Admission:
        job = gang("a", tier=tier, preemptible=Preemptible.NEVER)
        return admit(job, world(fleet(), teams=teams), POLICY)

    assert asked(1).accepted
    assert asked(2).accepted
    refused = asked(3)
    assert refused.reason is not None
    assert (refused.accepted, refused.reason.families) == (False, (RuleFamily.PREEMPTION,))
    assert "preemptible: by_higher" in refused.reason.sentence
    lab = Team(id="lab", guarantee=(GpuQuota(gpu_type="H100", gpu_milli=8_000),))
    assert asked(3, lab, Team(id="team", parent="lab")).accepted
    assert not asked(3, Team(id="team")).accepted


def test_advice_refuses_nothing() -> None:
    odd = judged(gang("a", 3, 3))
    assert odd.accepted
    assert [warning.split(":")[0] for warning in odd.warnings] == [
        "worker",
        "worker",
        "no walltime limit",
        "no checkpoint policy",
    ]
    saved = CheckpointPolicy(interval_s=600)
    assert judged(gang("b", 2, 8, walltime_limit_s=3_600, checkpoint=saved)).warnings == ()
    assert judged(gang("c", request=ask(0))).warnings == ()


class TestLimits:
    LAB = Team(id=TeamId("lab"), limit=(GpuQuota(gpu_type="A100", gpu_milli=8_000),))
    VISION = Team(id=TeamId("vision"), parent=TeamId("lab"), limit=(GpuQuota(gpu_type="H100", gpu_milli=12_000),))
    FLEET = (*(box(f"h{n}") for n in range(3)), *(box(f"a{n}", gpu_type="A100") for n in range(3)))

    def judged(self, job: Job) -> Admission:
        return admit(job, world(self.FLEET, teams=(self.LAB, self.VISION)), POLICY)

    @pytest.mark.parametrize(
        ("types", "workers", "gpus"), [(["A100"], 1, 8), (["H100"], 3, 4), ([], 2, 6), (["A100", "H100"], 3, 4)]
    )
    def test_exactly_the_limit_is_accepted(self, types: list[str], workers: int, gpus: int) -> None:
        assert self.judged(gang("a", workers, gpus, types, team="vision")).accepted

    @pytest.mark.parametrize(
        ("job", "asked", "most", "subject", "nearest"),
        [
            (gang("a", 9, 1, ["A100"], team="vision"), 9_000, 8_000, "team lab may hold 8 A100", "with 8 workers instead of 9"),
            (gang("a", 2, 8, ["H100"], team="vision"), 16_000, 12_000, "team vision may hold 12 H100", "with 1 worker instead of 2"),
            (gang("a", 13, 1, team="vision"), 13_000, 12_000, "team vision may hold 12 H100", "with 12 workers instead of 13"),
            (gang("a", roles=(role("x", 1, ask(8), ["A100"]), role("y", 1, ask(0.5), ["A100"])), team="vision"), 8_500, 8_000, "team lab may hold 8 A100", "with 7 GPUs per worker"),
        ],
    )  # fmt: skip
    def test_beyond_it_is_refused_with_the_nearest(
        self, job: Job, asked: int, most: int, subject: str, nearest: str
    ) -> None:
        admission = self.judged(job)
        reason = admission.reason
        assert reason is not None
        assert (reason.families, reason.asked, reason.available) == ((RuleFamily.QUOTA,), asked, most)
        assert (reason.subject, admission.nearest) == (subject, nearest)
        assert subject in reason.sentence

    def test_other_teams_and_other_types_are_free(self) -> None:
        assert self.judged(gang("a", 3, 8, ["A100"], team="lab")).accepted is False
        assert self.judged(gang("a", 3, 8, ["H100"], team="lab")).accepted

    def test_too_much_for_the_fleet_is_not_blamed_on_the_limit(self) -> None:
        reason = self.judged(gang("a", 4, 8, ["H100"], team="vision")).reason
        assert reason is not None
        assert reason.families == (RuleFamily.CAPACITY,)


class TestWindows:
    """Launch 30 s, grace 30 s and cleaning 10 s come on top of the walltime limit."""

    def warned(self, limit_s: int | None, *starts_s: int) -> tuple[str, ...]:
        hosts = [
            box(f"h{n}", windows=(Window(start_s=NOW_S + start, end_s=NOW_S + start + 7_200),))
            for n, start in enumerate(starts_s)
        ]
        admission = admit(gang("a", 1, 8, walltime_limit_s=limit_s), world(hosts), POLICY)
        assert admission.accepted
        return tuple(text for text in admission.warnings if "maintenance" in text)

    def test_a_limit_that_just_fits_a_gap_is_not_warned_about(self) -> None:
        assert self.warned(3_600, 100, 3_670) == ()

    def test_a_second_longer_has_to_wait(self) -> None:
        assert self.warned(3_601, 100, 3_670) == (
            "with a walltime limit of 1 h 1 s it has to wait until maintenance is over; with 1 h or less there is room "
            "before",
        )

    def test_the_pool_s_maximum_counts_where_no_limit_is_given(self) -> None:
        (text,) = self.warned(None, 3_670)
        assert "with a walltime limit of 1 d it has to wait" in text

    def test_no_limit_is_short_enough_for_a_window_that_has_begun(self) -> None:
        (text,) = self.warned(60, 0)
        assert "no walltime limit is short enough" in text


def test_more_jobs_with_a_label_than_racks_is_a_warning() -> None:
    label = (AntiAffinity(label="web", layer=Layer.RACK),)
    others = [gang(f"o{n}", anti_affinity=label) for n in range(2)]
    admission = admit(gang("a", anti_affinity=label), world(fleet(), *others), POLICY)
    assert admission.accepted
    assert not any("label" in text for text in admission.warnings), "rack r1, rack r2 and site t are three"
    crowded = admit(gang("a", anti_affinity=label), world(fleet(), *others, gang("o2", anti_affinity=label)), POLICY)
    assert any("3 other jobs carry the anti-affinity label 'web'" in text for text in crowded.warnings)


@pytest.mark.parametrize(
    ("in_s", "facts", "words"),
    [
        (7_200, {"walltime_limit_s": 3_600}, None),
        (
            3_600,
            {"walltime_limit_s": 3_600},
            "started at once it would end 30 s after the time that it is to finish by",
        ),
        (3_600, {"walltime_limit_s": 7_200, "walltime_estimate_s": 1_800}, None),
        (1_800, {"walltime_limit_s": 7_200, "walltime_estimate_s": 3_600}, "for 1 h, its estimate"),
        (-60, {"walltime_limit_s": 60}, "the time that it is to finish by passed 1 min ago"),
    ],
)
def test_a_time_to_finish_by_that_would_be_missed_is_a_warning(
    in_s: int, facts: dict[str, int], words: str | None
) -> None:
    admission = admit(gang("a", 1, 1, finish_by_s=NOW_S + in_s, **facts), world([box("h1")]), POLICY)
    assert admission.accepted
    told = [warning for warning in admission.warnings if "finish by" in warning]
    assert [words in warning for warning in told] == ([] if words is None else [True])


def test_what_comes_and_goes_leaves_what_was_found_out() -> None:
    snapshot = world(fleet(), teams=(Team(id=TeamId("team")),))
    with lent(snapshot, POLICY) as first:
        assert first.never_fits(queued(gang("a", 1, 64))) is not None
    host, *others = snapshot.hosts
    busy = replace(host, state=HostState.CORDONED, version=host.version + 1, spare=True)
    used = replace(snapshot.teams[0], spent_gpu_s=5)
    later = replace(snapshot, hosts=(busy, *others), teams=(used,), jobs=(queued(gang("b")),), now_s=snapshot.now_s + 9)
    with lent(later, POLICY) as again:
        assert again is first
        with lent(later, POLICY) as beside:
            assert beside is not first, "nobody shares it"
    assert first.never_fits(queued(gang("b", 1, 64))) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda snapshot: replace(snapshot, hosts=snapshot.hosts[1:]),
        lambda snapshot: replace(snapshot, hosts=(replace(snapshot.hosts[0], cpu_milli=1), *snapshot.hosts[1:])),
        lambda snapshot: replace(
            snapshot,
            hosts=(replace(snapshot.hosts[0], gpus=snapshot.hosts[0].gpus[1:]), *snapshot.hosts[1:]),
        ),
        lambda snapshot: replace(snapshot, sites=(replace(snapshot.sites[0], on_premises=False), *snapshot.sites[1:])),
        lambda snapshot: replace(
            snapshot, teams=(Team(id=TeamId("team"), limit=(GpuQuota(gpu_type="H100", gpu_milli=1_000),)),)
        ),
    ],
    ids=["a host less", "less CPU", "a card less", "another site", "a limit"],
)
def test_a_fleet_that_offers_something_else_is_looked_at_anew(change: Callable[[Snapshot], Snapshot]) -> None:
    snapshot = world(fleet(), teams=(Team(id=TeamId("team")),))
    with lent(snapshot, POLICY) as first:
        pass
    with lent(change(snapshot), POLICY) as other:
        assert other is not first
    with lent(snapshot, replace(POLICY, production_off_premises=not POLICY.production_off_premises)) as third:
        assert third is not other
