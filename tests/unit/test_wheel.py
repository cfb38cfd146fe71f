"""The wheel holds everything that the tree holds: an unlisted package would import here and be missing there."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("model", "solver", "adapters", "api", "dataplane", "bench")
SHIPPED = {".py", ".typed", ".html", ".css", ".js", ".svg", ".mako", ".toml"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy of links so that the tree stays as it is."""
    source = tmp_path_factory.mktemp("source")
    out = tmp_path_factory.mktemp("wheel")
    for name in (*FOLDERS, "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    told = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONWARNINGS": ""}
    )
    assert told.returncode == 0, told.stdout + told.stderr
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


def shipped(folder: str) -> set[str]:
    return {
        f"phalanx/{path.relative_to(ROOT)}"
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in SHIPPED and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_the_wheel_is_the_tree(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if name.startswith("phalanx/")}
    assert packed == set().union(*map(shipped, FOLDERS))


@pytest.mark.slow
def test_the_wheel_has_its_commands_and_licence(wheel: zipfile.ZipFile) -> None:
    info = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "phalanx = phalanx.api.cli:main" in wheel.read(info).decode()
    assert any(name.endswith("LICENSE") for name in wheel.namelist())
