"""Waiting for a job's end, telling each change of its state."""

from __future__ import annotations

import time
from typing import Any

from .client import Service, job_path
from .exit_codes import Exit, Stop
from .options import print_json
from .tables import console

ENDED = ("succeeded", "failed", "cancelled", "rejected", "expired")
POLL_S = 0.5


def wait_for_end(service: Service, job: str, as_json: bool) -> int:
    """Returns OK if the job succeeded, NO if it ended otherwise. Ctrl-C ends the waiting, not the job."""
    try:
        return _follow(service, job, as_json)
    except KeyboardInterrupt:
        raise Stop(
            Exit.INTERRUPTED, f"{job} goes on; `phalanx job {job}` looks at it, `phalanx cancel` ends it"
        ) from None


def _follow(service: Service, job: str, as_json: bool) -> int:
    out = console(stderr=True)
    told = ""
    while True:
        view = service.get(job_path(job))
        line = _line(view)
        if line != told:
            out.print(line)
            told = line
        if view["state"] in ENDED:
            if as_json:
                print_json(view)
            return Exit.OK if view["state"] == "succeeded" else Exit.NO
        time.sleep(POLL_S)


def _line(view: dict[str, Any]) -> str:
    told = f"{view['id']} is {view['state']}"
    if view["hosts"]:
        told += f" on {', '.join(view['hosts'])}"
    if view["state"] == "queued" and view.get("reason"):
        return f"{told}: {view['reason']['sentence']}"
    if view["state"] in ENDED and view["message"]:
        return f"{told}: {view['message']}"
    return told
