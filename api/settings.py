"""The only module that reads the environment: PHALANX_* variables over one TOML file over the defaults."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..model import codec
from ..model.errors import InvalidInput
from ..model.ids import SiteId
from ..model.policy import Policy
from . import units

CONFIG_FILE = "phalanx.toml"
DEFAULT_PORT = 8642
# Variables of the client, of ranks and of the tests: not ours to judge.
_FOREIGN = frozenset({"PHALANX_URL", "PHALANX_TRACES"})
_RANK = frozenset(
    f"PHALANX_{name}"
    for name in (
        "NAMESPACE",
        "SUPERVISOR",
        "JOB",
        "ATTEMPT",
        "HOST",
        "ROLE",
        "GRACE_S",
        "CHECKPOINT_DIR",
        "CACHE_DIR",
        "REPORT_DIR",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayAddress:
    """Where the Ray cluster of one site answers."""

    site: SiteId
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set. `round_interval_s` in seconds, 1 to 3600; `host` and `port` are the API's.

    With `datasets` (a folder or address below which data sets lie by their names) and `cache_budget_mib` the host
    agents of this machine load data sets ahead. Logs of an attempt are kept `keep_logs_s` seconds after they were
    written last, and until its job has had `keep_attempts` later ones.

    Without `ray` addresses a local cluster plays all sites. `executor` "fake" replaces Ray by timers, for tests of
    the service itself. `agents` starts a host agent for each host on this machine.
    """

    data_dir: Path
    store_url: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    round_interval_s: int = 2
    fleet_file: Path | None = None
    config_file: Path | None = None
    policy: Policy = Policy()
    ray: tuple[RayAddress, ...] = ()
    token: str = field(default="", repr=False)
    executor: str = "ray"
    agents: bool = True
    datasets: str = ""
    cache_budget_mib: int = 0
    keep_logs_s: int = 30 * 86_400
    keep_attempts: int = 20

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65_535:
            raise InvalidInput("port", f"{self.port} is not a port", "1 to 65535")
        if not 1 <= self.round_interval_s <= 3_600:
            raise InvalidInput("round_interval", f"{self.round_interval_s} s is out of range", "1s to 1h")
        if self.executor not in ("ray", "fake"):
            raise InvalidInput("executor", f"{self.executor!r} is not known", "ray or fake")
        if not self.token and not is_loopback(self.host):
            raise InvalidInput(
                "bind",
                f"{self.host} can be reached from other machines and no token is set",
                "PHALANX_TOKEN set to a secret, or bind 127.0.0.1",
            )

    @property
    def url(self) -> str:
        """Where a process of this machine reaches the API."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def log_dir(self) -> Path:
        """Where the logs of ranks are mirrored to: <job>/<attempt>/<rank>.log."""
        return self.data_dir / "logs"


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(
    config: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of this process: overrides (of the command line), then environment, then the TOML file.

    The file is `config`, else PHALANX_CONFIG, else ./phalanx.toml where it exists. Unknown keys, wrong values and an
    address beyond loopback without a token raise InvalidInput.
    """
    environment = os.environ if environ is None else environ
    given = _from_environment(environment)
    path = config or (Path(given["config"]) if given.get("config") else None)
    if path is None and Path(CONFIG_FILE).is_file():
        path = Path(CONFIG_FILE)
    values = {} if path is None else _from_file(path)
    values.update({key: value for key, value in given.items() if key != "config"})
    values.update({key: value for key, value in (overrides or {}).items() if value is not None})
    return _build(values, path)


def child_environment(settings: Settings) -> dict[str, str]:
    """The environment in which `load_settings` gives these settings again, for the processes of `serve`."""
    out = {
        "PHALANX_DATA": str(settings.data_dir),
        "PHALANX_STORE": settings.store_url,
        "PHALANX_BIND": settings.host,
        "PHALANX_PORT": str(settings.port),
        "PHALANX_ROUND_INTERVAL": f"{settings.round_interval_s}s",
        "PHALANX_RAY": ",".join(f"{entry.site}={entry.address}" for entry in settings.ray),
        "PHALANX_TOKEN": settings.token,
        "PHALANX_EXECUTOR": settings.executor,
        "PHALANX_AGENTS": "yes" if settings.agents else "no",
        "PHALANX_DATASETS": settings.datasets,
        "PHALANX_KEEP_LOGS": f"{settings.keep_logs_s}s",
        "PHALANX_KEEP_ATTEMPTS": str(settings.keep_attempts),
    }
    if settings.cache_budget_mib:
        out["PHALANX_CACHE_BUDGET"] = f"{settings.cache_budget_mib}MiB"
    if settings.fleet_file:
        out["PHALANX_FLEET"] = str(settings.fleet_file)
    if settings.config_file:
        out["PHALANX_CONFIG"] = str(settings.config_file)
    return out


_KEYS = (
    "data",
    "store",
    "bind",
    "port",
    "round_interval",
    "fleet",
    "policy",
    "ray",
    "token",
    "executor",
    "agents",
    "datasets",
    "cache_budget",
    "keep_logs",
    "keep_attempts",
)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    # A policy is a table: it comes from the file only.
    known = {f"PHALANX_{key.upper()}": key for key in (*_KEYS, "config") if key != "policy"}
    out: dict[str, Any] = {}
    for name, value in environ.items():
        if not name.startswith("PHALANX_") or name in _FOREIGN | _RANK or name.startswith("PHALANX_TEST_"):
            continue
        if name not in known:
            raise InvalidInput(name, "no such setting", codec.nearest(name, known))
        out[known[name]] = value
    return out


def _from_file(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}", "a TOML file of settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"not TOML: {error}", "a TOML file of settings") from None
    for key in table:
        if key not in _KEYS:
            raise InvalidInput(f"{path}: {key}", "no such setting", codec.nearest(key, _KEYS))
    for key in ("data", "fleet"):
        if isinstance(table.get(key), str):
            table[key] = str((path.parent / table[key]).absolute())
    return table


def _build(values: dict[str, Any], path: Path | None) -> Settings:
    data = Path(_text(values, "data", "phalanx-data")).absolute()
    fleet = _text(values, "fleet", "")
    return Settings(
        data_dir=data,
        store_url=_text(values, "store", "") or f"sqlite:///{data / 'phalanx.db'}",
        host=_text(values, "bind", "127.0.0.1"),
        port=units.whole("port", values.get("port", DEFAULT_PORT), "port", 1),
        round_interval_s=units.duration_s("round_interval", values.get("round_interval", "2s")),
        fleet_file=Path(fleet).absolute() if fleet else None,
        config_file=path.absolute() if path else None,
        policy=_policy(values.get("policy", {})),
        ray=_ray(values.get("ray", "")),
        token=_text(values, "token", ""),
        executor=_text(values, "executor", "ray"),
        agents=_boolean("agents", values.get("agents", True)),
        datasets=_text(values, "datasets", ""),
        keep_logs_s=units.duration_s("keep_logs", values.get("keep_logs", "30d")),
        keep_attempts=units.whole("keep_attempts", values.get("keep_attempts", 20), "attempts", 1),
        cache_budget_mib=units.memory_mib("cache_budget", values["cache_budget"]) if "cache_budget" in values else 0,
    )


def _text(values: Mapping[str, Any], key: str, default: str) -> str:
    value = values.get(key, default)
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str):
        raise InvalidInput(key, f"{value!r} is not a text", "a text in quotes")
    return value


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if str(value).lower() not in known:
        raise InvalidInput(key, f"{value!r} is neither yes nor no", "yes or no")
    return known[str(value).lower()]


def _policy(table: Any) -> Policy:
    if isinstance(table, Policy):
        return table
    try:
        policy: Policy = codec.decode(table, Policy)
    except InvalidInput as fault:
        raise fault.under("policy") from None
    return policy


def _ray(value: Any) -> tuple[RayAddress, ...]:
    """From a table {site: address} of the file, or "site=address,site=address" of the environment."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not found or not address for _, found, address in pairs):
            raise InvalidInput("ray", f"{value!r} is not a list of addresses", "site=address,site=address")
        value = {site.strip(): address.strip() for site, _, address in pairs}
    if not isinstance(value, dict) or not all(isinstance(address, str) for address in value.values()):
        raise InvalidInput("ray", f"{value!r} is not a table of addresses", 'site = "address" for each site')
    return tuple(RayAddress(site=SiteId(site), address=address) for site, address in value.items())
