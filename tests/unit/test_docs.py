"""The documentation tells the truth: its example runs, its links lead somewhere, and no key or command is left out."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.api.cli.root import COMMANDS
from phalanx.api.cli.submit_options import FLAGS
from phalanx.api.fleet import load_fleet
from phalanx.api.jobfile import KEYS, job_from_dict, load_jobfile
from phalanx.api.jobfile_yaml import load_yaml
from phalanx.model.codec import loads
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.solve import solve

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


def test_the_example_of_the_readme_runs() -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    assert sum(bool(line) for line in code.splitlines()) == 12
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Start(job='j1', attempt=1" in told.stdout


def test_the_example_file_is_that_of_the_readme() -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    values: dict[str, object] = {"print": lambda *_: None}
    exec(code, values)
    snapshot = loads((ROOT / "examples" / "snapshot.json").read_text(), Snapshot)
    assert snapshot == values["snapshot"]
    assert solve(snapshot, Policy()) == values["decision"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_key_of_job_files_is_told() -> None:
    text = (ROOT / "docs" / "job-files.md").read_text()
    assert [key for key in KEYS if f"`{key}`" not in text] == []


def test_the_examples_of_job_files_are_jobs() -> None:
    examples = blocks(ROOT / "docs" / "job-files.md", "yaml")
    assert examples
    for text in examples:
        assert job_from_dict(load_yaml(text.encode())).command is not None


def test_the_example_fleet_holds_the_example_job() -> None:
    fleet = load_fleet(ROOT / "examples" / "fleet.toml")
    job = load_jobfile(ROOT / "examples" / "job.yaml")
    record = JobRecord(job=job, submitted_s=0)
    parts = {"sites": fleet.sites, "hosts": fleet.hosts, "teams": fleet.teams}
    decision = solve(Snapshot(now_s=1, jobs=(record,), **parts), Policy())
    assert [start.job for start in decision.starts] == [job.id]


def test_every_command_and_sbatch_flag_is_told() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    assert [name for name in COMMANDS if name not in text] == []
    ours = {"--gpu-type", "--gpu-memory"}
    flags = [name for names, settings in FLAGS if settings["help"].startswith("sbatch") for name in names]
    told = [flag.split("/")[0] for flag in flags if flag.startswith("--")]
    assert [flag for flag in told if flag not in text and flag not in ours and flag != "--requeue"] == []


def test_every_test_that_the_scenarios_name_exists() -> None:
    text = (ROOT / "docs" / "scenarios.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 60
    files = {path: (ROOT / path).read_text() for path, _ in named}
    assert [(path, name) for path, name in named if f"def {name}(" not in files[path]] == []
    rows = re.findall(r"^\| (\w+) \|", text, re.MULTILINE)
    assert len(rows) == len(set(rows) - {"row", "number"}) + 2
