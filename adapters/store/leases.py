"""Leases with fencing terms."""

from __future__ import annotations

from dataclasses import replace

from ...model.errors import InvalidInput
from ..ports import Lease
from .books import Books


def acquire(books: Books, name: str, holder: str, ttl_s: int, now_s: int) -> Lease | None:
    """Takes a free or expired lease with the next term, or renews the holder's own; None while another holds it.

    InvalidInput for an empty holder or a time to live below 1 s.
    """
    if not holder:
        raise InvalidInput("holder", "is empty", "a name that no other process uses")
    if ttl_s < 1:
        raise InvalidInput("ttl_s", f"{ttl_s} s", "1 s or more")
    old = books.lease(name)
    if old is not None and old.holder not in ("", holder) and old.expires_s > now_s:
        return None
    passes = old is None or old.holder != holder
    term = (old.term if old else 0) + passes
    lease = Lease(name=name, holder=holder, term=term, expires_s=now_s + ttl_s)
    books.put_lease(lease)
    return lease


def release(books: Books, lease: Lease) -> None:
    """Gives it back; a lease that has passed on is left alone."""
    stored = books.lease(lease.name)
    if stored is not None and (stored.holder, stored.term) == (lease.holder, lease.term):
        # The row stays, without a holder, so that the next term is a higher one.
        books.put_lease(replace(stored, holder="", expires_s=0))
