"""What an attempt books on each of its hosts, in whole units, and whether a host can hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.host import MILLI, Host
from ..model.ids import HostId
from ..model.intent import Intent
from ..model.job import WorkerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """The sum over an attempt's workers on one host: milli-GPU by card, milli-cores, MiB, Mbit/s."""

    cards: tuple[tuple[int, int], ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    network_mbps: int = 0

    @property
    def gpu_milli(self) -> int:
        """milli-GPU over all cards."""
        return sum(milli for _, milli in self.cards)


def booking(intent: Intent) -> dict[HostId, Booking]:
    """What the attempt books, by host, in order of the first rank."""
    return {host: _on(intent, host) for host in intent.placement.hosts}


def _on(intent: Intent, host: HostId) -> Booking:
    cards: Counter[int] = Counter()
    requests: list[WorkerRequest] = []
    for worker in intent.placement.workers:
        role = intent.job.role(worker.role)
        if worker.host != host or role is None:
            continue
        requests.append(role.request)
        for card in worker.gpus:
            cards[card] += role.request.gpu_milli if role.request.fractional else MILLI
    return Booking(
        cards=tuple(sorted(cards.items())),
        cpu_milli=sum(request.cpu_milli for request in requests),
        memory_mib=sum(request.memory_mib for request in requests),
        network_mbps=sum(request.network_mbps for request in requests),
    )


def misfit(host: Host, bookings: Sequence[Booking]) -> str:
    """Why the host cannot hold all these bookings at once; empty if it can. Card memory is not looked at."""
    cards: Counter[int] = Counter()
    for one in bookings:
        cards.update(dict(one.cards))
    for card, milli in sorted(cards.items()):
        gpu = host.gpu(card)
        if gpu is None or not gpu.healthy:
            return f"host {host.id} has no healthy card {card}"
        if milli > MILLI:
            return f"card {card} of host {host.id} would carry {milli} of {MILLI} milli-GPU"
    for what, asked, offered in (
        ("milli-cores", sum(one.cpu_milli for one in bookings), host.cpu_milli),
        ("MiB of memory", sum(one.memory_mib for one in bookings), host.memory_mib),
        ("Mbit/s", sum(one.network_mbps for one in bookings), host.network_mbps),
    ):
        if asked > offered:
            return f"host {host.id} offers {offered} {what}, {asked} would be booked"
    return ""
