"""The house: every package is listed, layers import only what they may, and the code keeps its own rules."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("model", "solver", "adapters", "api", "dataplane", "bench")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
# A migration is one long list of tables by its nature.
WRITTEN = [path for path in SOURCES if "migrations" not in path.parts]
MOST_LINES = 350
MOST_FUNCTION_LINES = 60
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_package_is_listed() -> None:
    found = {
        "phalanx." + ".".join(path.parent.relative_to(ROOT).parts)
        for path in SOURCES
        if path.name == "__init__.py" and "__pycache__" not in path.parts
    }
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


def test_every_folder_of_sources_is_a_package() -> None:
    assert [names(path) for path in SOURCES if not (path.parent / "__init__.py").is_file()] == []


def test_every_top_folder_is_typed() -> None:
    assert [folder for folder in FOLDERS if not (ROOT / folder / "py.typed").is_file()] == []


def test_every_dependency_is_pinned() -> None:
    def plain(name: str) -> str:
        return re.split(r"[\[<>=! ]", name)[0].lower().replace("_", "-")

    pinned = {plain(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    project = PROJECT["project"]
    asked = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    assert [name for name in map(plain, asked) if name not in pinned] == []


@pytest.mark.parametrize("path", WRITTEN, ids=names)
def test_a_file_keeps_the_rules(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    faults = []
    if len(text.splitlines()) > MOST_LINES:
        faults.append(f"{len(text.splitlines())} lines")
    if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text):
        faults.append("unfinished")
    if text and not ast.get_docstring(tree):
        faults.append("no docstring")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_FUNCTION_LINES:
                faults.append(f"{node.name} has {lines} lines")
    for top in tree.body:
        public = isinstance(top, ast.ClassDef | ast.FunctionDef) and not top.name.startswith("_")
        if public and not ast.get_docstring(top):
            faults.append(f"{top.name} has no docstring")
    assert faults == []


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        (
            ("model.codec", "model.schema", "solver.verify"),
            "ortools networkx numpy sqlalchemy fastapi pydantic ray torch",
        ),
        (("solver.solve", "solver.verify"), "sqlalchemy alembic fastapi pydantic ray torch"),
        (("api.cli.root",), "ortools networkx numpy sqlalchemy fastapi pydantic ray torch httpx rich"),
        (("dataplane",), "ortools networkx sqlalchemy fastapi pydantic ray phalanx.model phalanx.api phalanx.adapters"),
    ],
)
def test_imports_stay_light(modules: tuple[str, ...], forbidden: str) -> None:
    lines = [f"import phalanx.{module}" for module in modules]
    code = "\n".join([*lines, "import json, sys", "print(json.dumps(sorted(sys.modules)))"])
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ""}
    )
    loaded = set(json.loads(told.stdout))
    assert [name for name in forbidden.split() if name in loaded] == []
