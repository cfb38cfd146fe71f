"""YAML as job and fleet files use it: plain values only, each key once, no anchors, errors in one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import yaml

from ..model.errors import InvalidInput

MAX_BYTES = 2 * 2**20
"""The largest file that is read, in bytes."""


def load_yaml_file(path: Path) -> Any:
    """The plain values of a YAML (or JSON) file of at most 2 MiB. Raises InvalidInput, naming file and line."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read ({error.strerror})", "a readable file") from None
    try:
        return load_yaml(raw)
    except InvalidInput as fault:
        raise InvalidInput(str(path), str(InvalidInput(fault.path, fault.problem)), fault.expected) from None


def load_yaml(raw: bytes) -> Any:
    """As `load_yaml_file`, from the file's bytes."""
    if len(raw) > MAX_BYTES:
        raise InvalidInput("", f"larger than {MAX_BYTES // 2**20} MiB", "a text of a few KiB")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput("", f"not a text: byte {error.start} is not UTF-8", "YAML in UTF-8") from None
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidInput("", f"not YAML: {error.problem or error.context}{where}", "complete YAML") from None
    except yaml.reader.ReaderError as error:
        raise InvalidInput("", f"not YAML: character {error.position} cannot stand in a text", "YAML") from None
    except (RecursionError, yaml.YAMLError, ValueError):
        raise InvalidInput("", "not YAML that can be read", "a mapping of plain keys and values") from None


class _Loader(yaml.SafeLoader):
    """Without YAML 1.1's surprises: `no` stays a text, 4:00:00 is no number, dates are texts."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (the base class's own form)

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A file of a few lines could unfold to gigabytes through aliases."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="an alias (*name) is not allowed", problem_mark=self.get_mark())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Refuses a key that stands twice, which YAML would silently let the last win."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return cast("dict[Any, Any]", super().construct_mapping(node, deep))


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))


_resolve("null", r"^(?:~|null|Null|NULL|)$", "~nN")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])
_resolve("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF")
_resolve("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789")
_resolve("float", r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+)$", "-+0123456789.")
_resolve("float", r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+.")
