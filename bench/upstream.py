"""The upstream: answers every request with the same bytes, as cheaply as Python can. `python -m bench.upstream PORT`."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Final, cast

from bench.loop import loop_factory
from bench.wire import ANSWER

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Upstream(asyncio.Protocol):
    """A connection. Requests end with their head, or carry a Content-Length; a chunked one is not understood, and ends it."""

    def __init__(self) -> None:
        self._transport = cast("asyncio.Transport", None)
        self._unread = b""
        self._to_skip = 0
        """Bytes of a body that are still to come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole; of bodies only the length is looked at."""
        if self._to_skip > len(data):
            self._to_skip -= len(data)
            return
        if self._to_skip:
            data, self._to_skip = data[self._to_skip :], 0
            self._transport.write(ANSWER)
        unread = self._unread + data if self._unread else data
        while (head_end := unread.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(unread, 0, head_end + 2)
            if length is None and not unread.startswith(b"GET "):
                self._transport.abort()
                return
            end = head_end + 4 + (int(length[1]) if length else 0)
            if len(unread) < end:
                self._to_skip, unread = end - len(unread), b""
                break
            unread = unread[end:]
            self._transport.write(ANSWER)
        self._unread = unread


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(int(sys.argv[1])))
