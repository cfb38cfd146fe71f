"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path, dir_okay=False)
"""A file; whether it can be read is said by its reader, in one form for all."""


def json_option(command: F) -> F:
    """`--json`: one JSON document on stdout in place of the tables."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def service_options(command: F) -> F:
    """`--url` and `--token` of the service; passed on as `url` and `token`."""
    token = click.option("--token", envvar="PHALANX_TOKEN", default="", help="Its token. [PHALANX_TOKEN]")
    url = click.option(
        "--url",
        envvar="PHALANX_URL",
        default="http://127.0.0.1:8642",
        show_default=True,
        help="Address of the service. [PHALANX_URL]",
    )
    return url(token(command))


def print_json(data: Any) -> None:
    """Plain values as indented JSON on stdout."""
    click.echo(json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False))
