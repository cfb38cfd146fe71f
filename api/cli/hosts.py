"""`phalanx hosts, cordon, uncordon`: the fleet."""

from __future__ import annotations

from typing import Any

import click

from .client import Service, host_path
from .dataplane import size
from .options import json_option, print_json, service_options
from .tables import console, table


@click.command()
@click.option("--site", help="Only this site's.")
@service_options
@json_option
def hosts(site: str | None, url: str, token: str, as_json: bool) -> None:
    """Lists hosts: place, state, what each GPU is used for, and the jobs."""
    found = [host for host in Service(url, token).get("/v1/hosts")["hosts"] if site in (None, host["site"])]
    if as_json:
        print_json({"hosts": found})
        return
    columns = ("host", "place", "state", "GPUs", "in use", "cores", "GiB", "jobs")
    console().print(table("", columns, [_row(host) for host in found]))
    click.echo(_total(found))


@click.command()
@click.argument("host_ids", metavar="HOST...", nargs=-1, required=True)
@click.option("--cause", default="", help="Why; shown with the host.")
@service_options
@json_option
def cordon(host_ids: tuple[str, ...], cause: str, url: str, token: str, as_json: bool) -> None:
    """Gives hosts no new work; what runs there runs on."""
    _each(host_ids, "cordon", {"cause": cause}, url, token, as_json)


@click.command()
@click.argument("host_ids", metavar="HOST...", nargs=-1, required=True)
@service_options
@json_option
def uncordon(host_ids: tuple[str, ...], url: str, token: str, as_json: bool) -> None:
    """Lets cordoned hosts take work again."""
    _each(host_ids, "uncordon", {}, url, token, as_json)


def _each(hosts: tuple[str, ...], action: str, body: dict[str, str], url: str, token: str, as_json: bool) -> None:
    service = Service(url, token)
    views = []
    for host in dict.fromkeys(hosts):
        view = service.post(host_path(host, action), body)
        views.append(view)
        if not as_json:
            click.echo(f"{view['id']} is {view['state']}")
    if as_json:
        print_json({"hosts": views})


def _row(host: dict[str, Any]) -> tuple[str, ...]:
    cards = host["gpus"]
    kinds = sorted({card["gpu_type"] for card in cards})
    place = "/".join(part for part in (host["site"], host["zone"], host["rack"]) if part)
    state = f"{host['state']} ({host['state_cause']})" if host["state_cause"] else host["state"]
    cores = f"{host['cpu_milli_used'] / 1000:g}/{host['cpu_milli'] / 1000:g}"
    memory = f"{host['memory_mib_used'] // 1024}/{host['memory_mib'] // 1024}"
    count = f"{len(cards)} x {', '.join(kinds)}" if cards else "none"
    held = (f"(held for {job})" for job in host.get("reserved_for", {}))
    jobs = " ".join([*host["jobs"], *held, *map(_loads, host.get("prefetches", ()))])
    return (
        host["id"],
        place,
        state,
        count,
        "".join(map(_cell, cards)),
        cores,
        memory,
        jobs,
    )


def _loads(order: dict[str, Any]) -> str:
    return f"(loads {order['dataset']['name']}, {size(order['mib'] * 2**20)}, for {order['job']})"


def _cell(card: dict[str, Any]) -> str:
    """One sign a card: # full, + shared, . free, x unhealthy."""
    if not card["healthy"]:
        return "x"
    return "." if card["used_milli"] == 0 else "#" if card["used_milli"] >= 1000 else "+"


def _total(hosts: list[dict[str, Any]]) -> str:
    cards = [card for host in hosts for card in host["gpus"]]
    used = sum(card["used_milli"] for card in cards) / 1000
    return f"{len(hosts)} hosts, {used:g} of {len(cards)} GPUs in use (# full, + shared, . free, x unhealthy)"
