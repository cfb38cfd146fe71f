"""What the system is asked about pages of memory that Python's own mmap does not offer, or not without its lock."""

import ctypes
import mmap
import os

import numpy as np
import numpy.typing as npt

HUGE_BYTES = 2 << 20
NO_ACCESS = 0
_MAP_FIXED = 0x10

_libc_mmap = ctypes.CDLL(None, use_errno=True).mmap
_libc_mmap.restype = ctypes.c_void_p
_libc_mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc_madvise = ctypes.CDLL(None, use_errno=True).madvise
_libc_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def map_over(address: int, size: int, access: int, flags: int, descriptor: int, offset: int) -> None:
    """Maps a file, or nothing, at exactly this address, over what is mapped there. Raises OSError."""
    mapped = _libc_mmap(address, size, access, flags | _MAP_FIXED, descriptor, offset)
    if mapped != address:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {size} bytes of a shard: {os.strerror(code)}")


def advise(address: int, size: int, advice: int) -> None:
    """Tells the system about whole pages from `address` on, if it cares to listen."""
    _libc_madvise(address, size, advice)


def fresh_bytes(size: int) -> npt.NDArray[np.uint8]:
    """Memory for reuse, in huge pages where it is large and the system has them: two faults then do for a thousand."""
    if size < HUGE_BYTES:
        return np.empty(size, np.uint8)
    memory = mmap.mmap(-1, size + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(memory, np.uint8)
    begin = -int(whole.ctypes.data) % HUGE_BYTES
    advise(int(whole.ctypes.data) + begin, size, mmap.MADV_HUGEPAGE)
    return whole[begin : begin + size]
