"""Fields as torch tensors."""

from typing import Any

import numpy as np
import torch

from .fields import DTYPES, Field
from .pages import fresh_bytes

Array = np.ndarray[Any, np.dtype[Any]]


def torch_dtype(field: Field) -> torch.dtype:
    """The torch dtype of a field; they share their names."""
    return getattr(torch, field.dtype)


def as_tensor(array: Array, field: Field) -> torch.Tensor:
    """A tensor over the memory of an array as `ShardDataset.gather` fills it."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if field.dtype == "bfloat16" else tensor


def buffer(field: Field, rows: int, *, pinned: bool) -> tuple[torch.Tensor, Array]:
    """A tensor of shape (rows, *field.shape) and an array over its memory; page-locked if `pinned`."""
    size = rows * field.row_bytes
    raw = torch.empty(size, dtype=torch.uint8, pin_memory=True) if pinned else torch.from_numpy(fresh_bytes(size))
    shape = (rows, *field.shape)
    array = np.ndarray(shape, DTYPES[field.dtype][1], buffer=raw.numpy().data)
    return raw.view(torch_dtype(field)).view(shape), array
