import subprocess
import sys

import pytest

import phalanx.dataplane


def test_every_public_name_can_be_imported() -> None:
    for name in phalanx.dataplane.__all__:
        assert getattr(phalanx.dataplane, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Shards'"):
        phalanx.dataplane.Shards  # noqa: B018


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import phalanx.dataplane.inventory", {"torch", "numpy", "xxhash", "safetensors"}),
        ("from phalanx.dataplane import ShardWriter, Order, ShardCache, ShardDataset", {"torch"}),
    ],
)
def test_the_light_parts_load_without_the_heavy_packages(code: str, absent: set[str]) -> None:
    script = f"import sys; {code}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert absent.isdisjoint(loaded.stdout.split())
