"""A `Change` applied to a snapshot and a policy; every name that does not exist is refused, saying where."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..model.change import AddHosts, AddJobs, Change, ChangeHost, ChangePolicy, ChangeTeam
from ..model.codec import nearest
from ..model.errors import InvalidInput
from ..model.host import Host, HostState
from ..model.ids import HostId, JobId, TeamId
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team
from ..model.topology import Site, TopologyPath

_OUT = frozenset({HostState.DOWN, HostState.MAINTENANCE, HostState.EVACUATING})
"""States in which a host keeps no work."""


def apply_change(snapshot: Snapshot, policy: Policy, change: Change) -> tuple[Snapshot, Policy]:
    """The world and the policy with the change made. Raises InvalidInput naming the entry at fault.

    Jobs on hosts that go, or go out of service, are queued again with their age. New jobs are submitted now.
    """
    hosts = _hosts(snapshot, change)
    sites = {site.id for site in snapshot.sites}
    missing = dict.fromkeys(host.path.site for host in hosts if host.path.site not in sites)
    return (
        replace(
            snapshot,
            sites=(*snapshot.sites, *(Site(id=site) for site in missing)),
            hosts=hosts,
            jobs=_jobs(snapshot, change, {host.id for host in hosts if host.state not in _OUT}),
            teams=_teams(snapshot, change),
            reservations=tuple(
                promise
                for promise in snapshot.reservations
                if promise.job not in change.remove_jobs and not set(promise.placement.hosts) & set(change.remove_hosts)
            ),
        ),
        _policy(policy, change.policy),
    )


def _hosts(snapshot: Snapshot, change: Change) -> tuple[Host, ...]:
    known = {host.id: host for host in snapshot.hosts}
    for number, name in enumerate(change.remove_hosts):
        _require(f"remove_hosts[{number}]", "host", name, known)
    for number, entry in enumerate(change.hosts):
        _require(f"hosts[{number}].host", "host", entry.host, known)
        known[entry.host] = _changed(known[entry.host], entry)
    made: dict[HostId, Host] = {}
    for number, more in enumerate(change.add_hosts):
        for host in _new_hosts(f"add_hosts[{number}]", more, known, made):
            made[host.id] = host
    gone = set(change.remove_hosts)
    return (*(host for name, host in known.items() if name not in gone), *made.values())


def _changed(host: Host, entry: ChangeHost) -> Host:
    return replace(
        host,
        state=host.state if entry.state is None else entry.state,
        spare=host.spare if entry.spare is None else entry.spare,
        windows=host.windows if entry.windows is None else entry.windows,
    )


def _new_hosts(
    where: str, entry: AddHosts, known: Mapping[HostId, Host], made: Mapping[HostId, Host]
) -> Iterator[Host]:
    if entry.like is not None:
        _require(f"{where}.like", "host", entry.like, known)
        pattern = _as_new(known[entry.like])
    elif entry.host is not None:
        pattern = entry.host
        if entry.count == 1:
            if pattern.id in known or pattern.id in made:
                raise InvalidInput(f"{where}.host.id", f"a host {pattern.id!r} exists", "a name that is not in use")
            yield pattern
            return
    for name in _names(f"{pattern.id}-new", entry.count, {*known, *made}):
        yield replace(pattern, id=HostId(name))


def _as_new(host: Host) -> Host:
    """The same machine, whole, ready and empty, in its rack; copies of an NVLink domain form one of their own."""
    path, domain = host.path, host.path.nvlink
    gpus = tuple(replace(gpu, healthy=True) for gpu in host.gpus)
    return Host(
        id=host.id,
        path=TopologyPath(site=path.site, zone=path.zone, rack=path.rack, nvlink=domain and f"{domain[:120]}-new"),
        gpus=gpus,
        cpu_milli=host.cpu_milli,
        memory_mib=host.memory_mib,
        network_mbps=host.network_mbps,
    )


def _names(stem: str, count: int, taken: set[str]) -> Iterator[str]:
    number = 0
    for _ in range(count):
        number += 1
        while f"{stem[:118]}{number}" in taken:
            number += 1
        yield f"{stem[:118]}{number}"


def _jobs(snapshot: Snapshot, change: Change, in_service: set[HostId]) -> tuple[JobRecord, ...]:
    known = {record.id: record for record in snapshot.jobs}
    for number, name in enumerate(change.remove_jobs):
        _require(f"remove_jobs[{number}]", "job", name, known)
    gone = set(change.remove_jobs)
    before = {host.id for host in snapshot.hosts if host.state not in _OUT}
    lost = before - in_service
    records = [_driven_out(record, lost) for name, record in known.items() if name not in gone]
    teams = {team.id for team in snapshot.teams}
    taken: set[str] = set(known)
    for number, entry in enumerate(change.add_jobs):
        where = f"add_jobs[{number}]"
        if teams and entry.job.team not in teams:
            raise InvalidInput(
                f"{where}.job.team", f"there is no team {entry.job.team!r}", nearest(entry.job.team, teams)
            )
        for record in _new_jobs(where, entry, taken, snapshot.now_s):
            taken.add(record.id)
            records.append(record)
    return tuple(records)


def _new_jobs(where: str, entry: AddJobs, taken: set[str], now_s: int) -> list[JobRecord]:
    if entry.count == 1 and entry.job.id in taken:
        raise InvalidInput(f"{where}.job.id", f"a job {entry.job.id!r} exists", "a name that is not in use")
    names = [entry.job.id] if entry.count == 1 else list(_names(f"{entry.job.id}-", entry.count, taken))
    waits = any(other in taken for other in entry.job.after)
    state = JobState.BLOCKED if waits else JobState.QUEUED
    return [
        JobRecord(job=replace(entry.job, id=JobId(name)), state=state, submitted_s=now_s, state_since_s=now_s)
        for name in names
    ]


def _driven_out(record: JobRecord, lost: set[HostId]) -> JobRecord:
    if record.placement is None or not lost.intersection(record.placement.hosts):
        return record
    return replace(
        record, state=JobState.QUEUED, placement=None, planned_s=None, started_s=None, stop_cause=None, not_before_s=0
    )


def _teams(snapshot: Snapshot, change: Change) -> tuple[Team, ...]:
    teams = {team.id: team for team in snapshot.teams}
    # A team that no one has described has the defaults of one.
    named = {record.job.team for record in snapshot.jobs} if not teams else set()
    for number, entry in enumerate(change.teams):
        if entry.team in named:
            teams.update({name: Team(id=name) for name in sorted(named)})
        _require(f"teams[{number}].team", "team", entry.team, teams)
        teams[entry.team] = _changed_team(f"teams[{number}]", teams[entry.team], entry)
    if teams and not snapshot.teams:
        teams.update(
            {entry.job.team: Team(id=entry.job.team) for entry in change.add_jobs if entry.job.team not in teams}
        )
    return tuple(teams.values())


def _changed_team(where: str, team: Team, entry: ChangeTeam) -> Team:
    try:
        return replace(
            team,
            weight=team.weight if entry.weight is None else entry.weight,
            guarantee=team.guarantee if entry.guarantee is None else entry.guarantee,
            limit=team.limit if entry.limit is None else entry.limit,
        )
    except InvalidInput as fault:
        raise fault.under(where) from None


def _policy(policy: Policy, changes: Iterable[ChangePolicy]) -> Policy:
    for number, entry in enumerate(changes):
        try:
            policy = _with_field(policy, entry.field.split("."), entry)
        except InvalidInput as fault:
            raise fault.under(f"policy[{number}]") from None
    return policy


def _with_field(part: Any, path: list[str], entry: ChangePolicy) -> Any:
    """The part of the policy with the number at the path replaced."""
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    optional = {field.name for field in dataclasses.fields(part) if field.type == "int | None"}
    usable = [n for n, v in fields.items() if isinstance(v, int) or dataclasses.is_dataclass(v) or n in optional]
    if path[0] not in usable:
        raise InvalidInput("field", f"{entry.field!r} is no number of the policy", nearest(path[0], usable))
    old = fields[path[0]]
    if dataclasses.is_dataclass(old) != (len(path) > 1):
        inner = [field.name for field in dataclasses.fields(old)] if dataclasses.is_dataclass(old) else []
        right = f"{path[0]}.{inner[0]} or another of its fields" if inner else path[0]
        raise InvalidInput("field", f"{entry.field!r} is no number of the policy", right)
    if len(path) > 1:
        return replace(part, **{path[0]: _with_field(old, path[1:], entry)})
    if isinstance(old, bool):
        if entry.value not in (0, 1):
            raise InvalidInput("value", f"{entry.value} for {entry.field}", "1 for yes or 0 for no")
        return replace(part, **{path[0]: bool(entry.value)})
    return replace(part, **{path[0]: entry.value})


def _require(where: str, what: str, name: HostId | JobId | TeamId, known: Mapping[Any, object]) -> None:
    if name not in known:
        raise InvalidInput(
            where, f"there is no {what} {name!r}", nearest(name, known) if known else f"no {what} at all"
        )
