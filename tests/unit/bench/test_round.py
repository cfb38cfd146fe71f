"""`phalanx-bench round` measures, and says no to broken rules and to two answers for one question."""

import json
from pathlib import Path

import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench.machine import machine_facts
from phalanx.bench.round import bench

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "snapshot.json"


@pytest.fixture
def run(capsys):
    def run(*argv: object):
        code = guarded(bench, [str(arg) for arg in argv], "phalanx-bench")
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_a_round_is_measured(run) -> None:
    code, out, _ = run("round", EXAMPLE, "--json", "--repeat", "2")
    assert code == 0
    told = json.loads(out)
    (measured,) = told["rounds"]
    assert told["machine"]["cores"] >= 1
    assert (measured["hosts"], measured["gpus"], measured["queued"]) == (1, 8, 1)
    assert (measured["starts"], measured["waiting"], measured["violations"]) == (1, 0, 0)
    assert measured["deterministic"]
    assert measured["solve_s"]["min"] <= measured["solve_s"]["median"] <= measured["solve_s"]["max"]
    assert {goal["status"] for goal in measured["goals"]} == {"proven"}


def test_the_tables_name_the_machine_and_the_goals(run) -> None:
    code, out, _ = run("round", EXAMPLE, EXAMPLE, "--repeat", "1")
    assert code == 0
    assert "cores" in out
    assert out.count("start[1]") == 2


def test_broken_rules_are_exit_code_1(run, monkeypatch) -> None:
    monkeypatch.setattr("phalanx.bench.round.verify", lambda *_: ("broken",))
    assert run("round", EXAMPLE, "--repeat", "1")[0] == 1


def test_two_answers_are_exit_code_1(run, monkeypatch) -> None:
    import dataclasses

    from phalanx.bench import round as module

    right, count = module.solve, iter(range(9))
    monkeypatch.setattr(module, "solve", lambda s, p: dataclasses.replace(right(s, p), now_s=next(count)))
    monkeypatch.setattr(module, "verify", lambda *_: ())
    code, out, _ = run("round", EXAMPLE, "--repeat", "2")
    assert (code, "decided differently" in out) == (1, True)


def test_bad_input_is_exit_code_2(run, tmp_path) -> None:
    assert run("round", tmp_path / "none.json")[0] == 2
    assert run("round")[0] == 2


def test_machine_facts_are_plain() -> None:
    facts = machine_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]
