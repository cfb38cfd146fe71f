"""Reads shards before they are needed, in a thread of its own: the system's WILLNEED blocks while it queues."""

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Iterable

from .errors import DataplaneError
from .open_shards import OpenShards

_log = logging.getLogger(__name__)


class ReadAhead:
    """Warms shards in the order in which they are requested, each once while it is among the last `remember`."""

    def __init__(self, shards: OpenShards, remember: int) -> None:
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._recent: OrderedDict[int, None] = OrderedDict()
        self._remember = remember
        arguments = (shards, self._wanted, self._stop)
        self._thread = threading.Thread(target=warm_wanted, args=arguments, name="phalanx-read-ahead", daemon=True)
        self._thread.start()

    def request(self, shards: Iterable[int]) -> None:
        """Asks for shards soon; called from one thread only."""
        for shard in shards:
            if shard not in self._recent:
                self._wanted.put(shard)
            self._recent[shard] = None
            self._recent.move_to_end(shard)
            while len(self._recent) > self._remember:
                self._recent.popitem(last=False)

    def stop(self, timeout_s: float) -> None:
        """Ends the thread after the piece or fetch at hand."""
        self._stop.set()
        self._wanted.put(None)
        self._thread.join(timeout_s)


def warm_wanted(shards: OpenShards, wanted: "queue.SimpleQueue[int | None]", stop: threading.Event) -> None:
    """Thread body: warms every shard from the queue until None comes or `stop` is set.

    A shard that cannot be read is only logged: whoever really needs it meets the same error and can tell the user.
    """
    while (index := wanted.get()) is not None and not stop.is_set():
        try:
            shards.warm(index, stop)
        except (DataplaneError, OSError) as error:
            _log.debug("read-ahead of shard %d failed: %s", index, error)
