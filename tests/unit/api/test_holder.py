"""Leases of dead processes of this machine are taken back, others never."""

import subprocess
import sys

from phalanx.api.holder import holder_name, reclaim


def test_names_differ():
    assert holder_name() != holder_name()


def test_a_dead_holder_gives_way_with_a_higher_term(store, clock):
    program = "from phalanx.api.holder import holder_name; print(holder_name())"
    dead = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    first = store.acquire("scheduler", dead, ttl_s=60, now_s=clock.now_s())
    assert store.acquire("scheduler", holder_name(), ttl_s=60, now_s=clock.now_s()) is None
    assert reclaim(store, "scheduler")
    second = store.acquire("scheduler", holder_name(), ttl_s=60, now_s=clock.now_s())
    assert second.term == first.term + 1


def test_living_and_foreign_holders_are_left_alone(store, clock):
    assert not reclaim(store, "scheduler")
    for number, holder in enumerate((holder_name(), "elsewhere/abc/1/ff", "odd name", "a/b/c/d")):
        store.acquire(f"lease{number}", holder, ttl_s=60, now_s=clock.now_s())
        assert not reclaim(store, f"lease{number}")
