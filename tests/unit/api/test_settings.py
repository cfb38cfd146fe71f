"""Settings: one place, strict keys, and no open door without a token."""

import pytest

from phalanx.api.settings import child_environment, is_loopback, load_settings
from phalanx.model.errors import InvalidInput


def load(tmp_path, text="", environ=None, **overrides):
    path = tmp_path / "phalanx.toml"
    path.write_text(text)
    return load_settings(path, environ=environ or {}, overrides=overrides)


def test_defaults(tmp_path):
    settings = load(tmp_path)
    assert (settings.host, settings.port, settings.round_interval_s) == ("127.0.0.1", 8642, 2)
    assert settings.store_url == f"sqlite:///{settings.data_dir / 'phalanx.db'}"
    assert settings.url == "http://127.0.0.1:8642"


def test_command_line_beats_environment_beats_file(tmp_path):
    text = 'port = 1000\nround_interval = "5s"\ndata = "here"\n'
    settings = load(tmp_path, text, {"PHALANX_PORT": "2000"})
    assert (settings.port, settings.round_interval_s) == (2000, 5)
    assert settings.data_dir == tmp_path / "here"
    assert load(tmp_path, text, {"PHALANX_PORT": "2000"}, port=3000).port == 3000


def test_policy_and_ray_addresses(tmp_path):
    text = '[policy.solve]\nbudget_ms = 500\n[ray]\nnorth = "10.0.0.1:6379"\n'
    settings = load(tmp_path, text)
    assert settings.policy.solve.budget_ms == 500
    assert [(entry.site, entry.address) for entry in settings.ray] == [("north", "10.0.0.1:6379")]
    assert load(tmp_path, environ={"PHALANX_RAY": "a=x:1,b=y:2"}).ray[1].address == "y:2"


def test_children_get_the_same_settings(tmp_path):
    settings = load(
        tmp_path,
        'datasets = "s3://b/sets"\ncache_budget = "2GiB"\n[policy.solve]\nbudget_ms = 7\n[ray]\nnorth = "x:1"\n',
        {"PHALANX_TOKEN": "s3cret"},
        bind="0.0.0.0",
    )
    assert load_settings(environ=child_environment(settings)) == settings
    assert "s3cret" not in repr(settings)
    assert (settings.datasets, settings.cache_budget_mib) == ("s3://b/sets", 2_048)


@pytest.mark.parametrize(
    ("text", "environ", "path", "words"),
    [
        ("prot = 1", {}, "prot", "'port', perhaps"),
        ("", {"PHALANX_PROT": "1"}, "PHALANX_PROT", "'PHALANX_PORT', perhaps"),
        ("port = 70000", {}, "port", "1 to 65535"),
        ("port = true", {}, "port", "whole number"),
        ('round_interval = "2"', {}, "round_interval", "s, m, h"),
        ('round_interval = "2 h"', {}, "round_interval", "1s to 1h"),
        ("port = ", {}, "", "TOML"),
        ("[policy.solve]\nbudget = 1", {}, "policy.solve.budget", "budget_ms"),
        ("", {"PHALANX_RAY": "nonsense"}, "ray", "site=address"),
        ("", {"PHALANX_EXECUTOR": "magic"}, "executor", "ray or fake"),
        ("", {"PHALANX_AGENTS": "perhaps"}, "agents", "yes or no"),
        ("data = 3", {}, "data", "text"),
        ('bind = "0.0.0.0"', {}, "bind", "PHALANX_TOKEN"),
    ],
)
def test_wrong_settings_name_what_is_right(tmp_path, text, environ, path, words):
    with pytest.raises(InvalidInput) as fault:
        load(tmp_path, text, environ)
    assert path in fault.value.path
    assert words in str(fault.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInput, match="nowhere"):
        load_settings(tmp_path / "nowhere.toml", environ={})


def test_ranks_variables_are_not_settings(tmp_path):
    environ = {"PHALANX_JOB": "j", "PHALANX_HOST": "n1", "PHALANX_URL": "http://x", "PHALANX_TEST_POSTGRES": "y"}
    assert load(tmp_path, environ=environ).host == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "yes"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("gpu-head", False)]
)
def test_loopback(host, yes):
    assert is_loopback(host) is yes
