"""The Executor port on Ray, for one site: groups reserve, runners run, and the hosts themselves are asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ...model.errors import PhalanxError, StaleTerm
from ...model.event import Event, GangReserved, GangStartFailed
from ...model.ids import HostId, JobId, SiteId
from ...model.intent import Instruction, Intent, LaunchGang, Observation, ReleaseGang, ReserveGang, StopGang
from ..booking import booking
from ..ports import Clock, GpuLibrary
from . import actors, compat, ledger, rank_logs
from .launch import Launch, LaunchFailed
from .machines import Machines
from .names import Names
from .records import Key, Record, Records
from .release import Releases
from .sight import Sight
from .specs import Folders
from .waits import Waits


@dataclass(slots=True, kw_only=True)
class _Launching:
    future: Future[None]
    cancelled: threading.Event


class RayExecutor:
    """Drives one site. Connects in `__init__` (RayFault if it cannot); one instance a process.

    `folders` are those of the hosts, `state` a folder of this process, kept across restarts. `local` are the addresses
    that mean this machine. `gpus` makes the GPU library of a machine; None where the hosts only pretend to have cards.
    """

    def __init__(
        self,
        address: str,
        names: Names,
        *,
        folders: Folders,
        state: Path,
        clock: Clock,
        gpus: Callable[[], GpuLibrary] | None = None,
        waits: Waits | None = None,
        local: frozenset[str] | None = None,
    ) -> None:
        self._cluster = compat.connect(address, names.space)
        here = frozenset({compat.node_address(), "127.0.0.1"}) if local is None else local
        self._names, self._folders, self._clock, self._waits = names, folders, clock, waits or Waits()
        self._records = Records(state)
        self._space = f"{names.space}/{self._records.installation}"
        machines = Machines(self._space, gpus, here, self._waits.answer_s)
        self._sight = Sight(names, folders, self._records, machines, self._cluster, self._waits)
        self._releases = Releases(self._sight, self._records, machines, clock, self._waits)
        self._launches: dict[Key, _Launching] = {}
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="launch")
        self._term = 0
        self._reports_due = 0.0

    def lead(self, term: int) -> None:
        """The term of the adapter's lease: every order to a host carries it, and lower ones are refused there."""
        self._term = max(self._term, term)

    def observe(self) -> Observation:
        """What is there now."""
        under_way = frozenset(key for key, launch in self._launches.items() if not launch.future.done())
        return self._sight.look(under_way)

    def apply(self, instruction: Instruction) -> tuple[Event, ...]:
        """Carries out one instruction, as the port says. StaleTerm if a later adapter has taken over."""
        match instruction:
            case ReserveGang(intent=intent):
                return self._reserve(intent)
            case LaunchGang(intent=intent):
                return self._launch(intent)
            case StopGang(job=job, attempt=attempt, grace_s=grace_s):
                self._stop((job, attempt), grace_s)
                return ()
            case ReleaseGang():
                return self._release(instruction)

    def logs(self, job: JobId, attempt: int, rank: int, *, tail: int = 200) -> tuple[str, ...]:
        """The last lines that a rank wrote; empty once the attempt is released and its logs lie on other machines."""
        return rank_logs.tail(self._sight, (job, attempt), rank, tail)

    def mirror_logs(self, folder: Path) -> None:
        """Appends what the ranks have written since to `folder/<job>/<attempt>/<rank>.log`, and their reports."""
        due = time.monotonic() >= self._reports_due
        if due:
            self._reports_due = time.monotonic() + rank_logs.REPORTS_EVERY_S
        rank_logs.mirror(self._sight, folder, reports=due)

    def clean_up(self, choose: rank_logs.Choose) -> int:
        """Removes the folders of attempts that `choose` names, on all hosts; returns how many are gone."""
        return rank_logs.clean_up(self._sight, choose)

    def close(self) -> None:
        """Disconnects; running gangs run on."""
        for launch in self._launches.values():
            launch.cancelled.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        compat.disconnect()

    def _reserve(self, intent: Intent) -> tuple[Event, ...]:
        key = (intent.job.id, intent.attempt)
        booked = booking(intent)
        bundles = {host: ledger.bundle(one) for host, one in booked.items()}
        cards = {host: tuple(card for card, _ in one.cards) for host, one in booked.items()}
        known = self._records.get(key)
        if known is None or not (known.launched or known.releasing):
            self._records.put(
                Record(job=key[0], attempt=key[1], cluster=self._cluster, cards=cards, grace_s=intent.grace_s)
            )
        problem, host = self._cannot_hold(bundles)
        if not problem or key in self._sight.groups():
            problem, host = self._make_group(key, bundles)
        if problem:
            return (self._failed(intent, problem, host),)
        job, attempt = key
        return (GangReserved(id=f"{job}/{attempt}/reserved", at_s=self._clock.now_s(), job=job, attempt=attempt),)

    def _cannot_hold(self, bundles: dict[HostId, dict[str, float]]) -> tuple[str, HostId | None]:
        nodes, free = self._sight.nodes(), compat.available()
        for host, asked in bundles.items():
            node = nodes.get(host)
            if node is None or not node.alive:
                return f"host {host} is not alive in the site's Ray cluster", host
            lack = ledger.lacking(node, free.get(node.id, {}), asked)
            if lack:
                return lack, host
        return "", None

    def _make_group(self, key: Key, bundles: dict[HostId, dict[str, float]]) -> tuple[str, HostId | None]:
        name = self._names.group(*key)
        try:
            up = compat.create_group(name, list(bundles.values()), list(bundles), self._waits.reserve_s)
        except compat.RayFault as fault:
            return str(fault), None
        group = self._sight.groups().get(key)
        if up and group is not None:
            placed = [self._sight.host_of(node) for node in group.nodes]
            if placed == list(bundles):
                return "", None
            up = False
        # A group left pending would take a host the moment it joins.
        if group is not None:
            compat.remove_group(group)
        problem, host = self._cannot_hold(bundles)
        return problem or f"Ray did not reserve the hosts in {self._waits.reserve_s:g} s", host

    def _launch(self, intent: Intent) -> tuple[Event, ...]:
        key = (intent.job.id, intent.attempt)
        under_way = self._launches.get(key)
        if under_way is None:
            return self._begin_launch(key, intent)
        if not under_way.future.done():
            return ()
        del self._launches[key]
        try:
            under_way.future.result()
        except LaunchFailed as failure:
            if isinstance(failure.__cause__, StaleTerm):
                raise failure.__cause__ from failure
            return (self._failed(intent, failure.cause, failure.host),)
        except PhalanxError as fault:
            return (self._failed(intent, str(fault), None),)
        return ()

    def _begin_launch(self, key: Key, intent: Intent) -> tuple[Event, ...]:
        group, record = self._sight.groups().get(key), self._records.get(key)
        if intent.job.command is None:
            return (self._failed(intent, "the job has no command to run", None),)
        if group is None or record is None:
            return (self._failed(intent, "nothing is reserved for it", None),)
        nodes = self._sight.nodes()
        dead = next((host for host in record.hosts if host not in nodes or not nodes[host].alive), None)
        if dead is not None:
            return (self._failed(intent, f"host {dead} is not alive in the site's Ray cluster", dead),)
        self._records.put(replace(record, launched=True))
        cancelled = threading.Event()
        launch = Launch(
            intent=intent,
            group=group,
            names=self._names,
            space=self._space,
            folders=self._folders,
            addresses={host: nodes[host].address for host in record.hosts},
            term=self._term,
            wait_s=self._waits.launch_s,
            cancelled=cancelled,
        )
        self._launches[key] = _Launching(future=self._pool.submit(launch.run), cancelled=cancelled)
        return ()

    def _stop(self, key: Key, grace_s: int) -> None:
        launch = self._launches.get(key)
        if launch is not None:
            launch.cancelled.set()
        runners = self._sight.runners(key)
        asked = {host: actors.call(runner, "stop", self._term, grace_s) for host, runner in runners.items()}
        for answer in actors.answers(asked, self._waits.answer_s).values():
            if isinstance(answer, StaleTerm):
                raise answer

    def _release(self, instruction: ReleaseGang) -> tuple[Event, ...]:
        key = (instruction.job, instruction.attempt)
        launch = self._launches.get(key)
        if launch is not None:
            launch.cancelled.set()
            if not launch.future.done():
                return ()
            del self._launches[key]
        return self._releases.release(instruction, self._stop)

    def _failed(self, intent: Intent, cause: str, host: HostId | None) -> GangStartFailed:
        job, attempt = intent.job.id, intent.attempt
        return GangStartFailed(
            id=f"{job}/{attempt}/start-failed",
            at_s=self._clock.now_s(),
            job=job,
            attempt=attempt,
            cause=cause,
            host=host,
        )


def connect(
    address: str,
    site: SiteId,
    namespace: str,
    *,
    data: Path,
    clock: Clock,
    folders: Folders | None = None,
    gpus: Callable[[], GpuLibrary] | None = None,
    waits: Waits | None = None,
) -> RayExecutor:
    """The executor of a site, connected. `namespace` must be this installation's own: strays in it are swept.

    Without `folders`, logs, checkpoints and caches lie below `data` on every host. RayFault if there is no cluster.
    """
    root = data.absolute()
    return RayExecutor(
        address,
        Names(namespace=namespace, site=site),
        folders=folders or Folders.below(root),
        state=root / "attempts" / site,
        clock=clock,
        gpus=gpus,
        waits=waits,
    )
