"""`phalanx schema`: the published formats, as docs/formats/ holds them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ...model.codec import KINDS, VERSION, nearest
from ...model.errors import InvalidInput
from ...model.schema import json_schema
from .files import write_text
from .options import json_option, print_json


@click.command()
@click.argument("kind", required=False)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write all schemas into this folder.")
@json_option
def schema(kind: str | None, out: Path | None, as_json: bool) -> None:
    """Prints the JSON Schema of KIND (such as snapshot or phalanx.job), or the list of kinds.

    All output but the list is JSON in any case.
    """
    if out is not None:
        for each in KINDS:
            write_text(out / file_name(each), schema_text(each))
        click.echo(f"{len(KINDS)} schemas in {out}")
    elif kind is None:
        print_json(list(KINDS)) if as_json else click.echo("\n".join(KINDS))
    else:
        full = kind if kind in KINDS else f"phalanx.{kind}"
        if full not in KINDS:
            raise InvalidInput(kind, "no such document", nearest(full, KINDS))
        click.echo(schema_text(full), nl=False)


def file_name(kind: str) -> str:
    """The name of a kind's file in docs/formats/."""
    return f"{kind}.v{VERSION}.schema.json"


def schema_text(kind: str) -> str:
    """The schema's file content."""
    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"
