"""The frame of the command line: help, unknown commands, schemas, and one paragraph for every fault."""

import json

import pytest

from phalanx.api.cli.root import COMMANDS, HIDDEN, Commands, root
from phalanx.model.codec import KINDS


def test_every_command_of_the_table_exists_and_has_help(bare) -> None:
    assert isinstance(root, Commands)
    for name in (*COMMANDS, *HIDDEN):
        told = bare(name, "--help")
        assert (told.code, told.out.startswith(f"Usage: phalanx {name}")) == (0, True)


def test_help_and_version(bare) -> None:
    told = bare("--help")
    assert told.code == 0
    assert all(f"  {name} " in told.out for name in COMMANDS)
    assert bare("--version").out.startswith("phalanx, version ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("sumbit",), "'submit'"),
        (("--bla",), "--bla"),
        (("solve",), "FILE"),
        (("schema", "snapshto"), "phalanx.snapshot"),
        (("import-trace", "x.csv", "--hosts", "h.csv", "--at", "5q"), "unit"),
        (("import-trace", "x.csv", "--hosts", "h.csv", "--at", "5d"), "no such file"),
        (("serve", "--port", "0"), "port"),
        (("serve", "--config", "/none.toml"), "/none.toml"),
        (("serve", "--bind", "0.0.0.0", "--data", "/tmp/x"), "PHALANX_TOKEN"),
    ],
)
def test_wrong_lines_are_exit_code_2(bare, line, said, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    told = bare(*line)
    assert (told.code, told.out) == (2, "")
    assert said in " ".join(told.err.split())
    assert told.err.startswith("phalanx: ")


def test_schemas_are_printed_and_written(bare, tmp_path) -> None:
    assert bare("schema").out.split() == list(KINDS)
    assert json.loads(bare("schema", "--json").out) == list(KINDS)
    assert json.loads(bare("schema", "snapshot").out)["title"] == "phalanx.snapshot"
    assert bare("schema", "--out", tmp_path / "new").code == 0
    assert len(list((tmp_path / "new").iterdir())) == len(KINDS)


def test_a_fault_of_ours_is_a_sentence(bare, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("boom \x1b[2J")

    monkeypatch.setattr("phalanx.api.cli.schema.json_schema", broken)
    told = bare("schema", "job")
    assert told.code == 3
    assert "boom" in told.err
    assert "\x1b" not in told.err


def test_ctrl_c_is_130(bare, monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("phalanx.api.cli.schema.json_schema", interrupted)
    assert bare("schema", "job").code == 130
