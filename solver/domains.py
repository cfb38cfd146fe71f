"""Which slots of a role are of use where its workers must share a domain: those in domains that hold enough of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..model.ids import HostId
from ..model.job import Role
from ..model.topology import Layer
from .held import HostClass
from .slots import Slot

_Key = tuple[str, str | None]


class Domains:
    """The domains that the hosts of a round lie in, by layer."""

    def __init__(self, hosts: Mapping[HostId, HostClass]) -> None:
        self._hosts = hosts
        self._known: dict[Layer, dict[HostId, str]] = {}

    def confined(self, slots: tuple[Slot, ...], role: Role, required: Layer | None) -> tuple[Slot, ...]:
        """The slots without those in domains that hold too few of the role, or no tensor group.

        `required`: the layer of which the gang must choose one domain. The same object where all are of use.
        """
        tensor = role.parallelism.tensor if role.parallelism is not None else 1
        left = self._in_groups(slots, tensor) if tensor > 1 else slots
        if required is None or role.count == 1:
            return left
        keys = self._keys(left, required)
        room = _sums(left, keys)
        if tensor > 1 and required is not Layer.HOST:
            near = self._keys(left, Layer.NVLINK)
            wide = dict(zip(near, keys, strict=True))
            room = Counter[_Key]()
            for key, most in _sums(left, near).items():
                room[wide[key]] += most // tensor * tensor
        if min(room.values(), default=0) >= role.count:
            return left
        return tuple(slot for slot, key in zip(left, keys, strict=True) if room[key] >= role.count)

    def _in_groups(self, slots: tuple[Slot, ...], tensor: int) -> tuple[Slot, ...]:
        """Without the slots of NVLink domains that hold no group; where one slot is a domain, whole groups of it."""
        keys = self._keys(slots, Layer.NVLINK)
        room, number = _sums(slots, keys), Counter(keys)
        if all(most >= tensor and (number[key] > 1 or most % tensor == 0) for key, most in room.items()):
            return slots
        return tuple(
            slot if number[key] > 1 or not slot.most % tensor else replace(slot, most=slot.most // tensor * tensor)
            for slot, key in zip(slots, keys, strict=True)
            if room[key] >= tensor
        )

    def _keys(self, slots: Sequence[Slot], layer: Layer) -> list[_Key]:
        """For each slot the domain that it lies in, and its GPU type: a role runs on one."""
        if layer not in self._known:
            hosts = self._hosts.values()
            self._known[layer] = {host.id: host.host.path.domain(layer, host.id) for host in hosts}
        domain = self._known[layer]
        return [(domain[slot.host], slot.kind.gpu_type if slot.kind is not None else None) for slot in slots]


def _sums(slots: Sequence[Slot], keys: Sequence[_Key]) -> Counter[_Key]:
    room = Counter[_Key]()
    for slot, key in zip(slots, keys, strict=True):
        room[key] += slot.most
    return room
