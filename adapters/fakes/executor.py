"""An executor without machines: gangs live on a clock as a script says, hosts can be lost, silent or leaking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ...model.event import Event, GangReleased, GangReserved, GangStartFailed, HostChanged
from ...model.host import Host, HostState
from ...model.ids import HostId, JobId
from ...model.intent import (
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
)
from ..booking import Booking, booking, misfit
from ..ports import Clock
from ..retention import AttemptFolder
from .script import Script, ScriptedGang

__all__ = ["FakeExecutor", "Script"]

Key = tuple[JobId, int]


class FakeExecutor:
    """The Executor port in memory, for one site whose hosts are `hosts`; `script` chooses how an attempt behaves.

    `launches` counts the starts of each (job, attempt, rank): never more than one in a right world.
    """

    def __init__(
        self, clock: Clock, hosts: Sequence[Host], script: Callable[[Intent], Script] = lambda _intent: Script()
    ) -> None:
        self.launches: Counter[tuple[JobId, int, int]] = Counter()
        self.term = 0
        self._clock = clock
        self._hosts = {host.id: host for host in hosts}
        self._script = script
        self._gangs: dict[Key, ScriptedGang] = {}
        self._dead: set[HostId] = set()
        self._silent: set[HostId] = set()
        self._leaks: dict[HostId, str] = {}
        self._suspect: set[HostId] = set()

    def lose_host(self, host: HostId) -> None:
        """The host dies, with everything on it."""
        self._dead.add(host)
        for gang in self._gangs.values():
            if host in gang.bookings and gang.lost is None:
                gang.lost = host

    def return_host(self, host: HostId) -> None:
        """A lost or silent host is back, empty if it was lost."""
        self._dead.discard(host)
        self._silent.discard(host)

    def silence(self, host: HostId) -> None:
        """The host stops answering; what runs on it runs on."""
        self._silent.add(host)

    def leak(self, host: HostId, what: str) -> None:
        """From now on something stays behind on the host, until `heal`."""
        self._leaks[host] = what

    def heal(self, host: HostId) -> None:
        """What had stayed behind is gone."""
        self._leaks.pop(host, None)
        self._suspect.discard(host)

    def lead(self, term: int) -> None:
        """Takes the term of the adapter's lease."""
        self.term = max(self.term, term)

    def observe(self) -> Observation:
        """What is there now."""
        return Observation(
            gangs=tuple(self._observed(gang) for gang in self._gangs.values()),
            hosts=tuple(
                ObservedHost(
                    host=host,
                    alive=host not in self._dead,
                    leaked=(self._leaks[host],) if host in self._suspect else (),
                )
                for host in self._hosts
            ),
        )

    def apply(self, instruction: Instruction) -> tuple[Event, ...]:
        """Carries out one instruction, as the port says."""
        match instruction:
            case ReserveGang(intent=intent):
                return self._reserve(intent)
            case LaunchGang(intent=intent):
                return self._launch(intent)
            case StopGang(job=job, attempt=attempt, grace_s=grace_s):
                return self._stop((job, attempt), grace_s)
            case ReleaseGang():
                return self._release(instruction)

    def logs(self, job: JobId, attempt: int, rank: int, *, tail: int = 200) -> tuple[str, ...]:
        """One line a started rank, for it writes nothing else."""
        started = self.launches[job, attempt, rank] > 0
        return (f"rank {rank} of {job} attempt {attempt}",)[-tail:] if started else ()

    def clean_up(self, choose: Callable[[Sequence[AttemptFolder]], Sequence[tuple[JobId, int]]]) -> int:
        """Its ranks leave no folders."""
        return len(choose(()))

    def mirror_logs(self, folder: Path) -> None:
        """Nothing to copy."""

    def close(self) -> None:
        """Nothing to disconnect."""

    def _observed(self, gang: ScriptedGang) -> ObservedGang:
        now_s = self._clock.now_s()
        intent = gang.intent
        exits = gang.exits(now_s)
        lost = gang.lost
        if lost is not None:
            phase = GangPhase.BROKEN
        elif self._silent.intersection(intent.placement.hosts):
            phase = GangPhase.UNKNOWN
        elif gang.launched_s is None:
            phase = GangPhase.RESERVED
        elif len(exits) == len(intent.placement.workers):
            phase = GangPhase.EXITED
        elif now_s < gang.launched_s + gang.script.launch_s:
            phase = GangPhase.LAUNCHING
        else:
            phase = GangPhase.RUNNING
        return ObservedGang(
            job=intent.job.id,
            attempt=intent.attempt,
            phase=phase,
            exits=exits,
            stopping=gang.stop_s is not None,
            cause=f"host {lost} was lost" if lost else "",
            lost_host=lost,
        )

    def _reserve(self, intent: Intent) -> tuple[Event, ...]:
        key = (intent.job.id, intent.attempt)
        if key not in self._gangs:
            bookings = booking(intent)
            for host, asked in bookings.items():
                problem = self._problem(host, asked)
                if problem:
                    return (self._failed(intent, problem, host),)
            self._gangs[key] = ScriptedGang(intent=intent, script=self._script(intent), bookings=bookings)
        job, attempt = key
        return (GangReserved(id=f"{job}/{attempt}/reserved", at_s=self._clock.now_s(), job=job, attempt=attempt),)

    def _problem(self, host: HostId, asked: Booking) -> str:
        if host not in self._hosts or host in self._dead:
            return f"host {host} is not alive"
        booked = [gang.bookings[host] for gang in self._gangs.values() if host in gang.bookings]
        return misfit(self._hosts[host], (*booked, asked))

    def _launch(self, intent: Intent) -> tuple[Event, ...]:
        gang = self._gangs.get((intent.job.id, intent.attempt))
        if gang is None:
            return (self._failed(intent, "nothing is reserved for it", None),)
        if gang.script.refused:
            return (self._failed(intent, gang.script.refused, intent.placement.hosts[0]),)
        if gang.launched_s is None:
            gang.launched_s = self._clock.now_s()
            for rank in range(len(intent.placement.workers)):
                self.launches[intent.job.id, intent.attempt, rank] += 1
        return ()

    def _stop(self, key: Key, grace_s: int) -> tuple[Event, ...]:
        gang = self._gangs.get(key)
        if gang is not None and gang.stop_s is None:
            gang.exits(self._clock.now_s())
            gang.stop_s, gang.grace_s = self._clock.now_s(), grace_s
        return ()

    def _release(self, instruction: ReleaseGang) -> tuple[Event, ...]:
        job, attempt, now_s = instruction.job, instruction.attempt, self._clock.now_s()
        gang = self._gangs.get((job, attempt))
        hosts = gang.intent.placement.hosts if gang else instruction.hosts
        if gang is not None and gang.launched_s is not None:
            alive = [r for r, w in enumerate(gang.intent.placement.workers) if w.host != gang.lost]
            if not {exit_.rank for exit_ in gang.exits(now_s)}.issuperset(alive):
                return self._stop((job, attempt), 0)
        leaking = [host for host in hosts if host in self._leaks and host not in self._dead]
        if leaking:
            fresh = [host for host in leaking if host not in self._suspect]
            self._suspect.update(fresh)
            return tuple(
                HostChanged(
                    id=f"{job}/{attempt}/suspect/{host}/{now_s}",
                    at_s=now_s,
                    host=host,
                    state=HostState.SUSPECT,
                    cause=f"executor: not clean: {self._leaks[host]}",
                )
                for host in fresh
            )
        self._gangs.pop((job, attempt), None)
        if instruction.orphan:
            return ()
        return (GangReleased(id=f"{job}/{attempt}/released", at_s=now_s, job=job, attempt=attempt),)

    def _failed(self, intent: Intent, cause: str, host: HostId | None) -> GangStartFailed:
        return GangStartFailed(
            id=f"{intent.job.id}/{intent.attempt}/start-failed",
            at_s=self._clock.now_s(),
            job=intent.job.id,
            attempt=intent.attempt,
            cause=cause,
            host=host,
        )
