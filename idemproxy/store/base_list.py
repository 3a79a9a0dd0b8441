"""What is asked of a list, checked: how many records for a page, and where to go on."""

from __future__ import annotations


def size(limit: int) -> int:
    """`limit`, which must be 1 or more. Raises ValueError."""
    if limit < 1:
        raise ValueError(f"a page of {limit} records cannot be listed: ask for 1 or more")
    return limit


def place(cursor: str, last: int) -> int | None:
    """The number that a cursor is, at most `last`; None for an empty one. Raises ValueError."""
    if not cursor:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= len(str(last)) and int(cursor) <= last):
        raise not_a_cursor(cursor)
    return int(cursor)


def not_a_cursor(cursor: str) -> ValueError:
    """The error for text that no page gave."""
    return ValueError(f"{cursor!r} is not a cursor: begin with an empty one, and go on with the one that each page gives")
