"""`phalanx serve`, `agent`, `demo`: what of the command line reaches the part that does the work."""

import signal
from pathlib import Path

import pytest


@pytest.fixture
def handed(monkeypatch):
    """Replaces the working part by one that notes what it was handed."""
    notes: dict[str, object] = {}

    def replace(name: str, code: int = 0) -> dict[str, object]:
        def work(*args: object, **kwargs: object) -> int:
            notes.update(kwargs, args=args)
            return code

        monkeypatch.setattr(name, work)
        return notes

    return replace


def test_serve_hands_its_flags_over_as_settings(bare, handed, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phalanx.toml").write_text('port = 1234\nround_interval = "5s"\n')
    notes = handed("phalanx.api.serve.serve", 0)
    told = bare("serve", "--data", tmp_path / "d", "--fleet", tmp_path / "f.toml", "--port", "4321")
    assert told.code == 0
    (settings,) = notes["args"]  # type: ignore[misc]
    assert (settings.data_dir, settings.fleet_file) == (tmp_path / "d", tmp_path / "f.toml")
    assert (settings.port, settings.round_interval_s, settings.host) == (4321, 5, "127.0.0.1")


def test_serve_passes_its_exit_code_on(bare, handed, tmp_path: Path) -> None:
    handed("phalanx.api.serve.serve", 1)
    assert bare("serve", "--data", tmp_path).code == 1


@pytest.fixture
def signals():
    """Puts the handlers back that a command replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_agent_reports_for_one_host(bare, handed, tmp_path: Path) -> None:
    notes = handed("phalanx.adapters.agent.agent.run_agent")
    line = ("agent", "--host", "h1", "--site", "s1", "--cache", tmp_path, "--url", "http://u", "--interval", "9")
    assert bare(*line).code == 0
    assert (notes["host"], notes["site"], notes["cache"]) == ("h1", "s1", tmp_path)
    assert (notes["url"], notes["interval_s"]) == ("http://u", 9.0)
    assert notes["stop"]() is False  # type: ignore[operator]
    assert bare("agent", "--host", "h1").code == 2


def test_demo_has_limits(bare, handed, tmp_path: Path) -> None:
    notes = handed("phalanx.api.demo.run_demo")
    assert bare("demo", "--data", tmp_path, "--stay", "--limit", "30").code == 0
    assert (notes["data"], notes["stay"], notes["limit_s"], notes["port"]) == (tmp_path, True, 30, None)
    assert bare("demo", "--limit", "1").code == 2


def test_demo_takes_no_used_folder(bare, tmp_path: Path) -> None:
    (tmp_path / "phalanx.db").touch()
    told = bare("demo", "--data", tmp_path)
    assert (told.code, "new folder" in " ".join(told.err.split())) == (2, True)
