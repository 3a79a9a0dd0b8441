"""Addresses, URLs, names and paths of a configuration, each read by one function.

All functions raise ValueError with what is wrong and what to write; none of them shows a URL that may hold a password.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from ipaddress import IPv4Network, IPv6Network
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from idemproxy.config.problem import did_you_mean
from idemproxy.config.settings import Address
from idemproxy.core.hop import FRAMING, HOP_BY_HOP, OURS
from idemproxy.core.policy import EgressProxy, ForwardKey, compile_path

UPSTREAM_NAME: Final = r"[a-z0-9][a-z0-9_-]*"
ROUTE_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
KEY_HEADER: Final = "Idempotency-Key"
_REDIS: Final = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "unix")
STORE_SCHEMES: Final = ("sqlite", *_REDIS, "memory")

# RFC 9110, section 5.6.2.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")
# RFC 3986, section 3.3.
_BASE_PATH = re.compile(r"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*)*")
_PATTERN_TEXT = re.compile(r"[\x21-\x22\x24-\x3e\x40-\x7e]+")
# RFC 6750, section 2.1.
_BEARER = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_SHORTEST_TOKEN: Final = 16
_MAX_PORT: Final = 65_535
_LONGEST_LABEL: Final = 63  # RFC 1035, section 2.3.4
_ADDRESS_EXAMPLE: Final = 'write host:port, such as 127.0.0.1:8080 or "[::1]:8080"'


class Origin(NamedTuple):
    """The parts of an upstream's URL."""

    scheme: str
    host: str
    port: int
    base_path: bytes


def read_address(text: str) -> Address:
    """`host:port`, or `[IPv6]:port`."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdecimal() or not bare:
        raise ValueError(f"{text!r} is no address: {_ADDRESS_EXAMPLE}")
    if int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} is no address: a port is at most {_MAX_PORT}")
    if (":" in bare) is not host.startswith("[") or not _is_host(bare):
        raise ValueError(f"{text!r} is no address: {_ADDRESS_EXAMPLE}")
    return Address(bare, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; a name other than `localhost` may be anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def meet(one: Address, other: Address) -> bool:
    """Whether two listeners would want the same port of the same interface; port 0 meets nothing."""
    if one.port != other.port or one.port == 0:
        return False
    hosts = {"127.0.0.1" if host.lower() == "localhost" else host.lower() for host in (one.host, other.host)}
    return len(hosts) == 1 or bool(hosts & {"0.0.0.0", "::"})  # noqa: S104 - recognised, not listened on


def read_upstream_url(text: str) -> Origin:
    """`http://` or `https://`, host, port and base path of an upstream; nothing else has a place in its URL."""
    if "://" not in text:
        raise ValueError("has no scheme: write https:// before it, or http:// where the connection is private")
    url, port = _split_url(text)
    if url.scheme not in {"http", "https"}:
        hint = did_you_mean(url.scheme, ("http", "https"))
        raise ValueError(f"has the scheme {url.scheme!r}, and an upstream is reached by http or https{hint}")
    if url.username is not None or url.password is not None:
        raise ValueError("holds credentials: leave them out; what the client sends is what the upstream gets")
    if "?" in text or "#" in text:
        raise ValueError("holds a query or a fragment: end it with the path")
    host = url.hostname or ""
    if not _is_host(host):
        raise ValueError("has no valid host: write https://host, https://host:port or https://host/base/path")
    if port == 0:
        raise ValueError("has port 0, to which nothing can connect: write the upstream's port")
    if not _BASE_PATH.fullmatch(url.path):
        raise ValueError("has a path with characters that must be percent-encoded")
    default = {"http": 80, "https": 443}[url.scheme]
    return Origin(url.scheme, host, default if port is None else port, url.path.rstrip("/").encode("ascii"))


def read_proxy_url(text: str) -> EgressProxy:
    """`http://host:port` of a proxy that is asked to CONNECT, perhaps with `user:password@` before the host."""
    if not text.startswith("http://"):
        raise ValueError("is no proxy that can be used: write http://host:port, with user:password@ before the host where needed")
    url, port = _split_url(text)
    if not _is_host(url.hostname or "") or not port or url.path not in {"", "/"} or "?" in text or "#" in text:
        raise ValueError("is incomplete: write http://host:port, with user:password@ before the host where needed")
    if url.username is None:
        return EgressProxy(url.hostname or "", port)
    credentials = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return EgressProxy(url.hostname or "", port, b"Basic " + b64encode(credentials.encode("utf-8")))


def read_network(text: str) -> IPv4Network | IPv6Network:
    """An address, or a network in CIDR form."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as failure:
        raise ValueError(f"{text!r} is no network: write an address or a CIDR, such as 10.0.0.0/8 or ::1/128") from failure


def check_store_url(text: str) -> None:
    """A URL that some store of this version understands."""
    scheme, separator, _ = text.partition("://")
    if not separator:
        raise ValueError("is no URL: write sqlite:///file.db, redis://host:6379/0, unix:///path/to/socket or memory://")
    if scheme not in STORE_SCHEMES:
        known = ", ".join(STORE_SCHEMES)
        raise ValueError(f"has the scheme {scheme!r}, and there are only {known}{did_you_mean(scheme, STORE_SCHEMES)}")
    if "+" in scheme:
        return  # several hosts, which only the store itself can read
    url, port = _split_url(text)
    match scheme:
        case _ if "password=" in url.query:
            raise ValueError("holds a password in its query: write user:password@ before the host")
        case "sqlite" if url.netloc or url.path in {"", "/", "//"} or url.query or url.fragment:
            raise ValueError("names no file: write sqlite:///file.db from the current directory, or sqlite:////absolute/file.db")
        case "redis" | "rediss" if not _is_host(url.hostname or "") or port == 0 or not re.fullmatch(r"(/[0-9]*)?", url.path):
            raise ValueError("is incomplete: write redis://host:6379/0, with user:password@ before the host where needed")
        case "unix" if url.path in {"", "/"}:
            raise ValueError("names no socket: write unix:///path/to/socket")
        case "memory" if text != "memory://":
            raise ValueError("takes nothing after memory://")


def has_password(url: str) -> bool:
    """Whether a store's URL holds a password."""
    return ":" in urlsplit(url).netloc.rpartition("@")[0]


def with_password(url: str, password: str | None) -> str:
    """A store's URL with a password that is kept apart from it."""
    if password is None:
        return url
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, _, hosts = authority.rpartition("@")
    return f"{scheme}://{user}:{quote(password, safe='')}@{hosts}{slash}{path}"


def check_token(text: str) -> None:
    """A bearer token that a client can send, and that nobody guesses."""
    if not _BEARER.fullmatch(text):
        raise ValueError("is no bearer token: letters, digits and -._~+/ only, such as `openssl rand -hex 32` prints")
    if len(text) < _SHORTEST_TOKEN:
        raise ValueError(
            f"is too short for a token: at least {_SHORTEST_TOKEN} characters, such as `openssl rand -hex 32` prints"
        )


def read_field_name(text: str) -> bytes:
    """The name of a header field, in lower case."""
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a header field: letters, digits and hyphens, such as X-Tenant")
    return text.lower().encode("ascii")


def read_key_name(text: str) -> bytes:
    """The name of a header field that may carry a key, in lower case."""
    name = read_field_name(text)
    if name in HOP_BY_HOP | FRAMING | OURS | {b"host"}:
        raise ValueError(f"{text!r} has a meaning of its own in every message: choose another field for the key")
    return name


def read_forward_key(text: str) -> ForwardKey | bytes:
    """`strip`, `same`, or the lower-case name of the field in `rename:<Header>`."""
    if text in {"strip", "same"}:
        return ForwardKey(text)
    word, colon, name = text.partition(":")
    if word != "rename" or not colon:
        raise ValueError(f"must be strip, same or rename:<Header>{did_you_mean(text, ('strip', 'same', 'rename:'))}")
    return read_key_name(name)


def check_path(text: str) -> None:
    """A path pattern that the routing table understands and a request can match."""
    compile_path(text)
    if not _PATTERN_TEXT.fullmatch(text):
        raise ValueError("a path has no query, no fragment, and only characters that stand in a URL: percent-encode the others")


def check_prefix(text: str) -> None:
    """A piece at the beginning of a path that can be taken off."""
    if not text.startswith("/") or text.endswith("/") or "*" in text or not _PATTERN_TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is no prefix: begin it with a slash, end it without one, and use no star")


def read_match_host(text: str) -> bytes:
    """A host as requests name it: lower case, without port."""
    if not _is_host(text):
        raise ValueError(f"{text!r} is no host: write its name without scheme and port")
    return text.lower().encode("ascii")


def read_route_name(text: str) -> str:
    """A route's name, as logs, metrics and answers show it; `-` is what they show where there is no route."""
    if not re.fullmatch(ROUTE_NAME, text):
        raise ValueError(f"{text!r} is no name of a route: use letters, digits, _, . and -, and begin with a letter or a digit")
    return text


def read_method(text: str) -> str:
    """A request method, in upper case."""
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{text!r} is not a request method: write GET, POST, PUT, PATCH, DELETE or another one")
    return text.upper()


def _is_host(text: str) -> bool:
    """Whether `text` is a host name or an IP address, without brackets."""
    if ":" not in text:
        labels = text.removesuffix(".").split(".")
        return _HOST_NAME.fullmatch(text) is not None and all(0 < len(label) <= _LONGEST_LABEL for label in labels)
    try:
        return "%" not in str(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def _split_url(text: str) -> tuple[SplitResult, int | None]:
    """The parts of a URL, and its port."""
    if not text.isascii() or any(character <= " " for character in text):
        raise ValueError("holds characters that do not stand in a URL: percent-encode them, and write the host as punycode")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as failure:
        raise ValueError("is no URL: check its brackets and its port") from failure
    return url, port
