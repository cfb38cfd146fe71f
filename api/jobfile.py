"""Job files: the friendly form of a job (YAML, or the same keys as JSON) becomes a `Job`.

Amounts carry their units ("4h", "80GiB"), a single role needs no list, and unknown keys are errors that name the
nearest right one. A `phalanx.job` document is accepted wherever the friendly form is.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

from ..model.codec import from_document
from ..model.errors import InvalidInput
from ..model.ids import JobId, SiteId, TeamId
from ..model.job import AntiAffinity, Command, Elastic, Job, Preemptible, Role, Strictness, TopologyConstraint
from ..model.topology import Layer
from . import units
from .jobfile_fields import Section, boolean, choice, instant_s, pairs, text, texts, words
from .jobfile_parts import ROLE_KEYS, checkpoint, dataset, role
from .jobfile_yaml import load_yaml_file

DEFAULT_TEAM = "default"
KEYS = (
    "id",
    "name",
    "team",
    "user",
    "tier",
    "priority",
    "preemptible",
    *ROLE_KEYS,
    "roles",
    "topology",
    "cross_site",
    "off_premises",
    "sites",
    "anti_affinity",
    "walltime",
    "estimate",
    "checkpoint",
    "elastic",
    "dataset",
    "queue_deadline",
    "start_timeout",
    "finish_by",
    "after",
    "movable",
    "max_restarts",
    "labels",
    "env",
    "workdir",
    "command",
)
"""The keys of a job file; docs/job-files.md says what each means."""

# What the model's own checks call a field that a job file calls otherwise.
_FRIENDLY = {
    "gpu_milli": "gpus",
    "gpu_memory_mib": "gpu_memory",
    "cpu_milli": "cpu",
    "memory_mib": "memory",
    "network_mbps": "network",
    "count": "workers",
    "gpu_types": "gpu_type",
    "walltime_limit_s": "walltime",
    "walltime_estimate_s": "estimate",
    "queue_deadline_s": "queue_deadline",
    "start_timeout_s": "start_timeout",
    "finish_by_s": "finish_by",
    "interval_s": "interval",
    "write_s": "write",
    "restart_s": "restart",
    "grace_s": "grace",
    "size_mib": "size",
    "argv": "command",
}


def load_jobfile(path: Path) -> Job:
    """Reads one job file. Raises InvalidInput, naming the file, the key and what would be right."""
    return job_from_file_dict(path, load_yaml_file(path))


def job_from_file_dict(path: Path, data: Any) -> Job:
    """As `load_jobfile`, from the values already read from `path` and perhaps changed by flags."""
    try:
        return job_from_dict(data)
    except InvalidInput as fault:
        raise InvalidInput(str(path), str(InvalidInput(fault.path, fault.problem)), fault.expected) from None


def job_from_dict(data: Any, *, default_id: str | None = None) -> Job:
    """The job of a friendly dict or of a `phalanx.job` document.

    Without an `id`, the job is called `default_id`, else its name and four random characters. Raises InvalidInput.
    """
    if isinstance(data, dict) and "kind" in data:
        document: Job = from_document(data, Job)
        return document
    try:
        return _job(Section("", data, KEYS), default_id)
    except InvalidInput as fault:
        raise InvalidInput(_friendly(fault.path), fault.problem, fault.expected) from None


def new_job_id(name: str) -> str:
    """A fresh job id: the name in lower case, letters, digits and dashes, and four random hexadecimal digits."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "job"
    return f"{slug}-{secrets.token_hex(2)}"


def _job(section: Section, default_id: str | None) -> Job:
    name = section.take("name", text, "")
    roles = _roles(section)
    return Job(
        id=JobId(section.take("id", text, None) or default_id or new_job_id(name)),
        name=name,
        team=TeamId(section.take("team", text, DEFAULT_TEAM)),
        user=section.take("user", text, ""),
        tier=section.take("tier", _tier, 3),
        priority=section.take("priority", _priority, 0),
        preemptible=section.take("preemptible", _preemptible, Preemptible.BY_HIGHER),
        roles=roles,
        topology=section.take("topology", _topology, ()),
        cross_site=section.take("cross_site", boolean, False),
        off_premises=section.take("off_premises", boolean, None),
        sites=tuple(SiteId(site) for site in section.take("sites", texts, ())),
        anti_affinity=section.take("anti_affinity", _anti_affinity, ()),
        walltime_limit_s=section.take("walltime", units.duration_s, None),
        walltime_estimate_s=section.take("estimate", units.duration_s, None),
        checkpoint=section.take("checkpoint", checkpoint, None),
        elastic=section.take("elastic", lambda field, value: _elastic(field, value, roles), None),
        dataset=section.take("dataset", dataset, None),
        queue_deadline_s=section.take("queue_deadline", units.duration_s, None),
        start_timeout_s=section.take("start_timeout", units.duration_s, None),
        finish_by_s=section.take("finish_by", instant_s, None),
        after=tuple(JobId(job) for job in section.take("after", texts, ())),
        movable=section.take("movable", boolean, True),
        max_restarts=section.take("max_restarts", lambda f, v: units.whole(f, v, "restarts"), 3),
        labels=section.take("labels", pairs, ()),
        command=_command(section),
    )


def _roles(section: Section) -> tuple[Role, ...]:
    if not section.has("roles"):
        return (role(section, "worker"),)
    for key in ROLE_KEYS:
        if section.has(key):
            raise InvalidInput(section.path(key), "stands beside roles", f"{key} inside each role that needs it")
    listed = section.take("roles", lambda _, value: value, None)
    if not isinstance(listed, list) or not listed:
        raise InvalidInput("roles", f"{type(listed).__name__} is not a list of roles", "a list with one role or more")
    roles = []
    for index, item in enumerate(listed):
        part = Section(f"roles[{index}]", item, ("name", *ROLE_KEYS))
        roles.append(role(part, part.take("name", text, f"role{index}")))
    return tuple(roles)


def _command(section: Section) -> Command | None:
    argv = section.take("command", words, None)
    env = section.take("env", pairs, ())
    workdir = section.take("workdir", text, "")
    if argv is None:
        if env or workdir:
            raise InvalidInput("command", "missing, though env or workdir is given", "the program and its arguments")
        return None
    return Command(argv=argv, env=env, workdir=workdir)


def _tier(field: str, value: Any) -> int:
    tier = units.whole(field, value, "as tier", 1)
    if tier > 4:
        right = "1 (incident), 2 (scheduled production), 3 (development) or 4 (exploratory)"
        raise InvalidInput(field, f"there is no tier {tier}", right)
    return tier


def _priority(field: str, value: Any) -> int:
    return units.whole(field, value, "as priority", -1_000_000)


def _preemptible(field: str, value: Any) -> Preemptible:
    return choice(field, value, Preemptible)


def _topology(field: str, value: Any) -> tuple[TopologyConstraint, ...]:
    section = Section(field, value, [strictness.value for strictness in Strictness])
    return tuple(
        TopologyConstraint(layer=choice(section.path(strictness.value), layer, Layer), strictness=strictness)
        for strictness in Strictness
        for layer in section.take(strictness.value, texts, ())
    )


def _anti_affinity(field: str, value: Any) -> tuple[AntiAffinity, ...]:
    rules = []
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        where = f"{field}[{index}]" if isinstance(value, list) else field
        section = Section(where, item if isinstance(item, dict) else {"label": item}, ("label", "layer"))
        layer = section.take("layer", lambda f, v: choice(f, v, Layer), Layer.HOST)
        rules.append(AntiAffinity(label=section.need("label", text), layer=layer))
    return tuple(rules)


def _elastic(field: str, value: Any, roles: tuple[Role, ...]) -> Elastic:
    section = Section(field, value, ("role", "sizes"))
    sizes = section.need("sizes", lambda _, listed: listed)
    if not isinstance(sizes, list):
        raise InvalidInput(section.path("sizes"), f"{sizes!r} is not a list", "a list such as [2, 4, 8]")
    read = tuple(units.whole(f"{field}.sizes[{i}]", size, "workers", 1) for i, size in enumerate(sizes))
    return section.build(Elastic, role=section.take("role", text, roles[0].name), sizes=read)


def _friendly(path: str) -> str:
    return ".".join(_FRIENDLY.get(part, part) for part in path.split("."))
