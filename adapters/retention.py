"""How long the folders of attempts are kept: by age and by count, and never those of attempts that live."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import NotFound
from ..model.ids import JobId
from ..model.snapshot import JobRecord

Key = tuple[JobId, int]
"""(job, attempt)."""

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A folder goes `age_s` seconds after it was last written, or once its job has had `attempts` later attempts."""

    age_s: int = 30 * DAY_S
    attempts: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFolder:
    """The folder `<logs>/<job>/<attempt>`; `written_s` is when anything in it was written last (s since the epoch)."""

    job: JobId
    attempt: int
    written_s: int

    @property
    def key(self) -> Key:
        """(job, attempt)."""
        return self.job, self.attempt


def attempt_folders(logs: str | Path) -> tuple[AttemptFolder, ...]:
    """All folders of attempts below `logs`, by job and attempt; anything else that lies there is none of ours."""
    found = []
    for job in _folders(Path(logs)):
        for attempt in _folders(job):
            if attempt.name.isascii() and attempt.name.isdigit():
                found.append(
                    AttemptFolder(job=JobId(job.name), attempt=int(attempt.name), written_s=_written_s(attempt))
                )
    return tuple(sorted(found, key=lambda folder: folder.key))


def expired(
    folders: Iterable[AttemptFolder], record_of: Callable[[JobId], JobRecord], retention: Retention, now_s: int
) -> tuple[Key, ...]:
    """The attempts whose folders may go. A job that is still to run keeps that of its newest attempt.

    Of jobs that the store does not know, age alone decides. `record_of` raises NotFound for these.
    """
    records: dict[JobId, JobRecord | None] = {}
    gone = []
    for folder in folders:
        if folder.job not in records:
            try:
                records[folder.job] = record_of(folder.job)
            except NotFound:
                records[folder.job] = None
        record = records[folder.job]
        if record is not None and folder.attempt >= record.attempt and not record.state.ended:
            continue
        many = record is not None and record.attempt - folder.attempt >= retention.attempts
        if many or now_s - folder.written_s >= retention.age_s:
            gone.append(folder.key)
    return tuple(gone)


def remove_attempts(logs: str | Path, keys: Collection[Key], alive: Collection[Key] = ()) -> int:
    """Removes these folders, but for those whose processes are `alive`; returns how many are gone.

    What cannot be removed stays for the next time.
    """
    count = 0
    for job, attempt in keys:
        folder = Path(logs, job, str(attempt))
        # A name that leads elsewhere was written by nobody of ours.
        if (job, attempt) in alive or os.sep in job or job in ("", ".", "..") or folder.is_symlink():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        count += not folder.exists()
        try:
            folder.parent.rmdir()
        except OSError:
            continue  # other attempts are kept
    return count


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _written_s(folder: Path) -> int:
    newest = 0.0
    for path in (folder, *_folders(folder)):
        try:
            with os.scandir(path) as entries:
                times = [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
            newest = max(newest, path.stat().st_mtime, *times)
        except OSError:
            continue
    return int(newest)
