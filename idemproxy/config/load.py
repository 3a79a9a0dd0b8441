"""Load a configuration: flags over the environment over a file over defaults, every problem at once.

`run`, `check` and `print-config` all call `load`; there is no other way to come to `Settings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from idemproxy.config import source, values
from idemproxy.config.build import build, store_settings, upstream_tls
from idemproxy.config.certificates import CertificateError, client_context, validity
from idemproxy.config.check import check, warnings
from idemproxy.config.effective import STORE_URL, fill_in
from idemproxy.config.fit import Fitted, fit
from idemproxy.config.problem import ConfigurationError, Place, Trail, show_trail
from idemproxy.config.settings import ListenerTls, Settings, StoreSettings
from idemproxy.config.shape import ConfigurationShape
from idemproxy.core.policy import UpstreamTls

S = TypeVar("S", bound=BaseModel)

FLAGS: Final[Mapping[str, Trail]] = {
    "listen": ("listen",),
    "admin-listen": ("admin", "listen"),
    "admin-token-file": ("admin", "token_file"),
    "store": ("store", "url"),
    "spool": ("spool", "directory"),
    "workers": ("workers",),
    "access-log": ("access_log",),
    "log-format": ("log_format",),
}
"""Flags that stand for one value of the configuration. `--config` and `--upstream` are the others."""

_CHECKS: Final[Mapping[Trail, Callable[[str], None]]] = {
    ("store", "url_file"): values.check_store_url,
    ("admin", "token_file"): values.check_token,
}
"""What must hold for the content of a secret's file."""

_NAMED = re.compile(r"([^=:/]*)=(.*)")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A valid configuration: as text with everything said, and as settings."""

    shape: ConfigurationShape
    settings: Settings


@dataclass(frozen=True, slots=True)
class _Given:
    """The values of one flag, and where they were given."""

    origin: str
    values: Sequence[str] = field(repr=False)


def load(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    why_no_store: Callable[[StoreSettings], str | None] = lambda _: None,
) -> Configuration:
    """Settings from flags (name without dashes -> its values), environment, and the file that one of them names.

    `why_no_store`: what a store has against its settings, which only the store itself can tell. Raises ConfigurationError with
    every problem.
    """
    config = _given("config", flags, environ)
    path = Path(config.values[-1]) if config else None
    document = source.read(path, environ) if path else source.Document()
    _lay_over(document, flags, environ)
    fitted = fit(document)
    fitted = replace(fitted, shape=_with_absolute_files(fitted.shape, path.parent if path else Path()))
    store_url = _read_secret(document, ("store", "url_file"), fitted.shape.store.url_file)
    store_password = _read_secret(document, ("store", "password_file"), fitted.shape.store.password_file)
    key_secret = _read_secret(document, ("key_secret_file",), fitted.shape.key_secret_file)
    admin_token = _read_secret(document, ("admin", "token_file"), fitted.shape.admin.token_file)
    doubts: list[str] = []
    if document.whole:
        check(fitted, document)
        _check_store(document, fitted, store_url, store_password, why_no_store)
        doubts = _check_certificates(document, fitted)
    if document.problems:
        raise ConfigurationError(document.problems)
    shape, profiles = fill_in(fitted.shape)
    secret = key_secret or shape.key_secret
    settings = build(
        shape,
        profiles,
        store_url=values.with_password(store_url or shape.store.url or STORE_URL, store_password),
        key_secret=None if secret is None else secret.encode("utf-8"),
        admin_token=None if admin_token is None else admin_token.encode("ascii"),
        warnings=(*warnings(shape), *doubts),
    )
    return Configuration(shape, settings)


def _given(name: str, flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> _Given | None:
    """A flag, else its variable; an empty variable counts as none."""
    if flags.get(name):
        return _Given(f"--{name}", flags[name])
    variable = f"IDEMPROXY_{name.replace('-', '_').upper()}"
    text = environ.get(variable, "").strip()
    if not text:
        return None
    return _Given(variable, text.split() if name == "upstream" else [text])


def _lay_over(document: source.Document, flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> None:
    """Put what flags and variables say over what the file says."""
    for name, trail in FLAGS.items():
        if given := _given(name, flags, environ):
            value = given.values[-1]
            # A file that a flag names is looked for where the program was started, not beside the configuration.
            _put(document, trail, str(Path(value).absolute()) if name.endswith("-file") else value, given.origin)
            if trail == ("store", "url") and isinstance(store := document.tree["store"], dict):
                store.pop("url_file", None)
    if given := _given("upstream", flags, environ):
        seen: set[str] = set()
        for text in given.values:
            named = _NAMED.fullmatch(text)
            name, url = (named[1], named[2]) if named else ("upstream", text)
            trail = ("upstreams", name, "url")
            _put(document, trail, url, given.origin)
            if name in seen:
                document.complain(trail, f"two upstreams are called {name!r}: write each as name=URL, with a name of its own")
                document.twice.add(trail)
            seen.add(name)


def _put(document: source.Document, trail: Trail, value: str, origin: str) -> None:
    """Set one value; where the file has something else than mappings on the way there, that is its own problem."""
    inner = document.tree
    for depth, step in enumerate(trail[:-1], 1):
        deeper = inner.setdefault(str(step), {})
        document.places.setdefault(trail[:depth], Place(origin))
        if not isinstance(deeper, dict):
            return
        inner = deeper
    inner[str(trail[-1])] = value
    document.places[trail] = Place(origin)


def _read_secret(document: source.Document, trail: Trail, named: str | None) -> str | None:
    """What a secret file holds, without the line's end; None when none is named or it cannot be used."""
    if named is None:
        return None
    try:
        text = Path(named).read_text("utf-8").strip()
        if not text:
            raise ValueError("is empty: write the secret into it")  # noqa: TRY301 - told with the others
        if trail in _CHECKS:
            _CHECKS[trail](text)
    except OSError as failure:
        document.complain(trail, f"the file cannot be read: {failure.strerror}")
    except UnicodeDecodeError:
        document.complain(trail, "the file is not UTF-8 text")
    except ValueError as failure:
        document.complain(trail, f"what stands in the file {failure}")
    else:
        return text
    return None


def _check_store(
    document: source.Document,
    fitted: Fitted,
    from_file: str | None,
    password: str | None,
    why_no_store: Callable[[StoreSettings], str | None],
) -> None:
    """Ask the store about its settings, where they could be read."""
    said = fitted.shape.store
    is_known = from_file is not None or said.url_file is None
    if is_known and fitted.is_sure(("store", "url"), ("store", "prefix")):
        url = from_file or said.url or STORE_URL
        if password is not None and values.has_password(url):
            document.complain(("store", "password_file"), "stands beside a password in the store's URL: keep one of the two")
        reason = why_no_store(store_settings(said, values.with_password(url, password)))
        if reason is not None and from_file is None:
            document.complain(("store", "url"), reason)
        elif reason is not None:
            document.complain(("store", "url_file"), f"what stands in the file {reason}")
        if url.startswith("memory:") and fitted.is_sure(("workers",)) and fitted.shape.workers > 1:
            text = "need a store that they share: memory:// is one process's own, so that each worker would know other operations"
            document.complain(("workers",), text)


def _check_certificates(document: source.Document, fitted: Fitted) -> list[str]:
    """Try out what TLS needs; warnings for certificates that the other side will refuse, which may be as it should."""
    doubts = []
    for trail, tls in _tls(fitted):
        try:
            found = validity(tls)
            if isinstance(tls, UpstreamTls):
                client_context(tls)
        except CertificateError as failure:
            document.complain((*trail, failure.setting), str(failure))
        else:
            if found is not None and found.refused is not None:
                doubts.append(f"{show_trail((*trail, 'certificate_file'))}: whoever is shown it refuses it: {found.refused}")
    return doubts


def _tls(fitted: Fitted) -> Iterator[tuple[Trail, ListenerTls | UpstreamTls]]:
    """Where TLS is spoken in a way of its own."""
    shape = fitted.shape
    if shape.tls is not None and fitted.is_sure(("tls",)):
        yield ("tls",), ListenerTls(shape.tls.certificate_file, shape.tls.key_file)
    for name, upstream in shape.upstreams.items():
        trail: Trail = ("upstreams", name, "tls")
        if upstream.tls is not None and fitted.is_sure(trail):
            yield trail, upstream_tls(upstream)
    of_store = shape.store.tls
    if of_store is not None and fitted.is_sure(("store", "tls")):
        yield ("store", "tls"), UpstreamTls(of_store.ca_file, of_store.certificate_file, of_store.key_file)


def _with_absolute_files(shape: S, folder: Path) -> S:
    """The same shape, with files that are found from any directory: what is called `..._file` names one."""
    said: dict[str, object] = {}
    for name, value in shape:
        match value:
            case str() if name.endswith("_file"):
                said[name] = str((folder / value).absolute())
            case BaseModel():
                said[name] = _with_absolute_files(value, folder)
            case dict():
                inner = {key: item for key, item in value.items() if isinstance(item, BaseModel)}
                said[name] = value | {key: _with_absolute_files(item, folder) for key, item in inner.items()}
    return shape.model_copy(update=said)
