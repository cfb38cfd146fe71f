"""The table of reconciling, cell by cell, and that repeating it converges."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.adapters.fakes.executor import FakeExecutor, Script
from phalanx.adapters.reconcile import TABLE, events_of, reconcile
from phalanx.model.event import GangExited, GangReleased, GangReserved, GangRunning, GangStartFailed, HostChanged
from phalanx.model.host import Gpu, Host, HostState
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.intent import (
    GangPhase,
    Intent,
    LaunchGang,
    Observation,
    ObservedGang,
    ObservedHost,
    RankExit,
    ReleaseGang,
    ReserveGang,
    StopGang,
    Want,
)
from phalanx.model.job import Job, Role, WorkerRequest
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.topology import TopologyPath

P = GangPhase
SITE = SiteId("s")
HOSTS = tuple(
    Host(
        id=HostId(f"h{n}"),
        path=TopologyPath(site=SITE),
        gpus=tuple(Gpu(index=i, gpu_type="H100", memory_mib=80_000) for i in range(2)),
        cpu_milli=8000,
        memory_mib=64_000,
    )
    for n in range(2)
)


def intent_of(
    name: str = "j", hosts: tuple[str, ...] = ("h0", "h1"), want: Want = Want.RUN, grace_s: int = 9
) -> Intent:
    return Intent(
        job=Job(
            id=JobId(name), team=TeamId("t"), roles=(Role(count=len(hosts), request=WorkerRequest(gpu_milli=1000)),)
        ),
        attempt=1,
        site=SITE,
        term=1,
        want=want,
        grace_s=grace_s,
        placement=Placement(
            workers=tuple(
                WorkerPlacement(role="worker", index=i, host=HostId(h), gpus=(hosts[:i].count(h),))
                for i, h in enumerate(hosts)
            )
        ),
    )


RUN, STOP = intent_of(), intent_of(want=Want.STOP)
RESERVE, LAUNCH = ReserveGang(intent=RUN), LaunchGang(intent=RUN)
WARN = StopGang(job=JobId("j"), attempt=1, grace_s=9)
END = StopGang(job=JobId("j"), attempt=1, grace_s=0)
RELEASE = ReleaseGang(job=JobId("j"), attempt=1, hosts=(HostId("h0"), HostId("h1")))
SWEEP = ReleaseGang(job=JobId("j"), attempt=1, orphan=True)

# wanted, seen -> what to do when nobody was warned yet, and when somebody was
CELLS = {
    (Want.RUN, None): (RESERVE, RESERVE),
    (Want.RUN, P.RESERVING): (RESERVE, RESERVE),
    (Want.RUN, P.RESERVED): (LAUNCH, LAUNCH),
    (Want.RUN, P.LAUNCHING): (None, None),
    (Want.RUN, P.RUNNING): (None, None),
    (Want.RUN, P.EXITED): (None, None),
    (Want.RUN, P.UNKNOWN): (None, None),
    (Want.RUN, P.BROKEN): (WARN, None),
    (Want.STOP, None): (RELEASE, RELEASE),
    (Want.STOP, P.RESERVING): (RELEASE, RELEASE),
    (Want.STOP, P.RESERVED): (RELEASE, RELEASE),
    (Want.STOP, P.LAUNCHING): (WARN, None),
    (Want.STOP, P.RUNNING): (WARN, None),
    (Want.STOP, P.EXITED): (RELEASE, RELEASE),
    (Want.STOP, P.UNKNOWN): (WARN, None),
    (Want.STOP, P.BROKEN): (WARN, RELEASE),
    (None, P.RESERVING): (SWEEP, SWEEP),
    (None, P.RESERVED): (SWEEP, SWEEP),
    (None, P.LAUNCHING): (END, None),
    (None, P.RUNNING): (END, None),
    (None, P.EXITED): (SWEEP, SWEEP),
    (None, P.UNKNOWN): (END, None),
    (None, P.BROKEN): (END, SWEEP),
}


def test_every_pair_has_a_cell() -> None:
    pairs = set(itertools.product((Want.RUN, Want.STOP, None), (*GangPhase, None))) - {(None, None)}
    assert set(TABLE) == pairs == set(CELLS)


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize(("want", "phase"), CELLS)
def test_cell(want: Want | None, phase: GangPhase | None, stopping: bool) -> None:
    intents = () if want is None else (RUN if want is Want.RUN else STOP,)
    gangs = () if phase is None else (ObservedGang(job=JobId("j"), attempt=1, phase=phase, stopping=stopping),)
    expected = CELLS[want, phase][stopping]
    assert reconcile(intents, Observation(gangs=gangs)) == (() if expected is None else (expected,))


def test_stops_and_releases_come_before_starts() -> None:
    intents = (
        intent_of("new"),
        intent_of("ready"),
        intent_of("old", want=Want.STOP),
        intent_of("gone", want=Want.STOP),
    )
    seen = Observation(
        gangs=(
            ObservedGang(job=JobId("ready"), attempt=1, phase=P.RESERVED),
            ObservedGang(job=JobId("old"), attempt=1, phase=P.RUNNING),
        )
    )
    assert [type(i) for i in reconcile(intents, seen)] == [StopGang, ReleaseGang, LaunchGang, ReserveGang]


def kinds(phase: GangPhase, want: Want = Want.RUN, **about: object) -> list[type]:
    gang = ObservedGang(job=JobId("j"), attempt=1, phase=phase, **about)
    return [type(e) for e in events_of((replace(RUN, want=want),), Observation(gangs=(gang,)), 5)]


def test_what_a_phase_tells() -> None:
    assert kinds(P.RESERVING) == kinds(P.UNKNOWN) == []
    assert kinds(P.RESERVED) == kinds(P.LAUNCHING) == [GangReserved]
    assert kinds(P.RUNNING) == [GangReserved, GangRunning]
    assert kinds(P.RUNNING, exits=(RankExit(rank=0, code=0),)) == [GangReserved, GangRunning]
    assert kinds(P.RUNNING, exits=(RankExit(rank=0, code=1),)) == [GangReserved, GangRunning, GangExited]
    assert kinds(P.EXITED) == [GangReserved, GangRunning, GangExited]
    assert kinds(P.BROKEN) == [GangExited]


@pytest.mark.parametrize("phase", GangPhase)
def test_an_attempt_that_is_being_stopped_tells_nothing_by_itself(phase: GangPhase) -> None:
    assert kinds(phase, Want.STOP) == []


def test_a_broken_attempt_blames_a_host_even_if_all_known_ranks_ended_well() -> None:
    gang = ObservedGang(job=JobId("j"), attempt=1, phase=P.BROKEN, exits=(RankExit(rank=0, code=0),))
    (event,) = events_of((RUN,), Observation(gangs=(gang,)), 5)
    assert event.lost_host == "h0"
    (event,) = events_of((RUN,), Observation(gangs=(replace(gang, lost_host=HostId("h1"), cause="gone"),)), 5)
    assert (event.lost_host, event.cause) == ("h1", "gone")


def test_a_failure_names_the_rank_and_its_code() -> None:
    for code, cause in ((3, "rank 1 exited with code 3"), (-9, "rank 1 was killed by signal 9")):
        gang = ObservedGang(job=JobId("j"), attempt=1, phase=P.RUNNING, exits=(RankExit(rank=1, code=code),))
        assert events_of((RUN,), Observation(gangs=(gang,)), 5)[-1].cause == cause


@pytest.mark.parametrize(
    ("state", "cause", "seen", "expected"),
    [
        (HostState.READY, "", ObservedHost(host=HostId("h0"), alive=True), None),
        (HostState.READY, "", ObservedHost(host=HostId("h0"), alive=False), HostState.DOWN),
        (HostState.READY, "", None, HostState.DOWN),
        (HostState.READY, "", ObservedHost(host=HostId("h0"), alive=True, leaked=("64 CPU",)), HostState.SUSPECT),
        (HostState.SUSPECT, "executor: x", ObservedHost(host=HostId("h0"), alive=True), HostState.READY),
        (HostState.DOWN, "executor: x", ObservedHost(host=HostId("h0"), alive=True), HostState.READY),
        (HostState.DOWN, "executor: x", None, None),
        (HostState.SUSPECT, "XID 79", ObservedHost(host=HostId("h0"), alive=True), None),
        (HostState.CORDONED, "", None, None),
    ],
)
def test_hosts(state: HostState, cause: str, seen: ObservedHost | None, expected: HostState | None) -> None:
    host = replace(HOSTS[0], state=state, state_cause=cause, version=7)
    events = events_of((), Observation(hosts=(seen,) if seen else ()), 5, (host,))
    assert [(e.state, e.id) for e in events if isinstance(e, HostChanged)] == (
        [] if expected is None else [(expected, f"host/h0/{expected}/7")]
    )


SCRIPTS = st.builds(
    Script,
    launch_s=st.integers(0, 3),
    run_s=st.one_of(st.none(), st.integers(0, 6)),
    codes=st.sampled_from([(), (0, 1), (2,)]),
    stop_s=st.integers(0, 4),
    ignores_warning=st.booleans(),
    refused=st.sampled_from(["", "", "", "no such image"]),
)
FAULTS = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["lose", "silence", "leak", "cancel"])), max_size=4)


@settings(deadline=None, max_examples=60)
@given(scripts=st.lists(SCRIPTS, min_size=1, max_size=3), faults=FAULTS)
def test_repeating_it_converges(scripts: list[Script], faults: list[tuple[int, str]]) -> None:
    """Whatever happens, in the end every attempt is released, the executor is empty, and no rank ran twice."""
    clock = VirtualClock()
    by_name = {f"j{n}": script for n, script in enumerate(scripts)}
    executor = FakeExecutor(clock, HOSTS, lambda intent: by_name[intent.job.id])
    intents = {name: intent_of(name) for name in by_name}
    for second in range(60):
        for at, fault in faults:
            if at == second and fault == "cancel":
                intents = {name: replace(intent, want=Want.STOP) for name, intent in intents.items()}
            elif at == second:
                {"lose": executor.lose_host, "silence": executor.silence, "leak": lambda h: executor.leak(h, "8 CPU")}[
                    fault
                ](HostId("h1"))
        if second == 25:
            executor.return_host(HostId("h1"))
            executor.heal(HostId("h1"))
        if second == 30:
            intents = {name: replace(intent, want=Want.STOP) for name, intent in intents.items()}
        seen = executor.observe()
        wanted = tuple(intents.values())
        for event in (
            *events_of(wanted, seen, second),
            *(event for instruction in reconcile(wanted, seen) for event in executor.apply(instruction)),
        ):
            if isinstance(event, GangReleased):
                intents.pop(event.job, None)
            elif isinstance(event, GangExited | GangStartFailed) and event.job in intents:
                intents[event.job] = replace(intents[event.job], want=Want.STOP)
        clock.sleep(1)
    assert intents == {}
    assert executor.observe().gangs == ()
    assert set(executor.launches.values()) <= {1}
