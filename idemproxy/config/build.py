"""From a shape in which everything is said to the frozen `Settings` that the program runs with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from idemproxy.config import units, values
from idemproxy.config.settings import ListenerTls, Settings, StoreDurability, StoreSettings, StoreTls
from idemproxy.config.shape import (
    ConfigurationShape,
    FingerprintShape,
    ProbeShape,
    RouteShape,
    ScopeShape,
    StampShape,
    StoreShape,
    UpstreamShape,
)
from idemproxy.core.fingerprint import FingerprintRule
from idemproxy.core.key import KeyRule
from idemproxy.core.policy import REPLAY_DENIED, OutcomeRule, Policy, Route, Timeouts, Upstream, UpstreamTls, compile_path
from idemproxy.core.probe import ProbeRule
from idemproxy.core.scope import ScopeRule
from idemproxy.core.stamp import StampRule

T = TypeVar("T")


def build(
    shape: ConfigurationShape,
    profiles: Mapping[str, str],
    *,
    store_url: str,
    key_secret: bytes | None,
    admin_token: bytes | None,
    warnings: tuple[str, ...] = (),
) -> Settings:
    """The settings of a shape that `effective` has filled in; the secrets come apart, for they may lie in files."""
    return Settings(
        listen=values.read_address(shape.listen),
        admin=values.read_address(shape.admin.listen),
        store=store_settings(shape.store, store_url),
        upstreams={name: _upstream(name, said) for name, said in shape.upstreams.items()},
        routes=_routes(shape.routes or ()),
        profiles=profiles,
        scope=_scope(_told(shape.scope)),
        tls=None if shape.tls is None else ListenerTls(shape.tls.certificate_file, shape.tls.key_file),
        trusted_proxies=tuple(map(values.read_network, shape.trusted_proxies)),
        access_log=shape.access_log,
        log_format=shape.log_format,
        key_secret=key_secret,
        admin_token=admin_token,
        max_agent_memory=units.size(shape.max_agent_memory),
        memory_kept=sum(units.seconds(_told(said)) for said in (shape.defaults.retention, shape.defaults.expired_mark)),
        spool=Path(shape.spool.directory),
        workers=shape.workers,
        drain=units.seconds(shape.drain),
        warnings=warnings,
    )


def store_settings(said: StoreShape, url: str) -> StoreSettings:
    """A store as it is opened; `url` with its password, wherever that lies."""
    tls, durability = said.tls, said.durability
    return StoreSettings(
        url,
        said.prefix,
        tls=StoreTls() if tls is None else StoreTls(tls.ca_file, tls.certificate_file, tls.key_file),
        durability=StoreDurability()
        if durability is None
        else StoreDurability(durability.replicas, durability.aof, units.confirmation_seconds(durability.timeout)),
        accepted_risks=frozenset(said.accept_risk),
    )


def _upstream(name: str, said: UpstreamShape) -> Upstream:
    origin = values.read_upstream_url(said.url)
    limits = said.timeouts
    return Upstream(
        name,
        *origin,
        tls=upstream_tls(said),
        proxy=None if said.proxy is None else values.read_proxy_url(said.proxy),
        timeouts=Timeouts(*map(units.seconds, (limits.connect, limits.first_byte, limits.idle, limits.total))),
        pool_idle=units.seconds(said.pool_idle),
        max_connections=said.max_connections,
    )


def upstream_tls(said: UpstreamShape) -> UpstreamTls:
    """How TLS is spoken to an upstream, as the core has it."""
    tls = said.tls
    return UpstreamTls() if tls is None else UpstreamTls(tls.ca_file, tls.certificate_file, tls.key_file, tls.server_name)


def _routes(said: tuple[RouteShape, ...]) -> tuple[Route, ...]:
    """The routes; those with equal policies share one, for there may be thousands."""
    known: dict[Policy, Policy] = {}
    policies = (known.setdefault(policy, policy) for policy in map(_policy, said))
    return tuple(map(_route, said, policies))


def _route(said: RouteShape, policy: Policy) -> Route:
    match = said.match
    return Route(
        name=said.name,
        upstream=said.upstream,
        path=None if match.path in {None, "/**"} else compile_path(match.path),
        methods=None if match.methods is None else frozenset(map(values.read_method, match.methods)),
        host=None if match.host is None else values.read_match_host(match.host),
        strip_prefix=(said.strip_prefix or "").encode("ascii"),
        preserve_host=said.preserve_host,
        forwarded=said.forwarded,
        effect=said.effect,
        policy=policy,
    )


def _policy(said: RouteShape) -> Policy:
    key, outcome = _told(said.key), said.outcome
    return Policy(
        key=KeyRule(values.read_key_name(_told(key.header)), _told(key.mode), frozenset(_told(key.sources))),
        scope=_scope(_told(said.scope)),
        fingerprint=fingerprint_rule(said.fingerprint),
        outcome=OutcomeRule(*(frozenset(kind) for kind in (outcome.release, outcome.unknown, outcome.complete))),
        on_unknown=_told(said.on_unknown),
        probe=None if said.probe is None else probe_rule(said.probe),
        stamp=None if said.stamp is None else stamp_rule(said.stamp),
        on_expired=said.expired,
        forward_key=values.read_forward_key(_told(said.forward_key)),
        forward_workflow=said.forward_workflow,
        lease=units.seconds(_told(said.lease)),
        wait=units.seconds(_told(said.wait)),
        retention=units.seconds(_told(said.retention)),
        expired_mark=units.seconds(_told(said.expired_mark)),
        max_request_body=units.size(_told(said.max_request_body)),
        max_stored_body=units.size(_told(said.max_stored_body)),
        replay_denied=REPLAY_DENIED | frozenset(map(values.read_field_name, said.replay_denied)),
    )


def _scope(said: ScopeShape) -> ScopeRule:
    return ScopeRule(tuple(map(values.read_field_name, said.headers)))


def fingerprint_rule(said: FingerprintShape) -> FingerprintRule:
    """The rule of the core that a shape describes."""
    return FingerprintRule(said.mode, said.include, said.exclude, tuple(map(str.lower, said.headers)))


def probe_rule(said: ProbeShape) -> ProbeRule:
    """As `fingerprint_rule`."""
    return ProbeRule(
        get=said.get,
        found=said.found,
        absent=said.absent,
        absent_status=frozenset(said.absent_status),
        settle=units.seconds(said.settle),
        from_request=tuple(said.from_request.items()),
        answer_status=said.answer.status,
        answer_body=said.answer.body,
    )


def stamp_rule(said: StampShape) -> StampRule:
    """As `fingerprint_rule`."""
    [(place, name)] = said.places().items()
    return StampRule(place, name)


def _told(value: T | None) -> T:
    """A value that `effective` has filled in."""
    if value is None:
        raise LookupError("a value was not filled in before the settings were built")
    return value
