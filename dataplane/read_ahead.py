"""Reads shards before they are needed, in a thread of its own: the system's WILLNEED blocks while it queues.

The same thread lets go of the cache when other processes wait for room while this one computes.
"""

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Iterable

from .errors import DataplaneError
from .open_shards import OpenShards

_log = logging.getLogger(__name__)

_GIVE_WAY_EVERY_S = 0.1


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
    """Thread body: warms every shard from the queue, giving way in between, until None comes or `stop` is set.

    A shard that cannot be read is only logged: whoever really needs it meets the same error and can tell the user.
    """
    while not stop.is_set():
        shards.give_way()
        try:
            index = wanted.get(timeout=_GIVE_WAY_EVERY_S)
            if index is None:
                return
            shards.warm(index, stop)
        except queue.Empty:
            continue
        except (DataplaneError, OSError) as error:
            _log.debug("read-ahead of shard %s failed: %s", index, error)
