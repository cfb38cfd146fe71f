"""Names for the holders of leases, and taking back what a dead process of this machine still holds."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from pathlib import Path

import psutil

from ..adapters.ports import Store


def holder_name() -> str:
    """A name that no other process has, in which this machine and process can be recognised."""
    return f"{socket.gethostname()}/{_process_space()}/{os.getpid()}/{time.time_ns():x}"


def reclaim(store: Store, lease_name: str) -> bool:
    """Gives back a lease whose holder was a process of this machine that has ended, so that nobody waits for its end.

    The next holder gets a higher term all the same. Holders on other machines or in other containers are left alone.
    """
    lease = store.lease(lease_name)
    if lease is None:
        return False
    host, _, rest = lease.holder.partition("/")
    space, _, rest = rest.partition("/")
    pid = rest.partition("/")[0]
    ours = host == socket.gethostname() and space == _process_space() and pid.isdigit()
    if not ours or psutil.pid_exists(int(pid)):
        return False
    store.release(lease)
    return True


def _process_space() -> str:
    """Tells process numbers of this boot and container from those of others; host names may repeat."""
    parts = []
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        parts.append(str(psutil.boot_time()))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
