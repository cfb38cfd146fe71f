"""What can go wrong between raw data and a training step.

DataplaneError
├── DatasetError             the folder is no data set this version can read
│   ├── UnfinishedDataset    its writer did not finish
│   └── CorruptShard         a shard's bytes are not those the manifest promises
├── CacheError               the shard cache cannot do what was asked
│   └── CacheFull            no room could be made within the byte budget
├── LoaderError              the loader was asked for something impossible, or a state of another data set
├── CheckpointError          a checkpoint cannot be written or read
└── OfflineError             the job that writes shards cannot go on
"""


class DataplaneError(Exception):
    """The root of every error this package raises on purpose."""


class DatasetError(DataplaneError):
    """The folder is no data set this version can read."""


class UnfinishedDataset(DatasetError):
    """The writer of this data set did not finish."""


class CorruptShard(DatasetError):
    """A shard's bytes are not those the manifest promises."""


class CacheError(DataplaneError):
    """The shard cache cannot do what was asked."""


class CacheFull(CacheError):
    """No room could be made within the byte budget."""


class LoaderError(DataplaneError):
    """The loader was asked for something impossible, or given the state of another data set."""


class CheckpointError(DataplaneError):
    """A checkpoint cannot be written or read."""


class OfflineError(DataplaneError):
    """The job that makes shards from raw recordings was asked for something impossible, or cannot go on."""
