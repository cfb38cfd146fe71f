"""From what is wanted and what is there to what to do and what to tell: pure, no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model.event import Event, GangExited, GangReserved, GangRunning, HostChanged
from ..model.host import Host, HostState
from ..model.ids import HostId, JobId
from ..model.intent import (
    GangPhase,
    Instruction,
    Intent,
    LaunchGang,
    Observation,
    ObservedGang,
    ObservedHost,
    ReleaseGang,
    ReserveGang,
    StopGang,
    Want,
)

Key = tuple[JobId, int]
"""(job, attempt)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One attempt: what is wanted of it, if anything, and what is seen of it, if anything."""

    key: Key
    intent: Intent | None
    gang: ObservedGang | None


def _nothing(_case: _Case) -> tuple[Instruction, ...]:
    return ()


def _reserve(case: _Case) -> tuple[Instruction, ...]:
    return (ReserveGang(intent=case.intent),) if case.intent else ()


def _launch(case: _Case) -> tuple[Instruction, ...]:
    return (LaunchGang(intent=case.intent),) if case.intent else ()


def _stop(case: _Case) -> tuple[Instruction, ...]:
    if case.gang is not None and case.gang.stopping:
        return ()
    grace_s = case.intent.grace_s if case.intent else 0
    return (StopGang(job=case.key[0], attempt=case.key[1], grace_s=grace_s),)


def _release(case: _Case) -> tuple[Instruction, ...]:
    hosts: tuple[HostId, ...] = case.intent.placement.hosts if case.intent else ()
    return (ReleaseGang(job=case.key[0], attempt=case.key[1], orphan=case.intent is None, hosts=hosts),)


def _stop_then_release(case: _Case) -> tuple[Instruction, ...]:
    return _stop(case) or _release(case)


_P = GangPhase
# A reservation seen half-made was left by a killed adapter, since making one is a single bounded step: it is driven
# again. UNKNOWN is not LOST: such a gang is at most asked to stop, never released.
TABLE: Mapping[tuple[Want | None, GangPhase | None], Callable[[_Case], tuple[Instruction, ...]]] = {
    (Want.RUN, None): _reserve,
    (Want.RUN, _P.RESERVING): _reserve,
    (Want.RUN, _P.RESERVED): _launch,
    (Want.RUN, _P.LAUNCHING): _nothing,
    (Want.RUN, _P.RUNNING): _nothing,
    (Want.RUN, _P.EXITED): _nothing,
    (Want.RUN, _P.UNKNOWN): _nothing,
    (Want.RUN, _P.BROKEN): _stop,
    (Want.STOP, None): _release,
    (Want.STOP, _P.RESERVING): _release,
    (Want.STOP, _P.RESERVED): _release,
    (Want.STOP, _P.LAUNCHING): _stop,
    (Want.STOP, _P.RUNNING): _stop,
    (Want.STOP, _P.EXITED): _release,
    (Want.STOP, _P.UNKNOWN): _stop,
    (Want.STOP, _P.BROKEN): _stop_then_release,
    (None, _P.RESERVING): _release,
    (None, _P.RESERVED): _release,
    (None, _P.LAUNCHING): _stop,
    (None, _P.RUNNING): _stop,
    (None, _P.EXITED): _release,
    (None, _P.UNKNOWN): _stop,
    (None, _P.BROKEN): _stop_then_release,
}
"""What to do for each pair (wanted, seen); None: nothing wanted, or nothing seen."""

_ORDER: tuple[type[Instruction], ...] = (StopGang, ReleaseGang, LaunchGang, ReserveGang)


def reconcile(intents: Sequence[Intent], observation: Observation) -> tuple[Instruction, ...]:
    """What brings the world nearer to the intents: stops and releases first, then launches, then reservations.

    `observation` must have been taken before `intents` were read, else a newborn gang would be swept as an orphan.
    """
    wanted = {(intent.job.id, intent.attempt): intent for intent in intents}
    seen = {(gang.job, gang.attempt): gang for gang in observation.gangs}
    found: list[Instruction] = []
    for key in dict.fromkeys((*seen, *wanted)):
        case = _Case(key=key, intent=wanted.get(key), gang=seen.get(key))
        want = case.intent.want if case.intent else None
        found.extend(TABLE[want, case.gang.phase if case.gang else None](case))
    return tuple(sorted(found, key=lambda instruction: _ORDER.index(type(instruction))))


LOST = "executor: "
"""How the cause of a state begins that the executor gave a host; only such a state does it take back."""

_UP = frozenset({GangPhase.RUNNING, GangPhase.EXITED})
_HELD = _UP | {GangPhase.RESERVED, GangPhase.LAUNCHING}


def events_of(
    intents: Sequence[Intent], observation: Observation, now_s: int, hosts: Sequence[Host] = ()
) -> tuple[Event, ...]:
    """Events for every attempt that is wanted running, and for those of `hosts` whose life differs from the books.

    Ids are the same at every repetition, so that the store applies each once.
    """
    seen = {(gang.job, gang.attempt): gang for gang in observation.gangs}
    found: list[Event] = []
    for intent in intents:
        gang = seen.get((intent.job.id, intent.attempt))
        if gang is not None and intent.want is Want.RUN:
            found.extend(_gang_events(intent, gang, now_s))
    found.extend(_host_events(hosts, observation, now_s))
    return tuple(found)


def _gang_events(intent: Intent, gang: ObservedGang, now_s: int) -> Iterator[Event]:
    job, attempt = intent.job.id, intent.attempt
    prefix = f"{job}/{attempt}"
    if gang.phase in _HELD:
        yield GangReserved(id=f"{prefix}/reserved", at_s=now_s, job=job, attempt=attempt)
    if gang.phase in _UP:
        yield GangRunning(id=f"{prefix}/running", at_s=now_s, job=job, attempt=attempt)
    failed = next((exit_ for exit_ in gang.exits if exit_.code), None)
    lost = None
    if gang.phase is GangPhase.BROKEN:
        # A broken attempt must never read as a success, whichever ranks had ended well: some host is to blame.
        lost = gang.lost_host or intent.placement.hosts[0]
        cause = gang.cause or f"host {lost} was lost"
    elif gang.phase in _UP and failed is not None:
        cause = f"rank {failed.rank} " + _ending(failed.code)
    elif gang.phase is GangPhase.EXITED:
        cause = "finished"
    else:
        return
    yield GangExited(
        id=f"{prefix}/exited", at_s=now_s, job=job, attempt=attempt, exits=gang.exits, lost_host=lost, cause=cause
    )


def _ending(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"


def _host_events(hosts: Sequence[Host], observation: Observation, now_s: int) -> Iterator[Event]:
    seen = {host.host: host for host in observation.hosts}
    for host in hosts:
        changed = _changed(host, seen.get(host.id))
        if changed is not None:
            state, cause = changed
            # The version makes the id of a change unique, and the same for a repetition of it.
            yield HostChanged(
                id=f"host/{host.id}/{state}/{host.version}", at_s=now_s, host=host.id, state=state, cause=cause
            )


def _changed(host: Host, seen: ObservedHost | None) -> tuple[HostState, str] | None:
    ours = host.state in {HostState.DOWN, HostState.SUSPECT} and host.state_cause.startswith(LOST)
    if host.state is not HostState.READY and not ours:
        return None
    if seen is None or not seen.alive:
        state, cause = HostState.DOWN, f"{LOST}not alive in the site's Ray cluster"
    elif seen.leaked:
        state, cause = HostState.SUSPECT, f"{LOST}not clean: {'; '.join(seen.leaked)}"
    else:
        state, cause = HostState.READY, f"{LOST}alive and clean"
    return None if state is host.state else (state, cause)
