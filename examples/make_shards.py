"""Writes a small data set of synthetic neural recordings: what an offline cleaning job would leave behind.

python examples/make_shards.py --data /tmp/recordings --samples 4096
"""

import argparse
from pathlib import Path

import numpy as np

from phalanx.dataplane import Field, Manifest, ShardWriter

CHANNELS, TIMES, TARGETS = 16, 32, 2
FIELDS = (
    Field("spikes", "int16", (CHANNELS, TIMES)),
    Field("velocity", "float32", (TARGETS,)),
)


def make_shards(folder: Path, samples: int = 4096, seed: int = 0, shard_bytes: int = 256 << 10) -> Manifest:
    """Writes `samples` windows of spike counts, (channels, times), with the hand velocity they encode.

    Every channel is tuned to a direction, as cells of the motor cortex are: its rate follows the velocity.
    """
    random = np.random.default_rng(seed)
    tuning = random.normal(size=(TARGETS, CHANNELS))
    provenance = {"job": "make_shards", "samples": samples, "seed": seed}
    with ShardWriter(folder, FIELDS, name="synthetic-reach", shard_bytes=shard_bytes, provenance=provenance) as writer:
        for start in range(0, samples, 512):
            count = min(512, samples - start)
            velocity = random.normal(size=(count, TARGETS)).astype(np.float32)
            rate = np.exp(1.0 + 0.5 * velocity @ tuning)
            spikes = random.poisson(rate[:, :, None], size=(count, CHANNELS, TIMES)).astype(np.int16)
            writer.write({"spikes": spikes, "velocity": velocity})
        return writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder to write to")
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    manifest = make_shards(options.data, options.samples, options.seed)
    print(f"{options.data}: {manifest.rows} samples in {len(manifest.shards)} shards, {manifest.size_bytes} bytes")


if __name__ == "__main__":
    main()
