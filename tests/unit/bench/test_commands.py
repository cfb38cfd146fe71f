"""`phalanx-bench simulate`, `saturate` and `standard` as a user meets them."""

import json
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench.baselines import Fgd
from phalanx.bench.contest import hold
from phalanx.bench.saturate import fill, packer, saturate_command
from phalanx.bench.simulate import simulate_command
from phalanx.bench.simulator import Options
from phalanx.bench.standard import SUITE, standard_command
from phalanx.model.policy import Policy

HEAD = "job_id,team,submit_s,duration_s,num_workers,gpus_per_worker,cpu_per_worker,mem_gib_per_worker,gpu_type,priority_class,status\n"


@pytest.fixture
def bench(capsys):
    group = click.Group("bench", commands=[simulate_command, saturate_command, standard_command])

    def bench(*argv: object):
        code = guarded(group, [str(arg) for arg in argv], "phalanx-bench")
        told = capsys.readouterr()
        return code, told.out, told.err

    return bench


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rows = [f"j{i},t{i % 2},{311 * i},{400 + 97 * (i % 7)},1,{(1, 2, 4, 0.5)[i % 4]},,,any,," for i in range(30)]
    (tmp_path / "jobs.csv").write_text(HEAD + "\n".join(rows) + "\n")
    (tmp_path / "hosts.csv").write_text(
        "host_id,site_or_rack,gpu_type,num_gpus,cpu,mem_gib\nh0,,A100,4,,\nh1,,A100,2,,\n"
    )
    for name in ("openb2023", "philly2017"):
        (tmp_path / f"{name}.jobs.csv").write_text((tmp_path / "jobs.csv").read_text())
        (tmp_path / f"{name}.hosts.csv").write_text((tmp_path / "hosts.csv").read_text())
    (tmp_path / "philly2017.carryin.jobs.csv").write_text(HEAD)
    return tmp_path


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]


def test_a_file_is_simulated_and_reported(bench, files: Path) -> None:
    page = files / "report.html"
    code, out, _ = bench(
        "simulate", "--trace", files / "jobs.csv", "--hosts-file", files / "hosts.csv", "--against", "best_fit",
        "--interval", 120, "--html", page, "--seeds", 2,
    )  # fmt: skip
    assert code == 0
    for told in (
        "phalanx",
        "best_fit",
        "mean wait against best_fit",
        "Synthetic:",
        "preempt nobody",
        "2 seeds",
    ):
        assert told in out
    parser = Links()
    parser.feed(page.read_text())
    assert parser.tags.count("svg") == 3 + 2
    assert parser.links == []
    assert "script" not in parser.tags


def test_json_is_the_same_every_time_but_for_the_times(bench, files: Path) -> None:
    argv = ("simulate", "--trace", "philly", "--traces", files, "--against", "fifo", "--json", "--plain")
    found = []
    for _ in range(2):
        code, out, _ = bench(*argv)
        assert code == 0
        told = json.loads(out)["schedulers"]
        for numbers in (each for runs in told.values() for each in runs):
            for key in ("round_p50_s", "round_p95_s", "cpu_s"):
                del numbers[key]
        found.append(told)
    assert found[0] == found[1]
    assert found[0]["phalanx"][0]["violations"] == 0


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--trace", "nothing"), "no known trace"),
        (("--trace", "philly", "--traces", "/nowhere"), "docs/traces.md"),
        (("--trace", "founding", "--days", "0.2", "--against", "oracle"), "no scheduler 'oracle'"),
        (("--trace", "founding", "--seeds", "0"), "seeds"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(bench, argv, told: str) -> None:
    code, _, err = bench("simulate", *argv)
    assert code != 0
    assert told in err
    assert "Traceback" not in err


def test_saturation_fills_the_fleet_and_counts_what_is_left(bench, files: Path) -> None:
    code, out, _ = bench(
        "saturate", "--traces", files, "--against", "first_fit", "--json", "--arrive", 1.5, "--batch", 3
    )
    assert code == 0
    for each in json.loads(out):
        arrived, held = zip(*each["curve"], strict=True)
        assert list(arrived) == sorted(arrived)
        assert list(held) == sorted(held)
        assert 0.5 < held[-1] <= 1 <= arrived[-1]
        assert each["violations"] == 0
    code, out, _ = bench("saturate", "--traces", files, "--against", "first_fit", "--arrive", 1.1)
    assert code == 0
    assert "100 %" in out


def test_fgd_is_told_the_whole_trace_as_in_its_paper(small) -> None:
    # To a trace of pairs of cards a lone card is a fragment; who has seen but one single card knows nothing of pairs.
    pairs = [small.job(f"p{number}", number, 10, gpus=2) for number in range(5)]
    world = small.workload(pairs, [small.host("h", 4), small.host("g", 1)])
    single, found = [small.job("single", 0, 10, gpus=1)], {}
    for told, method in {"trace": packer("fgd", world), "nothing": Fgd()}.items():

        def keeping(snapshot, policy, method=method, told=told):
            decision = method(snapshot, policy)
            found[told] = decision.starts[0].placement.hosts
            return decision

        fill("fgd", keeping, world, single, Policy(), 1, 1)
    assert found == {"trace": ("g",), "nothing": ("h",)}


def test_the_suite_passes_over_missing_traces_and_says_why(bench, tmp_path: Path) -> None:
    code, _, err = bench("standard", "--traces", tmp_path, "--only", "lingjun,openb", "--out", tmp_path / "out")
    assert code == 0
    assert err.count("is passed over") == 2
    assert "docs/traces.md" in err
    code, _, err = bench("standard", "--only", "everything")
    assert code != 0
    assert "founding" in err
    assert {"founding", "lingjun", "philly"} <= {entry.name for entry in SUITE}


def test_several_runs_at_once_give_the_same_numbers(small) -> None:
    world = small.workload([small.job(f"j{i}", 50 * i, 400, gpus=4) for i in range(6)], [small.host("h")])
    one, two = (
        hold([(1, world)], ("fifo", "best_fit"), Policy(), Options(), workers=workers, quiet=True) for workers in (1, 2)
    )
    assert list(two.runs) == ["fifo", "best_fit"]
    for name in one.runs:
        assert one.runs[name][0].outcomes == two.runs[name][0].outcomes
