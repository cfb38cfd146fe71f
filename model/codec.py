"""The one JSON form of the domain's objects: compact (defaults left out), strict, versioned.

A document is an object with `kind` ("phalanx.snapshot"), `version` (1) and the fields of the object. Reading refuses
unknown fields, wrong types, floats and NaN, and names the path and what would be right. `decode(encode(x)) == x`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, NoReturn, TypeVar, Union, cast

from .change import Change
from .decision import Decision
from .errors import InvalidInput
from .event import Event
from .intent import Intent
from .job import Job
from .policy import Policy
from .snapshot import Snapshot

T = TypeVar("T")
VERSION = 1
KINDS: dict[str, Any] = {
    "phalanx.snapshot": Snapshot,
    "phalanx.policy": Policy,
    "phalanx.decision": Decision,
    "phalanx.job": Job,
    "phalanx.event": Event,
    "phalanx.intent": Intent,
    "phalanx.change": Change,
}
"""The documents that cross Phalanx's borders; each has a JSON Schema in docs/formats/."""


def dumps(value: Any, *, indent: int | None = None) -> str:
    """The document of a Snapshot, Policy, Decision, Job, Event, Intent or Change as JSON text."""
    return json.dumps(document(value), indent=indent, allow_nan=False, separators=None if indent else (",", ":"))


def document(value: Any) -> dict[str, Any]:
    """As `dumps`, as plain dicts and lists."""
    body = encode(value)
    kind = _kind_of(value)
    if kind == "phalanx.event":
        body = {"type": tag(type(value)), **body}
    return {"kind": kind, "version": VERSION, **body}


def loads(text: str | bytes, expected: type[T]) -> T:
    """Reads a document of the expected class from JSON text. Raises InvalidInput."""
    return cast("T", from_document(parse_json(text), expected))


def parse_json(text: str | bytes) -> Any:
    """JSON text as plain values; NaN, infinities, doubled keys and broken text raise InvalidInput, saying where."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except UnicodeDecodeError as error:
        raise InvalidInput("", f"the text is not UTF-8 (byte {error.start})", "a JSON document") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput("", f"not JSON: {error.msg} at {where}", "a complete JSON document") from None
    except RecursionError:
        raise InvalidInput("", "the JSON is nested too deeply", "a document of ordinary depth") from None


def from_document(data: Any, expected: Any) -> Any:
    """As `loads`, from plain values."""
    if not isinstance(data, dict):
        raise InvalidInput("", f"{_shown(data)} is not an object", "an object with kind, version and fields")
    kind = next(name for name, cls in KINDS.items() if cls == expected)
    body = dict(data)
    found = body.pop("kind", None)
    if found != kind:
        raise InvalidInput("kind", f"{found!r}" if found else "missing", f'"{kind}"')
    version = body.pop("version", None)
    if version != VERSION:
        raise InvalidInput("version", f"{version!r} is not a version that this program reads", str(VERSION))
    return decode(body, expected)


def encode(value: Any) -> Any:
    """Plain JSON values of a dataclass, enum, tuple or scalar; fields at their default are left out."""
    cls: Any = type(value)
    return _encoder(cls)(value)


def decode(data: Any, expected: Any) -> Any:
    """The object of class `expected` (dataclass, union of dataclasses, enum, tuple, scalar) from plain JSON values."""
    return _decoder(expected)(data)


def tag(cls: type) -> str:
    """The `type` by which a member of a union of dataclasses is told: its class name in snake case."""
    name = cls.__name__
    return "".join(f"_{char.lower()}" if char.isupper() and index else char.lower() for index, char in enumerate(name))


def fields_of(cls: type) -> dict[str, tuple[Any, Any]]:
    """Each field's type and default (dataclasses.MISSING where it is required)."""
    hints = typing.get_type_hints(cls)
    plan: dict[str, tuple[Any, Any]] = {}
    for field in dataclasses.fields(cls):
        default = field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        plan[field.name] = (hints[field.name], default)
    return plan


def union_members(expected: Any) -> tuple[Any, ...]:
    """Members of a union type, or () for any other type."""
    if typing.get_origin(expected) in (Union, types.UnionType):
        return typing.get_args(expected)
    return ()


@cache
def _encoder(cls: Any) -> Callable[[Any], Any]:
    """What writes values of that class: a snapshot is tens of thousands of values of a few classes."""
    if issubclass(cls, Enum):
        return lambda value: value.value
    if issubclass(cls, tuple):
        return lambda value: [encode(item) for item in value]
    return _dataclass_encoder(cls) if dataclasses.is_dataclass(cls) else lambda value: value


def _dataclass_encoder(cls: Any) -> Callable[[Any], Any]:
    plan = _encode_plan(cls)

    def write(value: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, default, tagged in plan:
            item = getattr(value, name)
            # Most fields are at their default, which is often the very same object.
            if item is default or (default is not dataclasses.MISSING and item == default):
                continue
            plain = encode(item)
            if tagged and plain is not None:
                plain = {"type": tag(type(item)), **plain}
            out[name] = plain
        return out

    return write


def _encode_plan(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    rows = []
    for name, (hint, default) in fields_of(cls).items():
        members = [member for member in union_members(hint) if member is not type(None)]
        rows.append((name, default, len(members) > 1))
    return tuple(rows)


def _kind_of(value: Any) -> str:
    for kind, cls in KINDS.items():
        if type(value) is cls or type(value) in union_members(cls):
            return kind
    raise TypeError(f"{type(value).__name__} is not a document")


@cache
def _decoder(expected: Any) -> Callable[[Any], Any]:
    supertype = getattr(expected, "__supertype__", None)
    if supertype is not None:
        return _decoder(supertype)
    members = union_members(expected)
    if members:
        return _union_decoder(members)
    if typing.get_origin(expected) is tuple:
        return _tuple_decoder(typing.get_args(expected)[0])
    if dataclasses.is_dataclass(expected):
        cls: Any = expected
        return _dataclass_decoder(cls)
    if issubclass(expected, Enum):
        return _enum_decoder(expected)
    return {int: _integer, str: _string, bool: _boolean}[expected]


def _union_decoder(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    optional = type(None) in members
    present = [member for member in members if member is not type(None)]
    if len(present) == 1:
        inner = _decoder(present[0])
        return lambda data: None if data is None else inner(data)
    by_tag = {tag(member): _decoder(member) for member in present}

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        if not isinstance(data, dict):
            raise InvalidInput("", f"{_shown(data)} is not an object", "an object with a type")
        body = dict(data)
        found = body.pop("type", None)
        if found not in by_tag:
            raise InvalidInput("type", f"{found!r} is not known", f"one of {', '.join(by_tag)}")
        return by_tag[found](body)

    return read


def _tuple_decoder(item_type: Any) -> Callable[[Any], Any]:
    inner = _decoder(item_type)

    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise InvalidInput("", f"{_shown(data)} is not a list", "a list")
        items = []
        for index, item in enumerate(data):
            try:
                items.append(inner(item))
            except InvalidInput as fault:
                raise fault.under(f"[{index}]") from None
        return tuple(items)

    return read


def _dataclass_decoder(cls: type) -> Callable[[Any], Any]:
    plan = fields_of(cls)
    decoders = {name: _decoder(hint) for name, (hint, _) in plan.items()}
    required = [name for name, (_, default) in plan.items() if default is dataclasses.MISSING]

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise InvalidInput("", f"{_shown(data)} is not an object", f"an object with {', '.join(plan)}")
        values = {}
        for key, item in data.items():
            inner = decoders.get(key)
            if inner is None:
                raise InvalidInput(str(key)[:80], "unknown field", nearest(str(key), plan))
            try:
                values[key] = inner(item)
            except InvalidInput as fault:
                raise fault.under(key) from None
        for name in required:
            if name not in values:
                raise InvalidInput(name, "missing", f"this field of a {cls.__name__}")
        return cls(**values)

    return read


def _enum_decoder(cls: type[Enum]) -> Callable[[Any], Any]:
    known = {member.value: member for member in cls}

    def read(data: Any) -> Any:
        try:
            return known[data]
        except (KeyError, TypeError):
            raise InvalidInput("", f"{_shown(data)} is not known", nearest(str(data), known)) from None

    return read


def nearest(given: str, known: typing.Iterable[str]) -> str:
    """Says what is known, the nearest to what was given first."""
    names = list(known)
    close = difflib.get_close_matches(given, names, 1)
    listed = ", ".join(names[:20])
    return f"{close[0]!r}, perhaps (known: {listed})" if close else f"one of {listed}"


def _integer(data: Any) -> int:
    if isinstance(data, bool) or not isinstance(data, int):
        raise InvalidInput("", f"{_shown(data)} is not a whole number", "an integer, in the unit of the field's name")
    return data


def _string(data: Any) -> str:
    if not isinstance(data, str):
        raise InvalidInput("", f"{_shown(data)} is not a text", "a text in quotes")
    return data


def _boolean(data: Any) -> bool:
    if not isinstance(data, bool):
        raise InvalidInput("", f"{_shown(data)} is not true or false", "true or false")
    return data


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidInput("", f"{text} is not a number that can be booked", "an integer")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise InvalidInput(twice, "the field stands twice", "each field once")
    return out
