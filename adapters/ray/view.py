"""From what is seen of one attempt, host by host, to its phase: pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ...model.ids import HostId, JobId
from ...model.intent import GangPhase, ObservedGang, RankExit
from .attempt_files import HostStatus


class Unseen(StrEnum):
    """Why there is no status of a host: nothing answers there, or Ray says that the host is dead."""

    SILENT = "silent"
    DEAD = "dead"


PENDING, RESCHEDULING = frozenset({"PENDING", "PREPARED"}), "RESCHEDULING"


def observed(
    job: JobId, attempt: int, group: str, hosts: Mapping[HostId, HostStatus | Unseen], *, launching: bool = False
) -> ObservedGang:
    """One attempt whose group is in state `group` ("" if there is none) and whose hosts are as given.

    `launching` while a launch by this process is under way.
    """
    known = {host: status for host, status in hosts.items() if isinstance(status, HostStatus)}
    exits = {rank: code for status in known.values() for rank, code in status.exits if rank >= 0}
    phase, lost, cause = _phase(group, hosts, known, launching)
    return ObservedGang(
        job=job,
        attempt=attempt,
        phase=phase,
        exits=tuple(RankExit(rank=rank, code=code) for rank, code in sorted(exits.items())),
        # Ranks that nobody supervises need no warning, or had it when their runner was lost.
        stopping=all(status.stopping or not status.supervised for status in known.values())
        and (phase is GangPhase.BROKEN or any(status.stopping for status in known.values())),
        cause=cause,
        lost_host=lost,
    )


def _phase(
    group: str, hosts: Mapping[HostId, HostStatus | Unseen], known: Mapping[HostId, HostStatus], launching: bool
) -> tuple[GangPhase, HostId | None, str]:
    if group in PENDING:
        return GangPhase.RESERVING, None, ""
    dead = next((host for host, status in hosts.items() if status is Unseen.DEAD), None)
    lost = next((host for host, status in known.items() if status.lost), None)
    if dead is not None:
        return GangPhase.BROKEN, dead, f"host {dead} was lost"
    if lost is not None and not launching:
        return GangPhase.BROKEN, lost, f"what runs the ranks on host {lost} was lost"
    if launching:
        return GangPhase.LAUNCHING, None, ""
    if len(known) < len(hosts):
        return GangPhase.UNKNOWN, None, "no answer from " + ", ".join(h for h in hosts if h not in known)
    if known and all(status.ended for status in known.values()):
        return GangPhase.EXITED, None, ""
    if group != "CREATED":
        first = next(iter(hosts), None)
        return GangPhase.BROKEN, first, f"its placement group is {group.lower() or 'gone'}"
    if known and all(status.started for status in known.values()):
        return GangPhase.RUNNING, None, ""
    return GangPhase.RESERVED, None, ""
