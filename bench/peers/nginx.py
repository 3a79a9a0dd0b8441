"""nginx: proxy_pass alone, which is the limit; and with Lua and Redis, idempotency as an infrastructure engineer writes it.

One process each, so that it is held to one core. The one with Lua keeps an access log, as idemproxy does, and as nginx does
unless it is told otherwise; the other is the limit, and keeps none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.peers import install
from bench.stage import MissingError, Stage, Standing, found_in_path, free_port, listens

_PACKAGES: Final = (
    "nginx",
    "libnginx-mod-http-ndk",
    "libnginx-mod-http-lua",
    "libluajit2-5.1-2",
    "libpcre3",
    "lua-cjson",
    "lua-resty-core",
    "lua-resty-lrucache",
    "lua-nginx-redis",  # lua-resty-redis under Debian's name
)
_SCRIPTS: Final = Path(__file__).parent
_THROUGH: Final = """proxy_http_version 1.1; proxy_set_header Connection "";"""
_CONFIGURATION: Final = """
{modules}
daemon off; master_process off; pid nginx.pid; error_log stderr warn;
events {{ worker_connections 16384; }}
http {{
    keepalive_requests 1000000000; client_max_body_size 0; client_body_buffer_size 64k;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    upstream behind {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000000; }}
    {settings}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        {locations}
    }}
}}
"""
_LUA_SETTINGS: Final = """
    access_log access.log;
    lua_package_path "{root}/usr/share/lua/5.1/?.lua;{scripts}/?.lua;;";
    lua_package_cpath "{library}/lua/5.1/?.so;;";
    lua_shared_dict scripts 64k;
"""
_LUA_LOCATIONS: Final = """
        set $redis_port {redis};
        location / {{ content_by_lua_block {{ require("idempotency").handle() }} }}
        location /upstream/ {{ internal; proxy_pass http://behind/; {through} }}
        location @through {{ proxy_pass http://behind; {through} }}
"""


def fetch() -> Path:
    """The root of a tree with nginx, Lua and its Redis client. Raises MissingError."""
    return install.debian("nginx", _PACKAGES)


def plain(stage: Stage) -> Standing:
    """proxy_pass, without idempotency."""
    try:
        program = found_in_path("nginx")
    except MissingError:
        program = str(fetch() / "usr/sbin/nginx")
    locations = f"location / {{ proxy_pass http://behind; {_THROUGH} }}"
    return _start(stage, "nginx", program, locations)


def with_lua(stage: Stage) -> Standing:
    """Idempotency by idempotency.lua; the module needs the nginx that it was built with."""
    root = fetch()
    libraries = sorted({str(found.parent) for name in ("libluajit-5.1.so.2", "libpcre.so.3") for found in root.rglob(name)})
    (library,) = root.glob("usr/lib/*/lua")
    redis, redis_pid = stage.redis
    return _start(
        stage,
        "nginx-lua",
        str(root / "usr/sbin/nginx"),
        _LUA_LOCATIONS.format(redis=redis, through=_THROUGH),
        redis_pid,
        modules="".join(f"load_module {root}/usr/lib/nginx/modules/{name}_module.so;\n" for name in ("ndk_http", "ngx_http_lua")),
        settings=_LUA_SETTINGS.format(root=root, scripts=_SCRIPTS, library=library.parent),
        environment={"LD_LIBRARY_PATH": ":".join(libraries)},
    )


def _start(
    stage: Stage,
    name: str,
    program: str,
    locations: str,
    *support: int,
    modules: str = "",
    settings: str = "access_log off;",
    environment: dict[str, str] | None = None,
) -> Standing:
    port, (upstream, upstream_pid) = free_port(), stage.upstream
    directory = stage.directory / name
    directory.mkdir()
    configuration = directory / "nginx.conf"
    configuration.write_text(
        _CONFIGURATION.format(modules=modules, upstream=upstream, port=port, settings=settings, locations=locations)
    )
    words = [program, "-p", str(directory), "-c", str(configuration), "-e", "stderr"]
    pid = stage.start(name, words, stage.cores.server, lambda: listens(port), environment)
    return Standing(port, pid, (upstream_pid, *support))
