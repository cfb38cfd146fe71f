"""Actors: made, found, asked and killed, with time limits and with faults as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ...model.errors import PhalanxError
from .compat import Group

K = TypeVar("K", bound=str)


class ActorGone(PhalanxError):
    """Ray says that the actor is dead."""


class ActorSilent(PhalanxError):
    """The actor has not answered in time; it may well live."""


def find_actor(name: str) -> Any | None:
    """The living or dying actor of that name in our namespace, or None."""
    import ray

    try:
        return ray.get_actor(name)
    except ValueError:
        return None


def actor_names() -> frozenset[str]:
    """The names of the actors in our namespace."""
    import ray

    return frozenset(ray.util.list_named_actors())


def start_runner(cls: type, name: str, group: Group, bundle: int, arguments: Mapping[str, object]) -> Any:
    """The detached actor of that name in one bundle of the group, made if there is none. Does not wait for it."""
    import ray
    from ray.util.placement_group import PlacementGroup
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    handle = PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group.id)))
    strategy = PlacementGroupSchedulingStrategy(handle, placement_group_bundle_index=bundle)
    return (
        ray.remote(cls)
        .options(
            name=name,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=0,
            max_restarts=0,
            max_concurrency=4,
            scheduling_strategy=strategy,
        )
        .remote(**arguments)
    )


def start_caretaker(cls: type, node: str, arguments: Mapping[str, object]) -> Any:
    """An actor on that node which ends with this process."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    options = {"num_cpus": 0, "num_gpus": 0, "max_restarts": 0, "scheduling_strategy": strategy}
    return ray.remote(cls).options(**options).remote(**arguments)


def call(actor: Any, method: str, *arguments: object) -> Any:
    """Asks an actor; the answer is had from `answers`."""
    return getattr(actor, method).remote(*arguments)


def answers(asked: Mapping[K, Any], wait_s: float) -> dict[K, Any]:
    """The answers of calls by key, within one common time; faults (ActorGone, ActorSilent, its own) stand as values."""
    import ray

    if not asked:
        return {}
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=wait_s)
    done = set(ready)
    return {key: _answer(ref) if ref in done else ActorSilent("no answer in time") for key, ref in asked.items()}


def _answer(ref: Any) -> Any:
    import ray

    try:
        return ray.get(ref, timeout=5)
    except ray.exceptions.ActorDiedError as fault:
        return ActorGone(_first_line(fault))
    except (ray.exceptions.ActorUnavailableError, ray.exceptions.GetTimeoutError) as fault:
        return ActorSilent(_first_line(fault))
    except ray.exceptions.RayTaskError as fault:
        return fault.cause if isinstance(fault.cause, PhalanxError) else PhalanxError(_first_line(fault.cause))
    except ray.exceptions.RayError as fault:
        return ActorGone(_first_line(fault))


def kill_actor(actor: Any) -> None:
    """Kills an actor at once; nothing happens if it is dead."""
    import ray

    ray.kill(actor, no_restart=True)


def _first_line(fault: BaseException | None) -> str:
    return str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
