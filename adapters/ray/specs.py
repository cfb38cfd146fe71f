"""What the supervisor of one host is told to run: the ranks with their commands, environments and files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...model.ids import HostId
from ...model.intent import Intent
from ..reports import REPORTS
from .processes import ATTEMPT, HOST, JOB, NAMESPACE, SUPERVISOR

_SCRUBBED = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES", SUPERVISOR)
_SCRUBBED_PREFIXES = ("RAY_", "PHALANX_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where things lie on every host of a site; `{host}` in a path becomes the host's name.

    `logs` holds `<job>/<attempt>/<rank>.log` and the exit codes beside it.
    """

    logs: str
    checkpoints: str
    cache: str

    @classmethod
    def below(cls, root: Path) -> Folders:
        """The usual places below one folder."""
        return cls(logs=str(root / "logs"), checkpoints=str(root / "checkpoints"), cache=str(root / "cache" / "{host}"))

    def on(self, host: HostId) -> Folders:
        """The folders of one host."""
        return Folders(**{key: value.replace("{host}", host) for key, value in asdict(self).items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec:
    """One rank: its command, and the environment that comes on top of the host's own, scrubbed one."""

    rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """The ranks of one attempt on one host."""

    namespace: str
    job: str
    attempt: int
    host: str
    grace_s: int
    ranks: tuple[RankSpec, ...]

    @property
    def identity(self) -> dict[str, str]:
        """The variables by which the attempt's processes are found again."""
        return {NAMESPACE: self.namespace, JOB: self.job, ATTEMPT: str(self.attempt), HOST: self.host}

    def document(
        self, files: Mapping[int, tuple[str, str]], base: Mapping[str, str], cwd: str, orphaned: str
    ) -> dict[str, Any]:
        """What the supervisor reads.

        `files` gives each rank's log and exit file, `base` the host's environment, `orphaned` the mark that is left
        when the runner was lost while ranks ran.
        """
        clean = scrubbed(base)
        return {
            "grace_s": self.grace_s,
            "orphaned": orphaned,
            "ranks": [
                {
                    "rank": rank.rank,
                    "argv": list(rank.argv),
                    "env": {**clean, **rank.env, **self.identity},
                    "cwd": rank.workdir or cwd,
                    "log": files[rank.rank][0],
                    "exit": files[rank.rank][1],
                }
                for rank in self.ranks
            ],
        }


def scrubbed(base: Mapping[str, str]) -> dict[str, str]:
    """An environment without what Ray's workers put there, so that a rank sees the host as a login would."""
    return {
        key: value for key, value in base.items() if key not in _SCRUBBED and not key.startswith(_SCRUBBED_PREFIXES)
    }


def host_specs(intent: Intent, namespace: str, folders: Folders, master: tuple[str, int]) -> dict[HostId, HostSpec]:
    """One spec a host. `master` is the address and port where rank 0 will listen. The job must have a command."""
    workers = intent.placement.workers
    local: dict[HostId, list[int]] = {}
    for rank, worker in enumerate(workers):
        local.setdefault(worker.host, []).append(rank)
    return {
        host: HostSpec(
            namespace=namespace,
            job=intent.job.id,
            attempt=intent.attempt,
            host=host,
            grace_s=intent.grace_s,
            ranks=tuple(_rank(intent, rank, ranks, folders.on(host), master) for rank in ranks),
        )
        for host, ranks in local.items()
    }


def _rank(intent: Intent, rank: int, local: list[int], folders: Folders, master: tuple[str, int]) -> RankSpec:
    job, worker = intent.job, intent.placement.workers[rank]
    command = job.command
    assert command is not None, "a job without a command is refused before this"
    uri = job.checkpoint.uri if job.checkpoint else ""
    env = {pair.key: pair.value for pair in command.env} | {
        "RANK": str(rank),
        "LOCAL_RANK": str(local.index(rank)),
        "WORLD_SIZE": str(len(intent.placement.workers)),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, worker.gpus)),
        "PHALANX_ROLE": worker.role,
        "PHALANX_GRACE_S": str(intent.grace_s),
        "PHALANX_CHECKPOINT_DIR": uri or os.path.join(folders.checkpoints, job.id),
        "PHALANX_CACHE_DIR": folders.cache,
        "PHALANX_REPORT_DIR": os.path.join(folders.logs, job.id, str(intent.attempt), REPORTS),
    }
    return RankSpec(rank=rank, argv=command.argv, env=env, workdir=command.workdir)
