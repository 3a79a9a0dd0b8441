"""A value that another process makes, which then ends: so that what it takes to make it does not stay in memory."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class NotMadeError(Exception):
    """The process that should have made the value ended without it."""


def made_apart(make: Callable[[], T], meanwhile: Callable[[], object]) -> T:
    """What `make` returns, called in a fork of this process, which must have one thread only; `meanwhile` is called here.

    The value is pickled. Where no process can be had it is made in this one. Raises NotMadeError; what `make` raises is told on
    standard error.
    """
    source, sink = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(source)
        os.close(sink)
        return make()
    if not pid:
        os.close(source)
        _make(make, sink)
    os.close(sink)
    with os.fdopen(source, "rb") as pipe:
        meanwhile()
        pickled = pipe.read()
    with suppress(ChildProcessError):  # whoever started this may have left SIGCHLD ignored
        os.waitpid(pid, 0)
    if not pickled:
        raise NotMadeError
    made: T = pickle.loads(pickled)  # noqa: S301 - from this program
    return made


def _make(make: Callable[[], object], sink: int) -> None:
    """In the new process: make the value, hand it over, and end."""
    code = 1
    try:
        pickled = pickle.dumps(make())
        with suppress(BrokenPipeError), os.fdopen(sink, "wb") as pipe:  # nobody waits for it any more
            pipe.write(pickled)
        code = 0
    except KeyboardInterrupt:  # which the first process hears, too
        pass
    except BaseException:  # noqa: BLE001 - it must not come to the code of the first process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
