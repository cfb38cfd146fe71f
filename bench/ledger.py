"""Who holds which cards in a simulation, and what that leaves: kept beside the store, cheap to add up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..model.elastic import as_placed
from ..model.host import MILLI, Host
from ..model.ids import HostId, JobId
from ..model.job import Job
from ..model.placement import Placement
from ..model.policy import StandardGang
from ..solver.appetite import Amounts, Appetite
from .run import Sample, Span


class Ledger:
    """Occupancy per card from `planned` to `released`, samples over time, and a span for each attempt and host.

    Of the standard gangs, the first (largest) that the empty fleet holds is counted, on cards of which each has
    `beside` left on its host: milli-cores, MiB and Mbit/s a GPU.
    """

    def __init__(self, hosts: Sequence[Host], gangs: Sequence[StandardGang], beside: Amounts = (0, 0, 0)) -> None:
        self._hosts = {host.id: host for host in hosts}
        self._cards = {host.id: {gpu.index: 0 for gpu in host.gpus if gpu.healthy} for host in hosts}
        self._whole = {host.id: len(self._cards[host.id]) for host in hosts}
        self._left = {host.id: [host.cpu_milli, host.memory_mib, host.network_mbps] for host in hosts}
        self._appetite = Appetite({}, beside)
        self._down: set[HostId] = set()
        self._capacity = sum(host.gpu_milli for host in hosts)
        self._held = 0
        self._since: dict[JobId, tuple[int, Placement, Job, int]] = {}
        self._waiting = (0, 0)
        self._gang = next((gang for gang in gangs if self._room(gang)), None)
        self.samples: list[Sample] = []
        self.spans: list[Span] = []

    def take(self, job: Job, attempt: int, placement: Placement, now_s: int) -> None:
        """The attempt holds its cards from now on."""
        job = as_placed(job, placement)
        self._since[job.id] = (now_s, placement, job, attempt)
        self._book(job, placement, 1)
        self._held += job.gpu_milli

    def give(self, job: JobId, now_s: int) -> float:
        """The attempt is gone; returns the GPU-seconds that it held, 0 for one that held nothing."""
        entry = self._since.pop(job, None)
        if entry is None:
            return 0.0
        since_s, placement, asked, attempt = entry
        self._book(asked, placement, -1)
        self._held -= asked.gpu_milli
        for host in placement.hosts:
            cards = sorted({card for worker in placement.workers if worker.host == host for card in worker.gpus})
            self.spans.append(Span(job, asked.team, host, tuple(cards), since_s, now_s, attempt))
        return (now_s - since_s) * asked.gpu_milli / MILLI

    def down(self, host: HostId) -> None:
        """The host is no capacity."""
        if host not in self._down:
            self._down.add(host)
            self._capacity -= self._hosts[host].gpu_milli

    def back(self, host: HostId) -> None:
        """The host is capacity again."""
        if host in self._down:
            self._down.discard(host)
            self._capacity += self._hosts[host].gpu_milli

    @property
    def idle_milli(self) -> int:
        """milli-GPU of the capacity that nobody holds."""
        return self._capacity - self._held

    def waiting(self, jobs: int, milli: int) -> None:
        """What the round that just ended left in the queue."""
        self._waiting = (jobs, milli)

    def sample(self, now_s: int) -> None:
        """Writes down how things stand; several samples of one second become the last."""
        if self.samples and self.samples[-1].at_s == now_s:
            self.samples.pop()
        jobs, milli = self._waiting
        whole = sum(count for host, count in self._whole.items() if host not in self._down)
        gangs = self._room(self._gang) if jobs and self._gang else 0
        self.samples.append(Sample(now_s, self._held, self._capacity, jobs, milli, whole, gangs))

    def _book(self, job: Job, placement: Placement, sign: int) -> None:
        for worker in placement.workers:
            role = job.role(worker.role)
            if role is None:
                continue
            request, left = role.request, self._left[worker.host]
            for number, amount in enumerate((request.cpu_milli, request.memory_mib, request.network_mbps)):
                left[number] -= sign * amount
            milli = request.gpu_milli if request.fractional else MILLI
            cards = self._cards[worker.host]
            for card in worker.gpus:
                was_free = cards[card] == 0
                cards[card] += sign * milli
                self._whole[worker.host] += (cards[card] == 0) - was_free

    def _room(self, gang: StandardGang) -> int:
        """How many gangs of that shape could start, each inside one domain and GPU type."""
        slots: dict[tuple[str, str], int] = defaultdict(int)
        for name, whole in self._whole.items():
            cpu_milli, memory_mib, network_mbps = self._left[name]
            free = self._appetite.served(whole, (cpu_milli, memory_mib, network_mbps)) if whole >= gang.gpus else 0
            if free >= gang.gpus and name not in self._down:
                host = self._hosts[name]
                slots[host.path.domain(gang.layer, name), host.gpus[0].gpu_type] += free // gang.gpus
        return sum(count // gang.workers for count in slots.values())
