"""`python -m tests.process.without_privileges MODULE ARGUMENT...`: run a module so that file modes count for it, root or not."""

from __future__ import annotations

import ctypes
import os
import runpy
import struct
import sys
from typing import Final

_SYS_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_VERSION_3: Final = 0x20080522


def give_up() -> None:
    """Drop every capability of Linux: what is left of root is the name."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = ctypes.create_string_buffer(struct.pack("Ii", _VERSION_3, 0))
    nothing = ctypes.create_string_buffer(struct.pack("6I", *[0] * 6))
    if libc.syscall(_SYS_CAPSET[os.uname().machine], header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    give_up()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
