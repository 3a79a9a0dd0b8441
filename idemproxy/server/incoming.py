"""A request as it came in: what its connection hands to whoever serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp.streams import EMPTY_PAYLOAD

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.http import RawRequestMessage

    from idemproxy.server.reading import ReadingConnection


class Incoming:
    """The head of a request, which is whole, its body, which may be on its way, and the connection to answer on.

    `content_length` as the head has it; `secure` and `remote` are of the connection: whether it is TLS, and the client's address.
    `begun` says that an answer has begun, so that there can be no other.
    """

    __slots__ = (
        "begun",
        "body_exists",
        "connection",
        "content",
        "content_length",
        "keep_alive",
        "message",
        "method",
        "raw_headers",
        "raw_path",
        "remote",
        "secure",
        "version",
    )

    def __init__(
        self, message: RawRequestMessage, content: StreamReader, length: int | None, connection: ReadingConnection
    ) -> None:
        self.message = message
        self.method = message.method
        self.raw_path = message.path
        self.raw_headers = message.raw_headers
        self.version = message.version
        self.keep_alive = not message.should_close
        self.content = content
        self.content_length = length
        self.body_exists = content is not EMPTY_PAYLOAD
        self.connection = connection
        self.remote = connection.remote
        self.secure = connection.secure
        self.begun = False

    def write(self, data: bytes) -> None:
        """Write some of the answer. Raises ConnectionResetError when the client is gone."""
        transport = self.connection.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self.begun = True
        transport.write(data)
