"""What the system is asked about pages of memory that Python's own mmap does not offer, or not without its lock."""

import ctypes
import mmap
import os

import numpy as np
import numpy.typing as npt

HUGE_BYTES = 2 << 20
NO_ACCESS = 0
_PROBES = 16
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
_libc_mincore = ctypes.CDLL(None, use_errno=True).mincore
_libc_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def map_over(address: int, size: int, access: int, flags: int, descriptor: int, offset: int) -> None:
    """Maps a file, or nothing, at exactly this address, over what is mapped there. Raises OSError."""
    mapped = _libc_mmap(address, size, access, flags | _MAP_FIXED, descriptor, offset)
    if mapped != address:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {size} bytes of a shard: {os.strerror(code)}")


def advise(address: int, size: int, advice: int) -> None:
    """Tells the system about whole pages from `address` on, if it cares to listen."""
    _libc_madvise(address, size, advice)


def let_go(address: int, size: int) -> None:
    """Takes a mapped file's pages out of this process's tables; what reads there meanwhile has them put back."""
    begin = address - address % mmap.PAGESIZE
    advise(begin, address + size - begin, mmap.MADV_DONTNEED)


def share_in_memory(address: int, size: int) -> float:
    """How much of a mapped file is in memory, as far as some places all over it tell.

    Of a file that this user may not write, the system says that all of it is.
    """
    found, pages = ctypes.c_ubyte(), -(-size // mmap.PAGESIZE)
    begin = address - address % mmap.PAGESIZE
    count = 0
    for probe in range(_PROBES):
        place = begin + pages * probe // _PROBES * mmap.PAGESIZE
        count += _libc_mincore(place, 1, ctypes.byref(found)) == 0 and found.value & 1
    return count / _PROBES


def fresh_bytes(size: int) -> npt.NDArray[np.uint8]:
    """Memory for reuse, in huge pages where it is large and the system has them: two faults then do for a thousand."""
    if size < HUGE_BYTES:
        return np.empty(size, np.uint8)
    memory = mmap.mmap(-1, size + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(memory, np.uint8)
    begin = -int(whole.ctypes.data) % HUGE_BYTES
    advise(int(whole.ctypes.data) + begin, size, mmap.MADV_HUGEPAGE)
    return whole[begin : begin + size]
