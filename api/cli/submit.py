"""`phalanx submit`: a job file, flags, or both; checked here, admitted and queued by the service."""

from __future__ import annotations

import getpass
import uuid
from pathlib import Path
from typing import Any

import click

from ...model.errors import InvalidInput
from ..jobfile import job_from_dict, job_from_file_dict
from ..jobfile_yaml import load_yaml_file
from .client import Service
from .exit_codes import Exit, complain
from .options import FILE, json_option, print_json, service_options
from .submit_options import job_flags, keys_of
from .watch import wait_for_end

_COMMAND = "phalanx.command"


class _WithCommand(click.Command):
    """Everything behind the first `--` is the job's command, untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Splits the line in two."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(cls=_WithCommand, options_metavar="[FLAGS]", epilog="The job's command stands behind `--`.")
@click.argument("job_file", metavar="[JOB.yaml]", required=False, type=FILE)
@job_flags
@click.option("--key", help="Client key: the same key again is the same job, not a second one.")
@click.option("--wait", is_flag=True, help="Wait for the end; exit code 0 if it succeeded, else 1.")
@service_options
@json_option
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    job_file: Path | None,
    key: str | None,
    wait: bool,
    url: str,
    token: str,
    as_json: bool,
    **flags: Any,
) -> int:
    """Submits a job: phalanx submit [JOB.yaml] [FLAGS] [-- COMMAND ...]

    Flags override the keys of the file. A job that could never run on this fleet is refused (exit code 4) with the
    nearest request that would fit.
    """
    body = job_body(job_file, keys_of(flags), ctx.meta.get(_COMMAND))
    service = Service(url, token)
    _spell_gpu_types(body, flags, service)
    answer = service.submit(body, key or uuid.uuid4().hex)
    for warning in answer["warnings"]:
        complain(f"warning: {warning}")
    if wait:
        return wait_for_end(service, answer["job"], as_json)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{answer['job']} {'submitted' if answer['created'] else 'is known by this key'}")
    return Exit.OK


def job_body(job_file: Path | None, keys: dict[str, Any], command: list[str] | None) -> dict[str, Any]:
    """The job as it goes to the service, after the same checks as there. Raises InvalidInput."""
    data = {} if job_file is None else load_yaml_file(job_file)
    if job_file is None and not keys:
        raise InvalidInput(
            "", "no job is described", "a job file, or flags such as --gpus 8, and the command behind --"
        )
    if isinstance(data, dict) and "kind" in data:
        return _document(data, job_file, keys, command)
    if isinstance(data, dict):
        data = _merged(data, keys, command)
    job = job_from_dict(data) if job_file is None else job_from_file_dict(job_file, data)
    if job.command is None:
        raise InvalidInput("command", "the job has no command", "`command:` in the job file, or the command behind --")
    body: dict[str, Any] = data
    return body


def _merged(data: dict[str, Any], keys: dict[str, Any], command: list[str] | None) -> dict[str, Any]:
    merged = {**data, **keys}
    for key in ("labels", "env"):
        if isinstance(data.get(key), dict) and key in keys:
            merged[key] = {**data[key], **keys[key]}
    if command:
        merged["command"] = list(command)
    merged.setdefault("user", _user())
    if merged.get("command") is not None:
        # As under sbatch: relative paths of the command mean what they mean here.
        merged.setdefault("workdir", str(Path.cwd()))
    if command and "name" not in merged:
        merged["name"] = Path(command[0]).name
    return merged


def _document(
    data: dict[str, Any], job_file: Path | None, keys: dict[str, Any], command: list[str] | None
) -> dict[str, Any]:
    if keys or command:
        given = f"--{next(iter(keys)).replace('_', '-')}" if keys else "--"
        raise InvalidInput(given, f"{job_file} is a finished phalanx.job document", "no flags beside it")
    job_from_file_dict(job_file or Path(), data)
    return data


def _spell_gpu_types(body: dict[str, Any], flags: dict[str, Any], service: Service) -> None:
    """sbatch files write `h100` where the fleet says `H100`: takes the fleet's spelling where only one is near."""
    if not isinstance(body.get("gpu_type"), str) or not (flags["gres"] or flags["gpus_per_node"]):
        return
    known = {gpu["gpu_type"] for host in service.get("/v1/hosts")["hosts"] for gpu in host["gpus"]}
    same = [kind for kind in known if kind.lower() == body["gpu_type"].lower()]
    if len(same) == 1:
        body["gpu_type"] = same[0]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
