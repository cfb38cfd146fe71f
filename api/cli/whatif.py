"""`phalanx whatif`: a changed fleet, queue or policy beside today's, on a file or against the service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click

from ...model.change import AddHosts, AddJobs, Change, ChangeHost, ChangePolicy, ChangeTeam, GpuPrice
from ...model.codec import document, nearest
from ...model.errors import InvalidInput
from ...model.host import HostState
from ...model.ids import HostId, JobId, TeamId
from ...model.snapshot import Snapshot
from .exit_codes import Exit
from .files import read_document, read_policy
from .options import FILE, json_option, print_json, service_options


@click.command()
@click.argument("snapshot_file", metavar="[SNAPSHOT]", type=FILE, required=False)
@click.option("--live", is_flag=True, help="Change the service's fleet of this moment instead of a file's.")
@click.option("--change", "change_file", type=FILE, help="A phalanx.change document; flags are added to it.")
@click.option("--policy", "policy_file", type=FILE, help="Policy in TOML or JSON; defaults, or the service's, without.")
@click.option("--add-hosts", multiple=True, metavar="HOST=N", help="N more hosts like HOST.")
@click.option("--remove-host", multiple=True, metavar="HOST", help="Without HOST; its jobs queue again.")
@click.option("--host-state", multiple=True, metavar="HOST=STATE", help="HOST ready, cordoned, down, ...")
@click.option("--add-job", multiple=True, metavar="JOB.yaml[=N]", help="N more jobs as in a job file.")
@click.option("--remove-job", multiple=True, metavar="JOB", help="Without JOB.")
@click.option("--team-weight", multiple=True, metavar="TEAM=N", help="TEAM weighs N beside its siblings.")
@click.option("--set", "policy_fields", multiple=True, metavar="FIELD=N", help="A number of the policy.")
@click.option("--price", multiple=True, metavar="TYPE=AMOUNT", help="Price of a GPU of TYPE per hour.")
@service_options
@json_option
def whatif(
    snapshot_file: Path | None,
    live: bool,
    change_file: Path | None,
    policy_file: Path | None,
    url: str,
    token: str,
    as_json: bool,
    **flags: tuple[str, ...],
) -> int:
    """Compares SNAPSHOT ("-" for stdin) with a changed one: who starts when, waits, allocation, idle GPUs, cost.

    Needs no service, unless --live asks it for its fleet. Changes nothing.
    """
    if live == (snapshot_file is not None):
        raise InvalidInput("SNAPSHOT", "says neither or both of a file and --live", "a snapshot file, or --live")
    change = _joined(read_document(change_file, Change) if change_file else Change(), _from_flags(flags))
    seen = (
        _live(change, policy_file, url, token) if snapshot_file is None else _file(snapshot_file, change, policy_file)
    )
    if as_json:
        print_json(seen)
    else:
        from .show_whatif import show_whatif

        show_whatif(seen)
    return Exit.OK


def _file(path: Path, change: Change, policy_file: Path | None) -> dict[str, Any]:
    snapshot, policy = read_document(path, Snapshot), read_policy(policy_file)
    from ...solver.whatif import what_if
    from ..engine import decide
    from ..whatif_plain import plain

    return plain(what_if(snapshot, change, policy, decide=decide))


def _live(change: Change, policy_file: Path | None, url: str, token: str) -> dict[str, Any]:
    from .client import Service

    body = {"change": document(change)}
    if policy_file is not None:
        body["policy"] = document(read_policy(policy_file))
    answer: dict[str, Any] = Service(url, token, timeout_s=300.0).post("/v1/whatif", body)
    return answer


def _joined(base: Change, more: Change) -> Change:
    """Both changes in one; a name that stands in both is refused."""
    names = [field.name for field in fields(Change)]
    return replace(base, **{name: (*getattr(base, name), *getattr(more, name)) for name in names})


def _from_flags(flags: dict[str, tuple[str, ...]]) -> Change:
    states = {str(state): state for state in HostState}

    def state(flag: str, text: str) -> HostState:
        if text not in states:
            raise InvalidInput(flag, f"{text!r} is no state of a host", nearest(text, states))
        return states[text]

    return Change(
        add_hosts=tuple(
            AddHosts(like=HostId(name), count=count)
            for name, count in _pairs("--add-hosts", "HOST=N", flags["add_hosts"], _whole)
        ),
        remove_hosts=tuple(HostId(name) for name in flags["remove_host"]),
        hosts=tuple(
            ChangeHost(host=HostId(name), state=value)
            for name, value in _pairs("--host-state", "HOST=STATE", flags["host_state"], state)
        ),
        add_jobs=tuple(_job(text) for text in flags["add_job"]),
        remove_jobs=tuple(JobId(name) for name in flags["remove_job"]),
        teams=tuple(
            ChangeTeam(team=TeamId(name), weight=weight)
            for name, weight in _pairs("--team-weight", "TEAM=N", flags["team_weight"], _whole)
        ),
        policy=tuple(
            ChangePolicy(field=name, value=value)
            for name, value in _pairs("--set", "FIELD=N", flags["policy_fields"], _whole)
        ),
        prices=tuple(
            GpuPrice(gpu_type=name, milli_per_hour=amount)
            for name, amount in _pairs("--price", "TYPE=AMOUNT", flags["price"], _money)
        ),
    )


def _pairs(flag: str, shape: str, given: Iterable[str], read: Callable[[str, str], Any]) -> list[tuple[str, Any]]:
    out = []
    for text in given:
        name, sign, value = text.rpartition("=")
        if not sign or not name:
            raise InvalidInput(flag, f"{text[:80]!r} has no name and value", shape)
        out.append((name, read(flag, value)))
    return out


def _whole(flag: str, text: str) -> int:
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit() or len(text) > 13:
        raise InvalidInput(flag, f"{text[:40]!r} is not a whole number", "digits only, such as 4")
    return int(text)


def _money(flag: str, text: str) -> int:
    try:
        milli = Decimal(text) * 1_000
    except InvalidOperation:
        raise InvalidInput(flag, f"{text[:40]!r} is not an amount", "a number such as 2.5") from None
    if not milli.is_finite() or milli != milli.to_integral_value():
        raise InvalidInput(
            flag, f"{text[:40]!r} cannot be booked", "a number with at most three digits after the point"
        )
    return int(milli)


def _job(text: str) -> AddJobs:
    from ..jobfile import load_jobfile

    name, sign, number = text.rpartition("=")
    path, count = (name, _whole("--add-job", number)) if sign and number.isdigit() else (text, 1)
    return AddJobs(job=load_jobfile(Path(path)), count=count)
