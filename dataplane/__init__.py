"""Shards, their cache, the loader, the step timer and checkpoints of a training job.

Names are imported on first use, so that the host's agent can call `phalanx.dataplane.inventory.inventory` without
the training packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bfloat import bf16 as bf16
    from .cache import ShardCache as ShardCache
    from .callbacks import lightning_callback as lightning_callback
    from .callbacks import trainer_callback as trainer_callback
    from .checkpoint import latest_checkpoint as latest_checkpoint
    from .checkpoint import load_checkpoint as load_checkpoint
    from .checkpoint import load_latest as load_latest
    from .checkpoint import save_checkpoint as save_checkpoint
    from .dataset import ShardDataset as ShardDataset
    from .fields import Field as Field
    from .inventory import CachedDataset as CachedDataset
    from .loader import Loader as Loader
    from .manifest import Manifest as Manifest
    from .manifest import read_manifest as read_manifest
    from .order import Order as Order
    from .prestage import prefetch as prefetch
    from .remote import ObjectSource as ObjectSource
    from .samples import collate as collate
    from .samples import padded as padded
    from .saved_log import report_checkpoint as report_checkpoint
    from .sharded import latest_sharded as latest_sharded
    from .sharded import load_sharded as load_sharded
    from .sharded import save_sharded as save_sharded
    from .step_log import StepLog as StepLog
    from .step_log import read_step_logs as read_step_logs
    from .step_log import stragglers as stragglers
    from .step_plot import plot_steps as plot_steps
    from .step_timer import StepTimer as StepTimer
    from .stop import agree_to_stop as agree_to_stop
    from .stop import grace_left_s as grace_left_s
    from .stop import stop_requested as stop_requested
    from .views import Mixture as Mixture
    from .views import Subset as Subset
    from .views import where as where
    from .writer import ShardWriter as ShardWriter

_HOMES = {
    "CachedDataset": "inventory",
    "Field": "fields",
    "Loader": "loader",
    "Manifest": "manifest",
    "Mixture": "views",
    "ObjectSource": "remote",
    "Order": "order",
    "ShardCache": "cache",
    "ShardDataset": "dataset",
    "ShardWriter": "writer",
    "StepLog": "step_log",
    "StepTimer": "step_timer",
    "Subset": "views",
    "agree_to_stop": "stop",
    "bf16": "bfloat",
    "collate": "samples",
    "grace_left_s": "stop",
    "latest_checkpoint": "checkpoint",
    "latest_sharded": "sharded",
    "lightning_callback": "callbacks",
    "load_checkpoint": "checkpoint",
    "load_latest": "checkpoint",
    "load_sharded": "sharded",
    "padded": "samples",
    "plot_steps": "step_plot",
    "prefetch": "prestage",
    "read_manifest": "manifest",
    "read_step_logs": "step_log",
    "report_checkpoint": "saved_log",
    "save_checkpoint": "checkpoint",
    "save_sharded": "sharded",
    "stop_requested": "stop",
    "stragglers": "step_log",
    "trainer_callback": "callbacks",
    "where": "views",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
