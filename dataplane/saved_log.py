"""Tells the host's service that a checkpoint is durable, so that the work in it counts as saved."""

import json
import os
import time
from pathlib import Path

FOLDER_VARIABLE = "PHALANX_REPORT_DIR"
FILE_NAME = "saved.jsonl"
VERSION = 1


def report_checkpoint(step: int, begun_s: float | None = None) -> bool:
    """Says that the work up to `begun_s` (seconds since the epoch, when its writing began; now) is saved; on rank 0.

    `save_checkpoint` and `save_sharded` call it; checkpoints written otherwise are told of with it. Returns whether
    it was told: not without PHALANX_REPORT_DIR, on other ranks, or where the disk takes no more.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or os.environ.get("RANK", "0") != "0":
        return False
    line = {"version": VERSION, "at_s": round(time.time() if begun_s is None else begun_s, 3), "step": step}
    path = Path(folder, FILE_NAME)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True
