"""Small data sets and a badly behaved object server for the cases of data that went wrong."""

from tests.unit.dataplane.conftest import make_dataset, object_server, stored_dataset

__all__ = ["make_dataset", "object_server", "stored_dataset"]
