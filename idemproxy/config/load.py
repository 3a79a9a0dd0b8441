"""Load a configuration: flags over the environment over a file over defaults, every problem at once.

`run`, `check` and `print-config` all call `load`; there is no other way to come to `Settings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from idemproxy.config import source, values
from idemproxy.config.build import build
from idemproxy.config.check import check, warnings
from idemproxy.config.effective import STORE_URL, fill_in
from idemproxy.config.fit import Fitted, fit
from idemproxy.config.problem import ConfigurationError, Place, Trail
from idemproxy.config.settings import Settings, StoreSettings
from idemproxy.config.shape import ConfigurationShape

FLAGS: Final[Mapping[str, Trail]] = {
    "listen": ("listen",),
    "admin-listen": ("admin", "listen"),
    "admin-token-file": ("admin", "token_file"),
    "store": ("store", "url"),
    "spool": ("spool", "directory"),
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
    folder = path.parent if path else Path()
    store_url = _read_secret(document, ("store", "url_file"), folder, fitted.shape.store.url_file)
    key_secret = _read_secret(document, ("key_secret_file",), folder, fitted.shape.key_secret_file)
    admin_token = _read_secret(document, ("admin", "token_file"), folder, fitted.shape.admin.token_file)
    if document.whole:
        check(fitted, document)
        _check_store(document, fitted, store_url, why_no_store)
    if document.problems:
        raise ConfigurationError(document.problems)
    shape, profiles = fill_in(_with_absolute_files(fitted.shape, folder))
    secret = key_secret or shape.key_secret
    settings = build(
        shape,
        profiles,
        store_url=store_url or shape.store.url or STORE_URL,
        key_secret=None if secret is None else secret.encode("utf-8"),
        admin_token=None if admin_token is None else admin_token.encode("ascii"),
        warnings=tuple(warnings(shape)),
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


def _read_secret(document: source.Document, trail: Trail, folder: Path, named: str | None) -> str | None:
    """What a secret file holds, without the line's end; None when none is named or it cannot be used."""
    if named is None:
        return None
    try:
        text = (folder / named).read_text("utf-8").strip()
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
    document: source.Document, fitted: Fitted, from_file: str | None, why_no_store: Callable[[StoreSettings], str | None]
) -> None:
    """Ask the store about its settings, where they could be read."""
    said = fitted.shape.store
    is_known = from_file is not None or said.url_file is None
    if is_known and fitted.is_sure(("store", "url"), ("store", "prefix")):
        reason = why_no_store(StoreSettings(from_file or said.url or STORE_URL, said.prefix))
        if reason is not None and from_file is None:
            document.complain(("store", "url"), reason)
        elif reason is not None:
            document.complain(("store", "url_file"), f"what stands in the file {reason}")


def _with_absolute_files(shape: ConfigurationShape, folder: Path) -> ConfigurationShape:
    """The same shape, with files that are found from any directory."""
    said: dict[str, object] = {}
    if shape.admin.token_file is not None:
        said["admin"] = shape.admin.model_copy(update={"token_file": str((folder / shape.admin.token_file).absolute())})
    if shape.key_secret_file is not None:
        said["key_secret_file"] = str((folder / shape.key_secret_file).absolute())
    if shape.store.url_file is not None:
        said["store"] = shape.store.model_copy(update={"url_file": str((folder / shape.store.url_file).absolute())})
    return shape.model_copy(update=said)
