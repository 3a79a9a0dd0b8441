"""What one look at the shape cannot see: how the parts of a configuration stand to each other.

Each check yields the trail of what is wrong, what is wrong, and the trails that its conclusion leans on: where one of those
could not be read, the conclusion would be hasty and is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final, TypeAlias

from idemproxy.config.build import fingerprint_rule, probe_rule, stamp_rule
from idemproxy.config.fit import Fitted
from idemproxy.config.problem import Trail, did_you_mean, show_trail
from idemproxy.config.profiles import PROFILES, choose
from idemproxy.config.settings import Address
from idemproxy.config.shape import ConfigurationShape, RouteShape
from idemproxy.config.source import Document
from idemproxy.config.values import KEY_HEADER, UPSTREAM_NAME, is_loopback, meet, read_address, read_proxy_url, read_upstream_url
from idemproxy.core.fingerprint import check_rule
from idemproxy.core.policy import Effect, OnUnknown
from idemproxy.core.probe import check_compared, check_probe
from idemproxy.core.probe.rule import NAME
from idemproxy.core.stamp import check_stamp

Finding: TypeAlias = tuple[Trail, str, tuple[Trail, ...]]

_UPSTREAMS: Final[Trail] = ("upstreams",)
_NO_CERTIFICATE: Final = "is the key of no certificate: name that in certificate_file, or delete this"


def check(fitted: Fitted, document: Document) -> None:
    """Run every check; problems are added to the document."""
    for look in CHECKS:
        for trail, text, leans_on in look(fitted.shape):
            if fitted.is_sure(*leans_on):
                document.complain(trail, text)


def warnings(shape: ConfigurationShape) -> Iterator[str]:
    """What is allowed but seldom meant, each with its path; the shape is one that `effective` has filled in."""
    for number, route in enumerate(shape.routes or ()):
        is_blind = route.forward_key == "strip" and route.stamp is None
        if route.effect is Effect.WRITE and route.on_unknown is OnUnknown.RETRY and is_blind:
            text = (
                "forwards what may have happened again, to an upstream that never sees the key and cannot know it again: let it "
                "through with `forward_key: same`, unless the requests of this route may act twice without harm"
            )
            yield f"{show_trail(('routes', number, 'on_unknown'))}: {text}"


def _upstreams(shape: ConfigurationShape) -> Iterator[Finding]:
    """There are upstreams, their names can be part of a record's identity, and none is the proxy itself."""
    if not shape.upstreams:
        yield _UPSTREAMS, "there is no upstream: give --upstream URL, or describe one under `upstreams` in a file", (_UPSTREAMS,)
    listeners = (read_address(shape.listen), read_address(shape.admin.listen))
    for name, upstream in shape.upstreams.items():
        trail = (*_UPSTREAMS, name)
        if not re.fullmatch(UPSTREAM_NAME, name):
            text = "is no name of an upstream: use lower-case letters, digits, _ and -, and begin with a letter or a digit"
            yield trail, f"{name!r} {text}", ()
        origin = read_upstream_url(upstream.url)
        hops = {"url": Address(origin.host, origin.port)}
        if upstream.proxy is not None:
            proxy = read_proxy_url(upstream.proxy)
            hops["proxy"] = Address(proxy.host, proxy.port)
        for setting, address in hops.items():
            if any(meet(address, listener) for listener in listeners):
                text = "is an address that idemproxy itself listens on: requests would go in a circle"
                yield (*trail, setting), text, ((*trail, setting), ("listen",), ("admin",))


def _upstream_tls(shape: ConfigurationShape) -> Iterator[Finding]:
    """What is said of TLS has a meaning."""
    for name, upstream in shape.upstreams.items():
        if upstream.tls is None:
            continue
        url, trail = (*_UPSTREAMS, name, "url"), (*_UPSTREAMS, name, "tls")
        if read_upstream_url(upstream.url).scheme != "https":
            yield trail, "is never used: the URL says http; write https there, or delete this", (url,)
        if upstream.tls.key_file is not None and upstream.tls.certificate_file is None:
            yield (*trail, "key_file"), _NO_CERTIFICATE, ((*trail, "certificate_file"),)


def _listeners(shape: ConfigurationShape) -> Iterator[Finding]:
    """The two listeners do not meet, and callers from elsewhere are told apart on purpose."""
    leans_on: tuple[Trail, ...] = (("listen",), ("admin",), ("scope",))
    listen, admin = read_address(shape.listen), read_address(shape.admin.listen)
    if meet(listen, admin):
        text = f"the admin listener ({admin}) would meet `listen` ({listen}): give one of them another port"
        yield ("admin", "listen"), text, leans_on
    routes = shape.routes or ()
    is_told = shape.scope is not None or (routes and all(route.scope is not None for route in routes))
    if not is_loopback(listen.host) and not is_told:
        text = (
            f"{listen} is reached from beyond this machine, and nothing says whose keys are whose: "
            "write `scope: {headers: [x-tenant]}`, with a field that tells callers apart, or `scope: shared`, if they may share "
            "keys, into the file that --config names"
        )
        yield ("listen",), text, (*leans_on, *(("routes", number, "scope") for number in range(len(routes))))


def _secrets(shape: ConfigurationShape) -> Iterator[Finding]:
    """A secret is said once."""
    if shape.key_secret is not None and shape.key_secret_file is not None:
        yield ("key_secret_file",), "stands beside key_secret: keep one of the two", ()
    if shape.store.url is not None and shape.store.url_file is not None:
        yield ("store", "url_file"), "stands beside store.url: keep one of the two", ()


def _store(shape: ConfigurationShape) -> Iterator[Finding]:
    """What is asked of a store is a thing that a store of its kind has; a URL that lies in a file is not looked at."""
    scheme = (shape.store.url or "").partition("://")[0]
    tls = shape.store.tls
    if tls is not None and scheme and not scheme.startswith("rediss"):
        yield ("store", "tls"), "is never used: the store's URL has to begin with rediss", (("store", "url"),)
    if tls is not None and tls.key_file is not None and tls.certificate_file is None:
        yield ("store", "tls", "key_file"), _NO_CERTIFICATE, (("store", "tls", "certificate_file"),)
    if shape.store.durability is not None and scheme in {"sqlite", "memory"}:
        yield ("store", "durability"), f"is for Redis: a {scheme} store has no replicas; delete it", (("store", "url"),)


def _route_names(shape: ConfigurationShape) -> Iterator[Finding]:
    """There are routes where the key stands, and no two have one name."""
    if shape.routes == ():
        yield ("routes",), "is an empty list: add a route, or delete it to reach every upstream", ()
    first: dict[str, int] = {}
    for number, route in enumerate(shape.routes or ()):
        earlier = first.setdefault(route.name, number)
        if earlier != number:
            trail: Trail = ("routes", number, "name")
            text = f"routes[{earlier}] has the name {route.name!r} too: give each route a name of its own"
            yield trail, text, (trail, ("routes", earlier, "name"))


def _route_upstreams(shape: ConfigurationShape) -> Iterator[Finding]:
    """Routes and upstreams know each other."""
    used: set[str] = set()
    written: set[tuple[str, str]] = set()
    for number, route in enumerate(shape.routes or ()):
        if (route.name, route.upstream) in written:
            # An unfinished copy, which is told as such: any upstream that is still unused may be the one that it was to name.
            used.update(shape.upstreams)
        written.add((route.name, route.upstream))
        used.add(route.upstream)
        if route.upstream not in shape.upstreams:
            trail: Trail = ("routes", number, "upstream")
            known = list(shape.upstreams)
            hint = did_you_mean(route.upstream, known) or (f"; there are {', '.join(known)}" if known else "")
            yield trail, f"there is no upstream {route.upstream!r}{hint}", (trail,)
            # Most likely this is the one that was meant: it is not reported as unused as well.
            used.update(name for name in known if repr(name) in hint)
    if shape.routes:
        leans_on: tuple[Trail, ...] = tuple(("routes", number, "upstream") for number in range(len(shape.routes)))
        for name in shape.upstreams:
            if name not in used:
                text = "no route uses this upstream: add a route, or delete it"
                yield (*_UPSTREAMS, name), text, (*leans_on, (*_UPSTREAMS, name, "url"))


def _route_paths(shape: ConfigurationShape) -> Iterator[Finding]:
    """A prefix that is taken off is there, and every route can be reached."""
    routes = shape.routes or ()
    for number, route in enumerate(routes):
        here: Trail = ("routes", number)
        prefix, path = route.strip_prefix, route.match.path or "/**"
        if prefix is not None and path != prefix and not path.startswith(f"{prefix}/"):
            trail = (*here, "strip_prefix")
            yield trail, f"{prefix!r} is not the beginning of the path {path!r}: they must agree", (trail, (*here, "match"))
    yield from _never_reached(routes)


def _never_reached(routes: tuple[RouteShape, ...]) -> Iterator[Finding]:
    """Each route that one before it leaves nothing. By host and path, only those are looked at that may take all of a path."""
    equal: dict[tuple[str | None, str], list[int]] = {}
    above: dict[tuple[str | None, str], list[int]] = {}
    for number, route in enumerate(routes):
        path, host = route.match.path or "/**", _lower(route.match.host)
        ways = [(equal, path), (above, path), *((above, path[:place]) for place, sign in enumerate(path) if sign == "/")]
        for earlier in merge(*(known.get((on, way), ()) for on in {None, host} for known, way in ways)):
            name = routes[earlier].name
            if name != route.name and _takes_methods_of(routes[earlier], route):
                text = f"this route is never reached: {name!r} before it takes all its requests; move it up, or delete it"
                trail: Trail = ("routes", number)
                yield trail, text, ((*trail, "match"), ("routes", earlier, "match"))
                break
        equal.setdefault((host, path), []).append(number)
        if path.endswith("/**") and "*" not in path[:-2]:
            above.setdefault((host, path.removesuffix("/**")), []).append(number)


def _takes_methods_of(earlier: RouteShape, later: RouteShape) -> bool:
    one, two = earlier.match.methods, later.match.methods
    return one is None or (two is not None and _upper(two) <= _upper(one))


def _lower(host: str | None) -> str | None:
    return None if host is None else host.lower()


def _upper(methods: tuple[str, ...]) -> set[str]:
    return {method.upper() for method in methods}


def _route_rules(shape: ConfigurationShape) -> Iterator[Finding]:
    """No status is judged twice, and the fingerprint's rule has a meaning."""
    for number, route in enumerate(shape.routes or ()):
        outcome, here = route.outcome, ("routes", number)
        statuses = Counter(status for kind in (outcome.release, outcome.unknown, outcome.complete) for status in set(kind))
        for place, status in enumerate(outcome.release):
            if 200 <= status < 300:
                text = (
                    f"{status} says that the upstream acted, and a released key would let it act again: 2xx may not be in release"
                )
                yield (*here, "outcome", "release", place), text, ()
        for status in sorted(status for status, count in statuses.items() if count > 1):
            yield (*here, "outcome"), f"{status} stands in two lists: a status has one meaning, keep it in one", ()
        for text in check_rule(fingerprint_rule(route.fingerprint)):
            yield (*here, "fingerprint"), text, ()


def _probes(shape: ConfigurationShape) -> Iterator[Finding]:
    """A probe is asked where it is described, and asks for the operation that it is meant to find."""
    for number, route in enumerate(shape.routes or ()):
        here: Trail = ("routes", number)
        probe, on_unknown, fingerprint = (*here, "probe"), (*here, "on_unknown"), (*here, "fingerprint")
        if route.probe is None:
            if route.on_unknown is OnUnknown.PROBE:
                text = 'needs `probe`, which says how: add it, such as probe: {get: "/bookings?ref={key}", found: "bookings[0]"}'
                yield on_unknown, text, (on_unknown, probe)
            continue
        if route.on_unknown is not OnUnknown.PROBE:
            yield probe, "is never asked: add `on_unknown: probe` to the route, or delete it", (on_unknown,)
        rule, compared = probe_rule(route.probe), fingerprint_rule(route.fingerprint)
        wrong = check_probe(rule)
        for setting, text in wrong:
            yield (*probe, *setting), text, ((*probe, *setting), (*probe, "get"), (*probe, "from_request"))
        if not wrong and not check_rule(compared):
            for setting, text in check_compared(rule, compared):
                yield (*probe, *setting), text, (probe, fingerprint)


def _keys_in_probes(shape: ConfigurationShape) -> Iterator[Finding]:
    """A probe that asks for the key asks an upstream that was told the key."""
    for number, route in enumerate(shape.routes or ()):
        if route.probe is None or "key" not in NAME.findall(route.probe.get) or route.stamp is not None:
            continue
        upstream = shape.upstreams.get(route.upstream)
        if upstream is None:
            continue
        profile, _ = choose(route.profile, upstream.profile, route.upstream, read_upstream_url(upstream.url).host)
        if (route.forward_key or upstream.forward_key or PROFILES[profile].forward_key) == "strip":
            text = (
                "asks for {key}, which the upstream never sees: it would find nothing, and where that absence is believed the "
                "write happens twice; write the key into the request with `stamp`, let it through with `forward_key: same`, or "
                "ask for a value of the body with `from_request`"
            )
            here: Trail = ("routes", number)
            settings = ("stamp", "forward_key", "upstream", "profile")
            trail = (*here, "probe", "get")
            yield trail, text, (trail, *((*here, setting) for setting in settings), (*_UPSTREAMS, route.upstream))


def _stamps(shape: ConfigurationShape) -> Iterator[Finding]:
    """A stamp has a place, and that is not where the caller's or the forwarded key stands."""
    for number, route in enumerate(shape.routes or ()):
        if route.stamp is None:
            continue
        here: Trail = ("routes", number)
        rule, upstream = stamp_rule(route.stamp), shape.upstreams.get(route.upstream)
        trail = (*here, "stamp", rule.place)
        for text in check_stamp(rule):
            yield trail, text, ()
        forward_key = route.forward_key or (upstream.forward_key if upstream else None) or ""
        key = (route.key.header if route.key else None) or KEY_HEADER
        if rule.place == "header" and rule.name.lower() in {key.lower(), forward_key.partition(":")[2].lower()}:
            text = f"{rule.name!r} is the field of the key itself, of which `forward_key` decides: choose another one"
            yield trail, text, ((*here, "key"), (*here, "forward_key"), (*here, "upstream"), _UPSTREAMS)


CHECKS: Final[tuple[Callable[[ConfigurationShape], Iterator[Finding]], ...]] = (
    _upstreams,
    _upstream_tls,
    _listeners,
    _secrets,
    _store,
    _route_names,
    _route_upstreams,
    _route_paths,
    _route_rules,
    _probes,
    _keys_in_probes,
    _stamps,
)
