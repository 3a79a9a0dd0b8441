"""What a configuration means: defaults, layers, variables, routes that were not written, and the settings that come of it."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_network
from pathlib import Path

import pytest

from idemproxy.config.effective import LIMITS
from idemproxy.config.load import load
from idemproxy.config.settings import Address, Settings, StoreSettings
from idemproxy.config.units import seconds, size
from idemproxy.core.fingerprint import FingerprintRule
from idemproxy.core.key import KeyMode, KeyRule, KeySource
from idemproxy.core.policy import (
    REPLAY_DENIED,
    Effect,
    EgressProxy,
    Forwarded,
    ForwardKey,
    OnExpired,
    OnUnknown,
    OutcomeRule,
    Policy,
    Route,
    Timeouts,
    Upstream,
    compile_path,
)
from idemproxy.core.probe import ProbeRule
from idemproxy.core.scope import ScopeRule
from idemproxy.core.stamp import StampRule
from tests.config.conftest import Load

UPSTREAM = "upstreams: {payments: {url: 'http://127.0.0.1:9000'}}\n"


def test_one_flag_is_enough() -> None:
    """With an upstream alone everything has its default, and the core's policies are what a route gets."""
    settings = load({"upstream": ["https://api.example.com"]}, {}).settings

    assert (
        Settings(
            listen=Address("127.0.0.1", 8080),
            admin=Address("127.0.0.1", 8081),
            store=StoreSettings("sqlite:///idemproxy.db", "idemproxy:"),
            upstreams={"upstream": Upstream("upstream", "https", "api.example.com", 443)},
            routes=(Route("upstream", "upstream", policy=Policy()),),
            profiles={"upstream": "strict, the default"},
            trusted_proxies=(ip_network("127.0.0.0/8"), ip_network("::1/128")),
        )
        == settings
    )


def test_the_limits_that_are_printed_are_those_of_the_core() -> None:
    """The texts of the defaults and the numbers of the core cannot drift apart."""
    policy = Policy()

    assert {name: getattr(policy, name) for name in LIMITS} == {
        name: size(text) if name.startswith("max_") else seconds(text) for name, text in LIMITS.items()
    }


def test_several_upstreams_without_routes_are_reached_under_their_names() -> None:
    """Each upstream gets a route under /name/, with that prefix taken off."""
    settings = load({"upstream": ["one=http://127.0.0.1:1/a/", "two=http://[::1]:2"]}, {}).settings

    assert {
        "one": Upstream("one", "http", "127.0.0.1", 1, b"/a"),
        "two": Upstream("two", "http", "::1", 2),
    } == settings.upstreams
    assert (
        Route("one", "one", path=compile_path("/one/**"), strip_prefix=b"/one"),
        Route("two", "two", path=compile_path("/two/**"), strip_prefix=b"/two"),
    ) == settings.routes


def test_everything_that_is_written_arrives(loaded: Load) -> None:
    """Each key of a route and of an upstream becomes the value of the core that it names."""
    text = """\
listen: "[::1]:0"
admin: {listen: "127.0.0.1:0"}
store: {url: "redis://me:pw@127.0.0.1:6379/1", prefix: "p:"}
spool: {directory: kept/here}
workers: 4
max_agent_memory: 2KiB
key_secret: secret
access_log: off
log_format: json
drain: 1m
upstreams:
  api:
    url: http://127.0.0.1:9000/base/
    proxy: http://me:p%40ss@proxy.example:3128
    timeouts: {connect: 1s, first_byte: 2s, idle: 3s, total: 4s}
    pool_idle: 0s
    max_connections: 7
trusted_proxies: [10.0.0.0/8, "::1"]
defaults: {retention: 1h, wait: 2s}
routes:
  - name: all
    match: {path: /x/**, methods: [post, PUT], host: API.example}
    upstream: api
    strip_prefix: /x
    preserve_host: true
    forwarded: x-forwarded
    effect: read
    key: {from: [workflow], header: X-Key, mode: required}
    scope: {headers: [X-Tenant, x-user]}
    fingerprint: {mode: semantic, include: [/a], exclude: [/a/b], headers: [X-Lang]}
    outcome: {release: [503], unknown: [500], complete: [409]}
    on_unknown: probe
    probe:
      get: "/seats?ref={key}&row={row}"
      found: seats[0]
      absent: "!seats"
      absent_status: [404, 410]
      settle: 1m
      from_request: {row: a.row}
      answer: {status: 201, body: "{id: seats[0].id}"}
    stamp: {json: /a/ref}
    expired: renew
    forward_key: rename:X-Their-Key
    forward_workflow: true
    replay_denied: [X-Served-By]
    lease: 3s
    retention: 2h
    expired_mark: 0s
    max_request_body: 1KiB
    max_stored_body: 0B
"""
    policy = Policy(
        key=KeyRule(b"x-key", KeyMode.REQUIRED, frozenset({KeySource.WORKFLOW})),
        scope=ScopeRule((b"x-tenant", b"x-user")),
        fingerprint=FingerprintRule("semantic", ("/a",), ("/a/b",), ("x-lang",)),
        outcome=OutcomeRule(frozenset({503}), frozenset({500}), frozenset({409})),
        on_unknown=OnUnknown.PROBE,
        probe=ProbeRule(
            get="/seats?ref={key}&row={row}",
            found="seats[0]",
            absent="!seats",
            absent_status=frozenset({404, 410}),
            settle=60.0,
            from_request=(("row", "a.row"),),
            answer_status=201,
            answer_body="{id: seats[0].id}",
        ),
        stamp=StampRule("json", "/a/ref"),
        on_expired=OnExpired.RENEW,
        forward_key=b"x-their-key",
        forward_workflow=True,
        lease=3.0,
        wait=2.0,
        retention=7_200.0,
        expired_mark=0.0,
        max_request_body=1_024,
        max_stored_body=0,
        replay_denied=REPLAY_DENIED | {b"x-served-by"},
    )
    methods = frozenset({"POST", "PUT"})
    upstream = Upstream(
        "api",
        "http",
        "127.0.0.1",
        9000,
        b"/base",
        proxy=EgressProxy("proxy.example", 3128, b"Basic " + b64encode(b"me:p@ss")),
        timeouts=Timeouts(1.0, 2.0, 3.0, 4.0),
        pool_idle=0.0,
        max_connections=7,
    )
    route = Route(
        "all",
        "api",
        compile_path("/x/**"),
        methods,
        b"api.example",
        b"/x",
        preserve_host=True,
        forwarded=Forwarded.X_FORWARDED,
        effect=Effect.READ,
        policy=policy,
    )

    assert (
        Settings(
            listen=Address("::1", 0),
            admin=Address("127.0.0.1", 0),
            store=StoreSettings("redis://me:pw@127.0.0.1:6379/1", "p:"),
            upstreams={"api": upstream},
            routes=(route,),
            profiles={"all": "strict, the default"},
            trusted_proxies=(ip_network("10.0.0.0/8"), ip_network("::1/128")),
            access_log=False,
            log_format="json",
            key_secret=b"secret",
            max_agent_memory=2_048,
            memory_kept=3_600.0 + 7 * 86_400.0,
            spool=Path("kept/here"),
            workers=4,
            drain=60.0,
        )
        == loaded(text).settings
    )


LAYERS = "listen: 127.0.0.1:1\nadmin: {listen: '127.0.0.1:2'}\naccess_log: true\n" + UPSTREAM


@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        ({}, {}, 1),
        ({}, {"IDEMPROXY_LISTEN": "127.0.0.1:3"}, 3),
        ({}, {"IDEMPROXY_LISTEN": ""}, 1),
        ({"listen": ["127.0.0.1:4"]}, {}, 4),
        ({"listen": ["127.0.0.1:4"]}, {"IDEMPROXY_LISTEN": "127.0.0.1:3"}, 4),
    ],
)
def test_flags_come_before_the_environment_and_that_before_the_file(
    flags: dict[str, list[str]], environ: dict[str, str], expected: int, loaded: Load
) -> None:
    """Of several layers the nearest to the caller counts; an empty variable is no layer."""
    assert expected == loaded(LAYERS, environ, **flags).settings.listen.port


@pytest.mark.parametrize("layer", ["flags", "environ"])
def test_each_flag_has_its_variable(layer: str, loaded: Load) -> None:
    """What a flag can say, the environment can say."""
    said = {
        "listen": "127.0.0.1:11",
        "admin_listen": "127.0.0.1:12",
        "store": "redis://127.0.0.1",
        "spool": "/var/lib/spool",
        "workers": "2",
        "access_log": "off",
        "log_format": "json",
        "upstream": "payments=http://127.0.0.1:13",
    }
    flags = {name: [value] for name, value in said.items()} if layer == "flags" else {}
    environ = {f"IDEMPROXY_{name.upper()}": value for name, value in said.items()} if layer == "environ" else {}

    settings = loaded(LAYERS + "store: {url_file: absent}\n", environ, **flags).settings

    assert (11, 12, "redis://127.0.0.1", Path("/var/lib/spool"), 2, False, "json", 13) == (
        settings.listen.port,
        settings.admin.port,
        settings.store.url,
        settings.spool,
        settings.workers,
        settings.access_log,
        settings.log_format,
        settings.upstreams["payments"].port,
    )


def test_the_environment_names_the_file_and_several_upstreams(tmp_path: Path) -> None:
    """`IDEMPROXY_CONFIG` is read like the flag, and white space parts the upstreams."""
    (tmp_path / "a.yaml").write_text("drain: 1s\n")
    environ = {"IDEMPROXY_CONFIG": str(tmp_path / "a.yaml"), "IDEMPROXY_UPSTREAM": "a=http://127.0.0.1:1 b=http://127.0.0.1:2"}

    settings = load({}, environ).settings

    assert (1.0, ["a", "b"]) == (settings.drain, list(settings.upstreams))


def test_a_named_upstream_keeps_what_the_file_says_of_it(loaded: Load) -> None:
    """A flag replaces the URL alone: the same file serves against another server."""
    text = "upstreams: {payments: {url: 'https://api.stripe.com', pool_idle: 9s}}\n"

    upstream = loaded(text, upstream=["payments=http://127.0.0.1:5"]).settings.upstreams["payments"]

    assert ("127.0.0.1", 5, 9.0) == (upstream.host, upstream.port, upstream.pool_idle)


@pytest.mark.parametrize(
    ("written", "environ", "expected"),
    [
        ("${SECRET}", {"SECRET": "a$b"}, b"a$b"),
        ("x-${SECRET}-${SECRET}", {"SECRET": "s"}, b"x-s-s"),
        ("${SECRET:-other}", {}, b"other"),
        ("${SECRET:-other}", {"SECRET": ""}, b"other"),
        ("${SECRET:-other}", {"SECRET": "s"}, b"s"),
        ("$${SECRET}", {"SECRET": "s"}, b"${SECRET}"),
        ("cost $5", {}, b"cost $5"),
        ("${SECRET}", {"SECRET": "12"}, b"12"),
    ],
)
def test_variables_are_replaced_in_text(written: str, environ: dict[str, str], expected: bytes, loaded: Load) -> None:
    """`${NAME}`, `${NAME:-default}` and `$$` mean what they mean in a shell; what comes in is not read as YAML again."""
    assert expected == loaded(f"key_secret: {written}\n" + UPSTREAM, environ).settings.key_secret


def test_variables_stand_for_words_and_numbers_too(loaded: Load) -> None:
    """A value that is not text in the end may come from the environment as well."""
    text = "access_log: ${LOG}\nupstreams: {a: {url: 'http://127.0.0.1:9', max_connections: '${MANY}'}}\n"

    settings = loaded(text, {"LOG": "false", "MANY": "12"}).settings

    assert (False, 12) == (settings.access_log, settings.upstreams["a"].max_connections)


def test_secrets_come_from_files_beside_the_configuration(tmp_path: Path, loaded: Load) -> None:
    """A relative path starts at the file's directory, wherever the program was started; a line's end is not part of a secret."""
    (tmp_path / "secret").write_text("s3cret\n")
    (tmp_path / "url").write_text("redis://:pw@127.0.0.1:6379/0\n")

    settings = loaded("key_secret_file: secret\nstore: {url_file: url}\n" + UPSTREAM).settings

    assert (b"s3cret", "redis://:pw@127.0.0.1:6379/0") == (settings.key_secret, settings.store.url)


def test_the_admin_token_is_looked_for_where_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: Load) -> None:
    """A file says it beside itself, a flag and a variable from the current directory, and nobody shows it."""
    (tmp_path / "token").write_text("beside-the-configuration\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "token").write_text("in-the-current-directory\n")
    monkeypatch.chdir(tmp_path / "here")
    text = "admin: {token_file: token}\n" + UPSTREAM

    told = [
        loaded(text).settings,
        loaded(UPSTREAM, admin_token_file=["token"]).settings,
        loaded(text, {"IDEMPROXY_ADMIN_TOKEN_FILE": "token"}).settings,
    ]

    expected = [b"beside-the-configuration", b"in-the-current-directory", b"in-the-current-directory"]
    assert expected == [settings.admin_token for settings in told]
    assert "directory" not in repr(told)


def test_an_admin_listener_for_everyone_needs_no_token(loaded: Load) -> None:
    """Metrics and health may be read from beyond this machine without one; the records are then not served."""
    settings = loaded("admin: {listen: '0.0.0.0:8081'}\n" + UPSTREAM).settings

    assert ("0.0.0.0", None) == (settings.admin.host, settings.admin_token)  # noqa: S104


@pytest.mark.parametrize("scope", ["scope: shared\n", "scope: {headers: [x-tenant]}\n"])
def test_a_listener_for_everyone_is_fine_once_the_scope_is_said(scope: str, loaded: Load) -> None:
    """Beyond loopback either answer will do, as long as it was given."""
    assert "0.0.0.0" == loaded("listen: 0.0.0.0:8080\n" + scope + UPSTREAM).settings.listen.host  # noqa: S104


@pytest.mark.parametrize(
    "routes",
    [
        [("all", "methods: [POST]"), ("late", "methods: [GET]")],
        [("one", "path: /v1/*"), ("all", "path: /v1/**")],
        [("host", "host: a.example"), ("all", "path: /**")],
        [("deep", "path: /a/*/**"), ("flat", "path: /a/b/c")],
    ],
)
def test_a_route_that_some_request_reaches_is_not_refused(routes: list[tuple[str, str]], loaded: Load) -> None:
    """Only a route that surely takes nothing is an error."""
    lines = "".join(f"- {{name: {name}, match: {{{match}}}, upstream: payments}}\n" for name, match in routes)

    assert [name for name, _ in routes] == [route.name for route in loaded(UPSTREAM + "routes:\n" + lines).settings.routes]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("key: required", {KeySource.HEADER, KeySource.WORKFLOW}),
        ("key: {mode: required}", {KeySource.HEADER, KeySource.WORKFLOW}),
        ("key: {from: [header]}", {KeySource.HEADER}),
        ("key: {from: [workflow]}", {KeySource.WORKFLOW}),
        ("key: {from: [workflow, header]}", {KeySource.HEADER, KeySource.WORKFLOW}),
    ],
)
def test_the_sources_of_keys_are_read_as_the_core_has_them(said: str, expected: set[KeySource], loaded: Load) -> None:
    """A route takes keys from both, or from what it names; the order in which it names them has no meaning."""
    [route] = loaded(f"{UPSTREAM}routes:\n- {{name: one, upstream: payments, {said}}}\n").settings.routes

    assert expected == route.policy.key.sources


def test_keys_are_derived_where_a_route_says_so(loaded: Load) -> None:
    """In a word or in a mapping."""
    route = f"{UPSTREAM}routes:\n- {{name: one, upstream: payments, %s}}\n"

    assert [KeyMode.DERIVE] == [each.policy.key.mode for each in loaded(route % "key: derive").settings.routes]
    assert [KeyMode.DERIVE] == [each.policy.key.mode for each in loaded(route % "key: {mode: derive}").settings.routes]


def test_forward_key_is_read_as_the_core_has_it(loaded: Load) -> None:
    """The route's word counts before the upstream's."""
    text = "upstreams: {a: {url: 'http://127.0.0.1:9', forward_key: same}}\nroutes:\n"
    text += "- {name: one, match: {path: /1}, upstream: a}\n- {name: two, upstream: a, forward_key: strip}\n"

    assert [ForwardKey.SAME, ForwardKey.STRIP] == [route.policy.forward_key for route in loaded(text).settings.routes]
