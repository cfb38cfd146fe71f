"""JSON Schema (draft 2020-12) of every document, derived from the dataclasses themselves."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from enum import Enum
from typing import Any

from .codec import KINDS, VERSION, encode, fields_of, tag, union_members


def json_schema(kind: str) -> dict[str, Any]:
    """The schema of a document kind such as "phalanx.snapshot". Raises KeyError for an unknown kind."""
    cls = KINDS[kind]
    definitions: dict[str, Any] = {}
    head = {"kind": {"const": kind}, "version": {"const": VERSION}}
    members = union_members(cls)
    if members:
        body: dict[str, Any] = {"oneOf": [_object(member, definitions, {**head, **_tag(member)}) for member in members]}
    else:
        body = _object(cls, definitions, head)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{kind}.v{VERSION}.schema.json",
        "title": kind,
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def _tag(cls: type) -> dict[str, Any]:
    return {"type": {"const": tag(cls)}}


def _object(cls: type, definitions: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    properties = dict(extra)
    required = list(extra)
    for name, (hint, default) in fields_of(cls).items():
        schema = _schema(hint, definitions)
        if default is dataclasses.MISSING:
            required.append(name)
        else:
            schema = {**schema, "default": encode(default)}
        properties[name] = schema
    return {
        "description": inspect.getdoc(cls) or "",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    supertype = getattr(hint, "__supertype__", None)
    if supertype is not None:
        return _schema(supertype, definitions)
    members = union_members(hint)
    if members:
        return _union(members, definitions)
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _schema(typing.get_args(hint)[0], definitions)}
    if dataclasses.is_dataclass(hint):
        return _reference(typing.cast("type", hint), definitions, {})
    if issubclass(hint, Enum):
        definitions.setdefault(
            hint.__name__, {"description": inspect.getdoc(hint) or "", "enum": [member.value for member in hint]}
        )
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"type": {int: "integer", str: "string", bool: "boolean"}[hint]}


def _union(members: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    present = [member for member in members if member is not type(None)]
    if len(present) == 1:
        options = [_schema(present[0], definitions)]
    else:
        options = [_reference(member, definitions, _tag(member)) for member in present]
    if type(None) in members:
        options.append({"type": "null"})
    return options[0] if len(options) == 1 else {"anyOf": options}


def _reference(cls: type, definitions: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}  # breaks the recursion of types that hold themselves
        definitions[cls.__name__] = _object(cls, definitions, extra)
    return {"$ref": f"#/$defs/{cls.__name__}"}
