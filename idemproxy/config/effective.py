"""Fill in what a configuration does not say: the catch-all routes, the profiles, the defaults.

The result has the same shape as a file in which everything was written down. It is what is printed, and what `build` builds from,
so what a person reads is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from idemproxy.config.profiles import PROFILES, Profile, choose
from idemproxy.config.shape import ConfigurationShape, KeyShape, Limits, MatchShape, OutcomeShape, RouteShape, ScopeShape
from idemproxy.config.values import KEY_HEADER, read_upstream_url
from idemproxy.core.key import KeySource

STORE_URL: Final = "sqlite:///idemproxy.db"

LIMITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lease": "15s",
        "wait": "10s",
        "retention": "24h",
        "expired_mark": "7d",
        "max_request_body": "10MiB",
        "max_stored_body": "1MiB",
    }
)
"""What `defaults` gets where it says nothing."""

SHARED: Final = ScopeShape(headers=())


def fill_in(shape: ConfigurationShape) -> tuple[ConfigurationShape, Mapping[str, str]]:
    """A valid shape with everything said, and, by route name, which profile was chosen and why."""
    defaults = Limits(**(dict(LIMITS) | shape.defaults.model_dump(exclude_none=True)))
    scope = shape.scope or SHARED
    routes, chosen = [], {}
    for route in shape.routes or _catch_alls(list(shape.upstreams)):
        upstream = shape.upstreams[route.upstream]
        name, why = choose(route.profile, upstream.profile, route.upstream, read_upstream_url(upstream.url).host)
        chosen[route.name] = why
        forward_key = route.forward_key or upstream.forward_key
        routes.append(_fill_in_route(route, PROFILES[name], defaults, scope, forward_key))
    said = {"defaults": defaults, "scope": scope, "routes": tuple(routes)}
    if shape.store.url_file is None and shape.store.url is None:
        said["store"] = shape.store.model_copy(update={"url": STORE_URL})
    return shape.model_copy(update=said), chosen


def _catch_alls(upstreams: list[str]) -> tuple[RouteShape, ...]:
    """The routes of a configuration without any: a single upstream takes everything, several are reached under their names."""
    match upstreams:
        case [name]:
            return (RouteShape(name=name, upstream=name),)
        case _:
            return tuple(
                RouteShape(name=name, upstream=name, match=MatchShape(path=f"/{name}/**"), strip_prefix=f"/{name}")
                for name in upstreams
            )


def _fill_in_route(
    route: RouteShape, profile: Profile, defaults: Limits, scope: ScopeShape, forward_key: str | None
) -> RouteShape:
    key = route.key or KeyShape()
    key_said = {
        "sources": key.sources or tuple(KeySource),
        "header": key.header or KEY_HEADER,
        "mode": key.mode or profile.key_mode,
    }
    said: dict[str, object] = {
        name: getattr(route, name) if getattr(route, name) is not None else getattr(defaults, name) for name in LIMITS
    }
    said |= {
        "match": route.match.model_copy(update={"path": route.match.path or "/**"}),
        "key": key.model_copy(update=key_said),
        "scope": route.scope or _widen(scope, profile.scope_headers),
        "outcome": _fill_in_outcome(route.outcome, profile),
        "on_unknown": route.on_unknown or profile.on_unknown,
        "forward_key": forward_key or profile.forward_key,
    }
    return route.model_copy(update=said)


def _widen(scope: ScopeShape, more: tuple[str, ...]) -> ScopeShape:
    """The scope of the top level, with the fields that a profile adds."""
    known = {name.lower() for name in scope.headers}
    headers = (*scope.headers, *(name for name in more if name not in known))
    return ScopeShape(headers=headers)


def _fill_in_outcome(said: OutcomeShape, profile: Profile) -> OutcomeShape:
    """The lists of a route, each with the profile's statuses of its kind that the route does not list itself."""
    judged = {status for kind in (said.release, said.unknown, said.complete) for status in kind}

    def statuses(kind: Literal["release", "unknown", "complete"]) -> tuple[int, ...]:
        return tuple(sorted({*getattr(said, kind), *(getattr(profile.outcome, kind) - judged)}))

    return OutcomeShape(release=statuses("release"), unknown=statuses("unknown"), complete=statuses("complete"))
