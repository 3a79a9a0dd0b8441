"""Netstrings: the encoding that keeps two different lists of byte strings different.

Each item is written as its length in decimal, a colon, and its bytes. A reader always knows where an item ends, whatever
it contains, so no text of a client can imitate a border between two items.
"""

from __future__ import annotations

from collections.abc import Iterable


def framed(item: bytes) -> bytes:
    """One netstring: `abc` becomes `3:abc`."""
    return b"%d:%b" % (len(item), item)


def framed_list(items: Iterable[bytes]) -> bytes:
    """The netstring that holds the netstrings of `items`, in order."""
    return framed(b"".join([framed(item) for item in items]))
