"""Connecting says at once what is wrong."""

from __future__ import annotations

import socket

import pytest

from phalanx.adapters.ray import compat


@pytest.mark.parametrize("address", ["", "auto", "ray-head", "host:"])
def test_an_address_needs_a_host_and_a_port(address: str) -> None:
    with pytest.raises(compat.RayFault, match="expected host:port"):
        compat.connect(address, "n")


def test_nobody_listens() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        with pytest.raises(compat.RayFault, match=f"no Ray cluster answers at 127.0.0.1:{port}"):
            compat.connect(f"127.0.0.1:{port}", "n")
