"""Where failures of Redis become ours: the one place that knows the server's error codes and redis-py's exceptions."""

from __future__ import annotations

import re
from typing import Final

from redis.exceptions import RedisError, ResponseError

from idemproxy.store.base import StoreUnavailableError, StoreUncertainError

_ADVICE: Final = {
    "NOAUTH": "the server asks for a password: put it into store.url, as in redis://:password@host",
    "WRONGPASS": "the user name or password of store.url is not what the server has",
    "NOPERM": "the user of store.url may not do this: allow it evalsha, script|load, publish, subscribe, scan, lrange, with "
    "durability wait or waitaof, in a cluster cluster|slots and asking, in another database than 0 select, what the "
    "scripts call (hmget, hset, hdel, get, set, del, rpush, persist, pexpireat, time), and keys and channels under store.prefix",
    "OOM": "the server's memory is full: raise maxmemory, or shorten retention; keep maxmemory-policy at noeviction",
    "READONLY": "the server is a replica: let store.url name the primary",
    "LOADING": "the server is still loading its data, and will take commands when it has",
    "WAITAOF": "store.durability.aof needs Redis 7.2 or newer, or Valkey, with appendonly turned on",
    "MISCONF": "the server cannot save to its disk: see its log, and free space or mend the permissions",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for: start them",
    "MASTERDOWN": "the server is a replica that has lost its primary: let store.url name the primary",
    "CLUSTERDOWN": "the server is a node of a cluster that is down",
    "TRYAGAIN": "the record's slot is being moved to another node: finish that",
    "MOVED": "the server is a node of a cluster; store.url must name a server on its own",
    "BUSY": "a script of another program blocks the server: end it with SCRIPT KILL",
    "NOSCRIPT": "the server lost our scripts as soon as they were loaded: see who sends SCRIPT FLUSH, or moves between servers",
    "WRONGTYPE": "another program keeps its keys under store.prefix: choose another prefix",
    "RECORDVERSION": "the record was written by another version of this program: use that one",
    "CERTIFICATE_VERIFY_FAILED": "see store.tls.ca_file: the server's certificate must be of an authority in it, or, without it, "
    "of one that the system trusts, and must name the host of store.url",
    "certificate required": "the server asks for a certificate: name ours in store.tls.certificate_file",
    "unknown ca": "the server does not trust the authority of store.tls.certificate_file",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS: begin store.url with redis://",
    "max number of clients": "the server takes no more connections: raise maxclients",
    "without any password": "the server has no password set: remove the one in store.url",
    "invalid DB index": "the server has no such database: correct the number at the end of store.url",
    "DB index is out of range": "the server has no such database: correct the number at the end of store.url",
}
_USUAL: Final = "see that the server runs, and that store.url names it"
_ENDED: Final = re.compile("while reading from|closed by server")
"""In what redis-py says, when a connection ended that had come to stand."""
# A code may come first, or, from inside a script of Redis 6.2, anywhere; redis-py removes it where it knows it.
_KNOWN: Final = re.compile("|".join(rf"\b{re.escape(code)}\b" for code in _ADVICE))


class LostReplyError(StoreUncertainError):
    """The connection ended, or was given up, before the reply came: the command may or may not have been carried out."""


class RefusedError(StoreUnavailableError):
    """The server at `address` did not carry a command out; `error` is what it said."""

    def __init__(self, address: str, error: RedisError) -> None:
        super().__init__(explained(address, error))
        self.error = self.__cause__ = error


class UnconfirmedError(StoreUncertainError):
    """The server has the write, but not all have it that must: it may be lost, and so does not count. `written`: its reply."""

    def __init__(self, message: str, written: object) -> None:
        super().__init__(message)
        self.written = written


def is_withheld(error: RedisError) -> bool:
    """Whether the server, or its provider, does not let us ask this; otherwise it cannot answer anything now."""
    is_without_code = isinstance(error, ResponseError) and error.status_code is None and _KNOWN.search(str(error)) is None
    return is_without_code or error.status_code in {"ERR", "NOPERM"}


def is_replica(error: RedisError) -> bool:
    """Whether the server refused a write because it is a replica, perhaps since a moment ago."""
    known = _KNOWN.search(str(error))
    return (known is not None and known[0] in {"READONLY", "MASTERDOWN"}) or error.status_code in {"READONLY", "MASTERDOWN"}


def unavailable(address: str, error: BaseException, hint: str = _USUAL) -> StoreUnavailableError:
    """Any failure as a StoreUnavailableError; see `explained`."""
    return StoreUnavailableError(explained(address, error, hint))


def explained(address: str, error: BaseException, hint: str = _USUAL) -> str:
    """Any failure in our words: which server, what it or the network said, and what to do.

    `hint`: what to do when the server has ended the connection without a word.
    """
    code = getattr(error, "status_code", None)
    said = f"{code} {error}" if code else str(error) or "no answer within the deadline"  # a TimeoutError has no text
    known = _KNOWN.search(said)
    advice = _ADVICE[known[0]] if known else hint if _ENDED.search(said) else _USUAL
    return f"redis at {address}: {said}; {advice}"
