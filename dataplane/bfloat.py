"""Computing in bfloat16 where the device is made for it."""

from contextlib import AbstractContextManager, nullcontext

import torch


def bf16_supported(device: torch.device | str) -> bool:
    """Whether a device computes in bfloat16 natively: CUDA from Ampere on; a CPU always can, at least by emulation."""
    kind = torch.device(device)
    if kind.type == "cuda":
        return bool(torch.cuda.is_available() and torch.cuda.get_device_capability(kind) >= (8, 0))
    return bool(kind.type == "cpu")


def bf16(device: torch.device | str, *, enabled: bool = True) -> AbstractContextManager[object]:
    """A context in which matrix products on `device` are computed in bfloat16, and reductions in float32.

    Weights stay as they are; no loss scaling is needed, for bfloat16 has the range of float32. Where the device has no
    native bfloat16, or with `enabled` off, the context changes nothing.
    """
    if not enabled or not bf16_supported(device):
        return nullcontext()
    context: AbstractContextManager[object] = torch.autocast(torch.device(device).type, dtype=torch.bfloat16)
    return context
