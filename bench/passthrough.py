"""A bare pass-through: aiohttp's server and client, tuned, no idempotency. `python -m bench.passthrough PORT UPSTREAM_URL`.

The low-level server without routing or access log; one session with a pool without limit, no cookies, no redirects, nothing
decompressed on the way. It reads bodies whole, which for the short ones here is faster than streaming them.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from aiohttp import ClientSession, DummyCookieJar, TCPConnector, hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from bench.loop import loop_factory

_DROPPED: Final = ("Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade")
_ADDED_BY_AIOHTTP: Final = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT, hdrs.CONTENT_TYPE)


def _end_to_end(fields: CIMultiDictProxy[str], *more: str) -> CIMultiDict[str]:
    kept = CIMultiDict(fields)
    for name in (*_DROPPED, *more):
        kept.popall(name, None)
    return kept


async def _serve(port: int, upstream: URL) -> None:
    host = upstream.host or ""
    session = ClientSession(
        connector=TCPConnector(limit=0, keepalive_timeout=60),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_ADDED_BY_AIOHTTP,
    )

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read() if request.body_exists else None
        url = URL.build(scheme="http", host=host, port=upstream.port, path=request.raw_path, encoded=True)
        fields = _end_to_end(request.headers, hdrs.HOST)
        async with session.request(request.method, url, headers=fields, data=body, allow_redirects=False) as answer:
            whole = await answer.read()
            return web.Response(status=answer.status, body=whole, headers=_end_to_end(answer.headers, hdrs.CONTENT_LENGTH))

    async with session:
        server = web.Server(handle, access_log=None, auto_decompress=False)
        listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", port, backlog=1024)
        await listening.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(int(sys.argv[1]), URL(sys.argv[2])))
