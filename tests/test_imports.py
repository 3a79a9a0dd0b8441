"""Which way imports go: the rules as tables, and a reader of the source that holds every module to them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "idemproxy"

# Part of the house -> the parts that it may import beside itself. A part is a path's beginning, and the longest that fits counts:
# "store/redis" is store/redis.py and store/redis_script.py. `demo` stands alone: only `cli` may start it.
LEANS_ON: dict[str, tuple[str, ...]] = {
    "__init__": (),
    "__main__": ("cli",),
    "core/": (),
    "config/": ("core/",),
    "observe/": ("core/",),
    "store/__init__": (),
    "store/base": ("core/",),
    "store/choice": ("store/", "config/settings"),
    "store/compressed": ("core/", "store/base"),
    "store/inspection": ("store/base",),
    "store/measured": ("core/", "store/base"),
    "store/memory": ("core/", "store/base"),
    "store/redis": ("core/", "store/base"),
    "store/spool": ("core/", "store/base"),
    "store/sqlite": ("core/", "store/base"),
    "server/": ("core/",),
    "proxy/": ("core/", "server/", "store/base", "store/spool", "observe/"),
    "admin/": ("core/", "server/", "store/base", "observe/"),
    "workflow/": ("core/", "proxy/", "server/", "store/base", "observe/"),
    "agent/": (),
    "agent/aiohttp": ("agent/",),
    "agent/httpx": ("agent/",),
    "agent/requests": ("agent/",),
    "demo/": ("agent/",),
    "board": ("observe/",),
    "crew": ("board", "admin/health", "observe/"),
    "listening": ("config/certificates", "config/settings"),
    "signals": ("listening", "observe/"),
    "lifecycle": (
        *("core/", "store/", "observe/", "config/", "proxy/", "admin/", "workflow/"),
        *("board", "crew", "listening", "signals"),
    ),
    "workers": ("config/settings", "store/", "observe/", "board", "crew", "lifecycle", "listening"),
    "apart": (),
    "cli": ("",),
}
# The modules of core tell a story: each leans only on those before it, and on the shared ones, which lean on message alone.
CORE_STORY = (
    "message",
    "key",
    "workflow",
    "scope",
    "fingerprint",
    "record",
    "journal",
    "transition",
    "probe",
    "stamp",
    "policy",
    "routing",
    "visible",
    "origin",
    "decision",
    "forward",
    "outcome",
    "replay",
    "ending",
)
CORE_SHARED = ("coding", "hop", "problem", "value")
CORE_RULE = f"core goes {' -> '.join(CORE_STORY)}; {', '.join(CORE_SHARED)} lean on message alone"
CORE_LEANS_ON: dict[str, tuple[str, ...]] = {name: CORE_STORY[:place] + CORE_SHARED for place, name in enumerate(CORE_STORY)} | {
    "__init__": (),
    "coding": ("message",),
    "hop": ("message",),
    "message": ("value",),
    "problem": ("message",),
    "value": (),
}
# Standard library that core must not use: it makes an answer depend on more than the arguments.
CORE_FORBIDDEN = {"asyncio", "socket", "time", "os", "logging", "random", "secrets"}
# Part -> the only libraries that it may import; a part that is not listed is bound by LIBRARY_HOMES alone.
LIBRARIES_OF: dict[str, set[str]] = {
    "agent/": set(),
    "core/": {"backports", "brotli", "compression", "jmespath"},
    "server/": {"aiohttp", "orjson"},
    "observe/": {"orjson", "prometheus_client"},
    "store/base": set(),
    "store/compressed": {"zstandard"},
    "store/inspection": set(),
    "store/measured": set(),
    "store/memory": set(),
    "store/redis": {"redis", "hiredis"},
    "store/spool": set(),
    "store/sqlite": set(),
}
# Library -> the only parts that may import it.
LIBRARY_HOMES: dict[str, tuple[str, ...]] = {
    "aiohttp": ("agent/aiohttp", "server/", "proxy/", "admin/", "workflow/", "demo/"),
    # The three that decode br and zstd: pure functions of bytes, and for replays alone, which may depend on what is installed.
    "backports": ("core/coding",),
    "brotli": ("core/coding",),
    "compression": ("core/coding",),
    "hiredis": ("store/redis",),
    "httptools": ("proxy/",),
    "httpx": ("agent/httpx",),
    "prometheus_client": ("observe/metrics",),
    "pydantic": ("config/",),
    "pydantic_core": ("config/",),
    "redis": ("store/redis",),
    "requests": ("agent/requests",),
    "sqlite3": ("store/sqlite", "store/spool"),
    "ssl": (
        "config/certificates",
        "listening",
        "lifecycle",
        "proxy/pool",
        "proxy/dialing",
        "proxy/receiving",
        "server/",
    ),
    "yaml": ("config/",),
    "zstandard": ("store/compressed",),
}


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import; `from package import module` names the module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            is_package = (PACKAGE.parent / origin.replace(".", "/")).is_dir()
            yield from ((node.lineno, f"{origin}.{alias.name}" if is_package else origin) for alias in node.names)


def core_chapter(part: str) -> str:
    """The name under which CORE_LEANS_ON knows a module of core; the fingerprint may be several modules, or a package."""
    name = part.removeprefix("core/").partition("/")[0]
    return "fingerprint" if name.startswith("fingerprint") else name


def broken_inside(part: str, family: str, on: str) -> str | None:
    """The rule that module `part` ("core/key") breaks by importing module `on` of idemproxy, or None."""
    if family == "core/" and on.startswith("core/"):
        here, there = core_chapter(part), core_chapter(on)
        is_told = there == here or there in CORE_LEANS_ON.get(here, ())
        return None if is_told else CORE_RULE
    allowed = (family, *LEANS_ON[family], *(() if family == "core/" else ("__version__",)))
    return None if on.startswith(allowed) else f"{family} leans only on {allowed}"


def broken(part: str, name: str) -> str | None:
    """The rule that module `part` breaks by importing the dotted `name`, or None."""
    top, _, rest = name.partition(".")
    family = max((known for known in LEANS_ON if part.startswith(known)), key=len, default=None)
    if family is None:
        return "LEANS_ON does not know this module yet: decide what it may lean on"
    if not top:
        return "imports are absolute"
    if top == "idemproxy":
        return broken_inside(part, family, rest.replace(".", "/"))
    if family == "core/" and top in CORE_FORBIDDEN:
        return "core is pure: time, tokens and the environment arrive as arguments"
    if not part.startswith(homes := LIBRARY_HOMES.get(top, ("",))):
        return f"{top} is at home only in {homes}"
    if top not in sys.stdlib_module_names and top not in LIBRARIES_OF.get(family, {top}):
        return f"{family} uses only these libraries: {sorted(LIBRARIES_OF[family])}"
    return None


def violations(part: str, source: str) -> list[str]:
    """Each import of `source`, read as module `part`, that breaks a rule: file, line, import and rule."""
    found = ((line, name, broken(part, name)) for line, name in imports(source))
    return [f"idemproxy/{part}.py:{line}: {name}: {rule}" for line, name, rule in found if rule is not None]


def test_imports_go_one_way() -> None:
    """No module of the package leans on a part or a library that is not its own to lean on."""
    sources = {path.relative_to(PACKAGE).with_suffix("").as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}

    assert [] == [violation for part in sorted(sources) for violation in violations(part, sources[part])]


def test_a_broken_rule_is_reported_with_file_line_import_and_rule() -> None:
    """Every kind of forbidden import is found, and the allowed ones beside it are not."""
    key = "import hashlib, time\nfrom idemproxy.core import message, replay\nfrom idemproxy import errors\nimport orjson"
    exchange = "import aiohttp\nimport redis.asyncio\nfrom idemproxy.demo.api import create_app\nfrom . import upstream"

    reported = violations("core/key", key) + violations("proxy/exchange", exchange)

    lean = ("proxy/", *LEANS_ON["proxy/"], "__version__")
    assert [
        "idemproxy/core/key.py:1: time: core is pure: time, tokens and the environment arrive as arguments",
        f"idemproxy/core/key.py:2: idemproxy.core.replay: {CORE_RULE}",
        "idemproxy/core/key.py:3: idemproxy.errors: core/ leans only on ('core/',)",
        f"idemproxy/core/key.py:4: orjson: core/ uses only these libraries: {sorted(LIBRARIES_OF['core/'])}",
        "idemproxy/proxy/exchange.py:2: redis.asyncio: redis is at home only in ('store/redis',)",
        f"idemproxy/proxy/exchange.py:3: idemproxy.demo.api: proxy/ leans only on {lean}",
        "idemproxy/proxy/exchange.py:4: ..upstream: imports are absolute",
    ] == reported
