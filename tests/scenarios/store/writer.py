"""A process that writes jobs' lives into a store until it is killed, telling on stdout what was committed."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "store"))

from store_world import World

from phalanx.adapters.store.sql import open_store


def tell(text: str) -> None:
    print(text, flush=True)


def main(url: str, name: str) -> None:
    world = World(open_store(url), fresh=False)
    tell("ready")
    for number in itertools.count():
        job = f"{name}-{number}"
        world.submit(job)
        tell(f"{job} queued")
        world.plan(job, ["a1"])
        tell(f"{job} planned")
        world.running(job)
        tell(f"{job} running")
        world.exited(job, [0])
        tell(f"{job} stopping")
        world.released(job)
        tell(f"{job} succeeded")


if __name__ == "__main__":
    main(*sys.argv[1:])
