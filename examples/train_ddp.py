"""Data-parallel training that stops when asked and goes on exactly where it stopped, on any number of ranks.

    torchrun --nproc-per-node 2 examples/train_ddp.py --data /tmp/recordings --checkpoints /tmp/run --steps 40

Under Phalanx the command is the same without torchrun: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT
are set for each rank. Prints one JSON line per step on rank 0. Exits with 0 when all steps are done, and with 143
(128 + SIGTERM) after saving when it was asked to stop before.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as distributed
from make_shards import CHANNELS, TARGETS, TIMES, make_shards
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from phalanx.dataplane import (
    Loader,
    ShardDataset,
    StepLog,
    StepTimer,
    agree_to_stop,
    grace_left_s,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
    stop_requested,
)
from phalanx.dataplane.step_timer import summarise

STOPPED = 128 + 15


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data set; written if absent")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=os.environ.get("PHALANX_CHECKPOINT_DIR"),
        help="folder of the checkpoints (default: PHALANX_CHECKPOINT_DIR)",
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--global-batch", type=int, default=64, help="samples per step over all ranks")
    parser.add_argument("--checkpoint-every", type=int, default=20, help="steps")
    parser.add_argument("--step-ms", type=float, default=0.0, help="sleep this long in each step")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.checkpoints is None:
        parser.error("give --checkpoints or set PHALANX_CHECKPOINT_DIR")
    return options


class Decoder(nn.Module):
    """Hand velocity, (batch, targets), from spike counts, (batch, channels, times)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(CHANNELS, 32, kernel_size=5, stride=2),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(32 * ((TIMES - 5) // 2 + 1), TARGETS),
        )

    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.log1p(spikes.float()))


def train(options: argparse.Namespace, loader: Loader) -> bool:
    """Trains up to options.steps; returns whether all are done (otherwise it was stopped, and has saved)."""
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(Decoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = resume(options.checkpoints, model, optimizer, loader)
    log = StepLog.from_env(first_step=first)  # a line per rank for the scheduler, where it has set a folder
    timer = StepTimer(listener=log)
    for step, batch in enumerate(timer.over(loader.batches(options.steps - first)), start=first + 1):
        loss = nn.functional.mse_loss(model(batch["spikes"]), batch["velocity"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.step_ms / 1000)
        report(step, loss.detach(), timer, loader)
        stopping = agree_to_stop()
        if stopping or step % options.checkpoint_every == 0 or step == options.steps:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            with timer.checkpoint():
                save_checkpoint(options.checkpoints, {**state, "loader": loader.state_dict(), "step": step}, step)
        if log is not None and (stopping or step == options.steps):
            log.flush()
        if stopping and step < options.steps:
            distributed.barrier()  # no rank leaves before the checkpoint is durable: a gang may be ended with its first
            say({"stopped_after": step, "grace_left_s": grace_left_s()})
            return False
    say({"done": options.steps})
    return True


def resume(folder: Path, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, loader: Loader) -> int:
    """Loads the newest intact checkpoint, the same on every rank; returns the steps already done."""
    found: list[Path | None] = [latest_checkpoint(folder) if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(found)
    if found[0] is None:
        return 0
    state = load_checkpoint(found[0])
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    loader.load_state_dict(state["loader"])
    say({"resumed_after": state["step"]})
    return int(state["step"])


def report(step: int, loss: torch.Tensor, timer: StepTimer, loader: Loader) -> None:
    """Prints the loss over the global batch, and the batch wait share of rank 0's steps since the last report."""
    distributed.all_reduce(loss)
    waited = summarise(timer.drain())
    mean = loss.item() / distributed.get_world_size()
    say({"step": step, "loss": mean, "epoch": loader.epoch, "wait_share": round(waited.wait_share, 4)})


def say(line: dict[str, object]) -> None:
    if distributed.get_rank() == 0:
        print(json.dumps(line), flush=True)


def main() -> int:
    options = arguments()
    stop_requested()  # watches for SIGTERM from here on
    torch.set_num_threads(1)
    for name, alone in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        os.environ.setdefault(name, alone)
    distributed.init_process_group("gloo")
    try:
        if distributed.get_rank() == 0 and not (options.data / "manifest.json").exists():
            make_shards(options.data)
        distributed.barrier()
        with ShardDataset(options.data) as dataset, Loader.from_env(dataset, options.global_batch) as loader:
            return 0 if train(options, loader) else STOPPED
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
