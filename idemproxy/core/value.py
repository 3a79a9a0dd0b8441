"""Values that are made for each request: frozen dataclasses to a type checker, and at run time not held to it.

What holds them, `object.__setattr__` for each field, makes a value three to four times as dear, and a request makes thirty: a
fifth of its time. mypy sees the library's own decorator, so that to change a value is an error there:

    if TYPE_CHECKING:
        from dataclasses import dataclass
    else:
        from idemproxy.core.value import dataclass
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

Class = TypeVar("Class")


def dataclass(*, slots: bool, frozen: bool = False) -> Callable[[type[Class]], type[Class]]:
    """As the library's, but for what holds a frozen one."""
    return dataclasses.dataclass(slots=slots, unsafe_hash=frozen)
