"""What is wrong with a file is said with its line, its path and what to do, all of it at once."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from idemproxy.config.problem import either
from idemproxy.config.shape import ConfigurationShape
from idemproxy.config.values import STORE_SCHEMES
from tests.config.conftest import Complaints

UPSTREAM = "upstreams: {payments: {url: 'http://127.0.0.1:9000'}}\n"
ROUTE = UPSTREAM + "routes:\n- {name: one, upstream: payments, %s}\n"
IN_ROUTE = "idemproxy.yaml:3: routes[0]."
BEYOND = (
    "0.0.0.0:8080 is reached from beyond this machine, and nothing says whose keys are whose: "
    "write `scope: {headers: [x-tenant]}`, with a field that tells callers apart, or `scope: shared`, if they may share keys, "
    "into the file that --config names"
)
NO_UPSTREAM_NAME = "is no name of an upstream: use lower-case letters, digits, _ and -, and begin with a letter or a digit"

# The text of a file, and every complaint about it.
WRONG: dict[str, tuple[str, list[str]]] = {
    "an unknown key": (
        UPSTREAM + "stor: {url: 'memory://'}\n",
        ["idemproxy.yaml:2: stor: unknown key (did you mean 'store'?)"],
    ),
    "an unknown key that resembles none": (
        UPSTREAM + "admin: {zzz: 1}\n",
        ["idemproxy.yaml:2: admin.zzz: unknown key; known here: listen, token_file"],
    ),
    "an unknown key deep inside": (
        "upstreams:\n  payments:\n    url: http://127.0.0.1:9000\n    timeouts:\n      first_bite: 5s\n",
        ["idemproxy.yaml:5: upstreams.payments.timeouts.first_bite: unknown key (did you mean 'first_byte'?)"],
    ),
    "a wrong unit": (
        UPSTREAM + "drain: 30sec\n",
        ["idemproxy.yaml:2: drain: '30sec' is no duration: write a number and one of ms, s, m, h, d (did you mean '30s'?)"],
    ),
    "a number without a unit": (
        UPSTREAM + "drain: 30\n",
        ["idemproxy.yaml:2: drain: 30 has no unit: write 30s, or another of ms, s, m, h, d"],
    ),
    "a size in the unit of a duration": (
        UPSTREAM + "defaults:\n  max_request_body: 10s\n",
        ["idemproxy.yaml:3: defaults.max_request_body: '10s' is no size: write a number and one of B, KiB, MiB, GiB, KB, MB, GB"],
    ),
    "a lease that cannot be renewed in time": (
        UPSTREAM + "defaults: {lease: 500ms}\n",
        ["idemproxy.yaml:2: defaults.lease: '500ms' is too short: a lease is renewed every third of it, so at least 3s"],
    ),
    "a timeout of nothing": (
        "upstreams: {payments: {url: 'http://127.0.0.1:9000', timeouts: {idle: 0s}}}\n",
        ["idemproxy.yaml:1: upstreams.payments.timeouts.idle: '0s' leaves no time at all: write more than zero"],
    ),
    "two routes with one name": (
        UPSTREAM + "routes:\n- {name: one, match: {path: /a}, upstream: payments}\n- {name: one, upstream: payments}\n",
        ["idemproxy.yaml:4: routes[1].name: routes[0] has the name 'one' too: give each route a name of its own"],
    ),
    "an upstream that is not there": (
        UPSTREAM + "routes:\n- {name: one, upstream: payment}\n",
        ["idemproxy.yaml:3: routes[0].upstream: there is no upstream 'payment' (did you mean 'payments'?)"],
    ),
    "an upstream that no route uses": (
        UPSTREAM.replace("}}", "},\n  spare: {url: 'http://127.0.0.1:9001'}}") + "routes:\n- {name: one, upstream: payments}\n",
        ["idemproxy.yaml:2: upstreams.spare: no route uses this upstream: add a route, or delete it"],
    ),
    "two stars in the middle": (
        ROUTE % "match: {path: /a/**/b}",
        [f"{IN_ROUTE}match.path: in the path '/a/**/b', `**` may stand only at the end, after a slash"],
    ),
    "a path with a query": (
        ROUTE % "match: {path: '/a?b'}",
        [
            (
                f"{IN_ROUTE}match.path: a path has no query, no fragment, and only characters that stand in a URL: "
                "percent-encode the others"
            )
        ],
    ),
    "a prefix that is not in the path": (
        ROUTE % "match: {path: /airlines/**}, strip_prefix: /airline",
        [f"{IN_ROUTE}strip_prefix: '/airline' is not the beginning of the path '/airlines/**': they must agree"],
    ),
    "a prefix with a slash at its end": (
        ROUTE % "match: {path: /a/**}, strip_prefix: /a/",
        [f"{IN_ROUTE}strip_prefix: '/a/' is no prefix: begin it with a slash, end it without one, and use no star"],
    ),
    "a route that is never reached": (
        UPSTREAM + "routes:\n- {name: all, match: {path: /v1/**}, upstream: payments}\n"
        "- {name: late, match: {path: /v1/charges, methods: [POST]}, upstream: payments}\n",
        [
            (
                "idemproxy.yaml:4: routes[1]: this route is never reached: 'all' before it takes all its requests; "
                "move it up, or delete it"
            )
        ],
    ),
    "an empty list of routes": (
        UPSTREAM + "routes: []\n",
        ["idemproxy.yaml:2: routes: is an empty list: add a route, or delete it to reach every upstream"],
    ),
    "a route without a name": (
        UPSTREAM + "routes:\n- upstream: payments\n",
        ["idemproxy.yaml:3: routes[0].name: is missing: add it"],
    ),
    "a status in two lists": (
        ROUTE % "outcome: {release: [429, 503], complete: [503]}",
        [f"{IN_ROUTE}outcome: 503 stands in two lists: a status has one meaning, keep it in one"],
    ),
    "a status that is none": (
        ROUTE % "outcome: {release: [42]}",
        [f"{IN_ROUTE}outcome.release[0]: 42 is out of range: at least 100"],
    ),
    "a policy that is none": (
        ROUTE % "on_unknown: hodl",
        [f"{IN_ROUTE}on_unknown: must be hold, retry or probe (did you mean 'hold'?)"],
    ),
    "a profile that is none": (
        ROUTE % "profile: stripes",
        [f"{IN_ROUTE}profile: must be strict, ietf, stripe, acp or native (did you mean 'stripe'?)"],
    ),
    "a key mode that is none": (
        ROUTE % "key: requried",
        [
            (
                f"{IN_ROUTE}key: must be required, optional, derive, or a mapping with from, header and mode "
                "(did you mean 'required'?)"
            )
        ],
    ),
    "a key header that is none": (
        ROUTE % "key: {header: 'Idempotency Key'}",
        [
            (
                f"{IN_ROUTE}key.header: 'Idempotency Key' is not the name of a header field: letters, digits and hyphens, "
                "such as X-Tenant"
            )
        ],
    ),
    "a key under a name that HTTP needs": (
        ROUTE % "forward_key: rename:Content-Length",
        [f"{IN_ROUTE}forward_key: 'Content-Length' has a meaning of its own in every message: choose another field for the key"],
    ),
    "a scope that is none": (
        ROUTE % "scope: sharde",
        [f"{IN_ROUTE}scope: must be shared, or a mapping such as {{headers: [x-tenant]}} (did you mean 'shared'?)"],
    ),
    "a scope of no header": (
        ROUTE % "scope: {headers: []}",
        [f"{IN_ROUTE}scope: names no header field: write `scope: shared` when all callers share their keys"],
    ),
    "a fingerprint that contradicts itself": (
        ROUTE % "fingerprint: {mode: raw, exclude: [/at]}",
        [f"{IN_ROUTE}fingerprint: mode raw compares the bytes of the body, so include and exclude have no meaning with it"],
    ),
    "an upstream without a scheme": (
        "upstreams: {payments: {url: api.example.com}}\n",
        [
            (
                "idemproxy.yaml:1: upstreams.payments.url: has no scheme: write https:// before it, "
                "or http:// where the connection is private"
            )
        ],
    ),
    "an upstream with credentials, which are not repeated": (
        "upstreams: {payments: {url: 'https://me:hunter2@api.example.com'}}\n",
        [
            (
                "idemproxy.yaml:1: upstreams.payments.url: holds credentials: leave them out; "
                "what the client sends is what the upstream gets"
            )
        ],
    ),
    "an upstream with a query": (
        "upstreams: {payments: {url: 'https://api.example.com/?a=1'}}\n",
        ["idemproxy.yaml:1: upstreams.payments.url: holds a query or a fragment: end it with the path"],
    ),
    "an upstream with an impossible name": (
        "upstreams: {My API: {url: 'https://api.example.com'}}\n",
        [f"idemproxy.yaml:1: upstreams.My API: 'My API' {NO_UPSTREAM_NAME}"],
    ),
    "an upstream under the name that metrics give to no route": (
        "upstreams: {'-': {url: 'https://api.example.com'}}\n",
        [f"idemproxy.yaml:1: upstreams.-: '-' {NO_UPSTREAM_NAME}"],
    ),
    "an upstream that is the proxy": (
        "upstreams: {payments: {url: 'http://localhost:8080'}}\n",
        [
            (
                "idemproxy.yaml:1: upstreams.payments.url: is an address that idemproxy itself listens on: "
                "requests would go in a circle"
            )
        ],
    ),
    "workers without a store that they share": (
        UPSTREAM + "workers: 2\nstore: {url: 'memory://'}\n",
        [
            (
                "idemproxy.yaml:2: workers: need a store that they share: memory:// is one process's own, so that each worker "
                "would know other operations"
            )
        ],
    ),
    "no worker at all": (UPSTREAM + "workers: 0\n", ["idemproxy.yaml:2: workers: 0 is out of range: at least 1"]),
    "a format of logs that is none": (
        UPSTREAM + "log_format: jsno\n",
        ["idemproxy.yaml:2: log_format: must be text or json (did you mean 'json'?)"],
    ),
    "a store of an unknown kind": (
        UPSTREAM + "store: {url: 'reddis://127.0.0.1'}\n",
        [
            (
                "idemproxy.yaml:2: store.url: has the scheme 'reddis', and there are only sqlite, redis, rediss, "
                "redis+sentinel, rediss+sentinel, redis+cluster, rediss+cluster, unix, memory "
                "(did you mean 'redis'?)"
            )
        ],
    ),
    "TLS to a store that speaks none": (
        UPSTREAM + "store: {url: 'redis://127.0.0.1', tls: {}}\n",
        ["idemproxy.yaml:2: store.tls: is never used: the store's URL has to begin with rediss"],
    ),
    "replicas of a file": (
        UPSTREAM + "store: {url: 'sqlite:///a.db', durability: {replicas: 1}}\n",
        ["idemproxy.yaml:2: store.durability: is for Redis: a sqlite store has no replicas; delete it"],
    ),
    "a confirmation that takes too long": (
        UPSTREAM + "store: {url: 'redis://127.0.0.1', durability: {timeout: 2s}}\n",
        [
            (
                "idemproxy.yaml:2: store.durability.timeout: '2s' is too long: an operation of the store is given up after 2s, "
                "so at most 1s"
            )
        ],
    ),
    "a store with two slashes": (
        UPSTREAM + "store: {url: 'sqlite://idemproxy.db'}\n",
        [
            (
                "idemproxy.yaml:2: store.url: names no file: write sqlite:///file.db from the current directory, "
                "or sqlite:////absolute/file.db"
            )
        ],
    ),
    "two listeners on one port": (
        UPSTREAM + "admin: {listen: 'localhost:8080'}\n",
        [
            (
                "idemproxy.yaml:2: admin.listen: the admin listener (localhost:8080) would meet `listen` (127.0.0.1:8080): "
                "give one of them another port"
            )
        ],
    ),
    "a listener for everyone without a scope": (
        "listen: 0.0.0.0:8080\n" + UPSTREAM,
        [f"idemproxy.yaml:1: listen: {BEYOND}"],
    ),
    "a listener without a host": (
        "listen: :8080\n" + UPSTREAM,
        ["idemproxy.yaml:1: listen: ':8080' is no address: write host:port, such as 127.0.0.1:8080 or \"[::1]:8080\""],
    ),
    "a secret that is said twice": (
        "key_secret: a\nkey_secret_file: b\n" + UPSTREAM,
        [
            "idemproxy.yaml:2: key_secret_file: the file cannot be read: No such file or directory",
            "idemproxy.yaml:2: key_secret_file: stands beside key_secret: keep one of the two",
        ],
    ),
    "a URL in the place of an upstream, which is not repeated": (
        "upstreams: {payments: 'https://me:hunter2@api.example.com'}\n",
        ["idemproxy.yaml:1: upstreams.payments: must be a mapping: write {url: ...} around the URL"],
    ),
    "a setting of `defaults` at the top": (
        UPSTREAM + "retention: 3d\n",
        ["idemproxy.yaml:2: retention: unknown key (did you mean 'defaults.retention'?)"],
    ),
    "one value in the place of a list": (
        ROUTE % "match: {methods: POST}, scope: {headers: x-tenant}, outcome: {release: 503}",
        [
            f"{IN_ROUTE}match.methods: must be a list: write [POST]",
            f"{IN_ROUTE}scope.headers: must be a list: write [x-tenant]",
            f"{IN_ROUTE}outcome.release: must be a list: write [503]",
        ],
    ),
    "text in the place of a list of mappings": (
        UPSTREAM + "routes: all\n",
        ["idemproxy.yaml:2: routes: must be a list"],
    ),
    "a key that stands twice": (
        UPSTREAM + "drain: 30s\ndrain: 20s\n",
        ["idemproxy.yaml:3: drain: this key stands here twice, first in line 2: keep one"],
    ),
    "a key without a value": (
        UPSTREAM + "defaults:\n",
        ["idemproxy.yaml:2: defaults: is empty: give it a value, or delete the line"],
    ),
    "values of the wrong type": (
        UPSTREAM + "access_log: perhaps\nadmin: 1\nroutes: {}\nkey_secret: 12\n",
        [
            "idemproxy.yaml:2: access_log: must be true or false",
            "idemproxy.yaml:3: admin: must be a mapping",
            "idemproxy.yaml:4: routes: must be a list",
            "idemproxy.yaml:5: key_secret: must be text: put it in quotes",
        ],
    ),
    "a variable that is not set": (
        "upstreams:\n  payments:\n    url: ${PAYMENTS_URL}\n",
        [
            (
                "idemproxy.yaml:3: upstreams.payments.url: the environment variable PAYMENTS_URL is not set: "
                "set it, or write ${PAYMENTS_URL:-default}"
            )
        ],
    ),
    "a variable without a name": (
        "upstreams: {payments: {url: '${}'}}\n",
        [
            (
                "idemproxy.yaml:1: upstreams.payments.url: '${}' names no variable: "
                "write ${NAME}, ${NAME:-default}, or $$ for a dollar sign"
            )
        ],
    ),
    "a variable without braces, beside what may be a secret": (
        UPSTREAM + "key_secret: hunter$SECRET123\n",
        [
            (
                "idemproxy.yaml:2: key_secret: a `$` before a name stands without braces: "
                "write ${NAME} for a variable, or $$ for a dollar sign"
            )
        ],
    ),
    "a key that is missing beside what is wrong in every item of a list": (
        ROUTE % "outcome: {release: [1, 2, 3]}, on_unknown: probe, probe: {found: a}",
        [
            *(f"{IN_ROUTE}outcome.release[{place}]: {place + 1} is out of range: at least 100" for place in range(3)),
            f"{IN_ROUTE}probe.get: is missing: add it",
        ],
    ),
    "an alias that contains itself": (
        UPSTREAM + "routes: &all [*all]\n",
        ["idemproxy.yaml:2: routes[0]: this alias contains itself"],
    ),
    "a tag": (
        UPSTREAM + "drain: !soon 30s\n",
        ["idemproxy.yaml:2: drain: the tag !soon has no meaning here: write the value without it"],
    ),
    "no YAML": (
        UPSTREAM + "routes: [\n",
        ["idemproxy.yaml:3: this is not YAML: while parsing a flow node, expected the node content, but found '<stream end>'"],
    ),
    "a variable within braces": (
        "upstreams: {payments: {url: ${URL}}}\n",
        [
            (
                "idemproxy.yaml:1: this is not YAML: while parsing a flow mapping, expected ',' or '}', but got '{'; "
                "put text with ${...} in quotes"
            )
        ],
    ),
    "a character that YAML forbids": (
        "# one\n# \x07\n",
        ["idemproxy.yaml:2: this is not YAML: the character 7 is not allowed"],
    ),
    "an empty file": ("# nothing\n", ["idemproxy.yaml:1: the file is empty: describe at least one upstream under `upstreams`"]),
    "no mapping": (
        "\n- upstreams\n",
        ["idemproxy.yaml:2: the file must be a mapping with keys such as `upstreams` and `routes`"],
    ),
    "no upstream": (
        "drain: 1s\n",
        ["idemproxy.yaml:1: upstreams: there is no upstream: give --upstream URL, or describe one under `upstreams` in a file"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_each_problem_has_its_line_its_path_and_a_way_out(text: str, expected: list[str], complaints: Complaints) -> None:
    """A wrong file is reported exactly so, and with nothing else."""
    assert expected == complaints(text)


def test_an_admin_listener_that_nobody_spoke_of_is_named(complaints: Complaints) -> None:
    """Where the admin listener was not spoken of, what is told of it names it."""
    meet = "the admin listener (127.0.0.1:8081) would meet `listen` (127.0.0.1:8081): give one of them another port"

    assert [f"idemproxy.yaml:1: admin.listen: {meet}"] == complaints(UPSTREAM, listen=["127.0.0.1:8081"])


def test_all_problems_are_reported_at_once(complaints: Complaints) -> None:
    """No problem hides another: neither in one value, nor in one route, nor between shape, relations, flags and variables."""
    text = """\
listen: 0.0.0.0:8080
stor: {url: "memory://"}
drain: 30
key_secret: ${SECRET}
upstreams:
  payments: {url: "http://127.0.0.1:9000", timeout: 5s}
  spare: {url: "http://127.0.0.1:9001"}
  broken:
routes:
  - {name: one, match: {path: /a/**/b}, upstream: payment, key: requierd, outcome: {release: [503], unknown: [503]}}
  - {name: one, match: {path: /c}, upstream: payments, lease: 1s}
  - {name: two, match: {path: /d}, upstream: broken, strip_prefix: /e}
"""

    reported = complaints(text, {"IDEMPROXY_ACCESS_LOG": "perhaps"}, store=["reddis://"])

    assert [
        f"--store: has the scheme 'reddis', and there are only {', '.join(STORE_SCHEMES)} (did you mean 'redis'?)",
        "IDEMPROXY_ACCESS_LOG: must be true or false",
        f"idemproxy.yaml:1: listen: {BEYOND}",
        "idemproxy.yaml:2: stor: unknown key (did you mean 'store'?)",
        "idemproxy.yaml:3: drain: 30 has no unit: write 30s, or another of ms, s, m, h, d",
        "idemproxy.yaml:4: key_secret: the environment variable SECRET is not set: set it, or write ${SECRET:-default}",
        "idemproxy.yaml:6: upstreams.payments.timeout: unknown key (did you mean 'timeouts'?)",
        "idemproxy.yaml:7: upstreams.spare: no route uses this upstream: add a route, or delete it",
        "idemproxy.yaml:8: upstreams.broken: is empty: give it a value, or delete the line",
        "idemproxy.yaml:10: routes[0].match.path: in the path '/a/**/b', `**` may stand only at the end, after a slash",
        (
            "idemproxy.yaml:10: routes[0].key: must be required, optional, derive, or a mapping with from, header and mode "
            "(did you mean 'required'?)"
        ),
        "idemproxy.yaml:10: routes[0].upstream: there is no upstream 'payment' (did you mean 'payments'?)",
        "idemproxy.yaml:10: routes[0].outcome: 503 stands in two lists: a status has one meaning, keep it in one",
        "idemproxy.yaml:11: routes[1].lease: '1s' is too short: a lease is renewed every third of it, so at least 3s",
        "idemproxy.yaml:11: routes[1].name: routes[0] has the name 'one' too: give each route a name of its own",
        "idemproxy.yaml:12: routes[2].strip_prefix: '/e' is not the beginning of the path '/d': they must agree",
    ] == reported


def _required() -> list[tuple[type[BaseModel], str]]:
    """Every key of the shape that must be there, with the part that it belongs to."""
    found: list[tuple[type[BaseModel], str]] = []
    parts: list[type[BaseModel]] = [ConfigurationShape]
    for part in parts:
        found += [(part, field.alias or name) for name, field in part.model_fields.items() if field.is_required()]
        parts += [inner for inner in map(_part, part.model_fields.values()) if inner and inner not in parts]
    return found


def _part(field: FieldInfo) -> type[BaseModel] | None:
    """The part of a configuration that a field holds, if it holds one, or several."""
    waiting = [field.annotation]
    while waiting:
        annotation = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        waiting += get_args(annotation)
    return None


MISSING = {
    ("ListenerTlsShape", "certificate_file"): "tls: {key_file: x}\n",
    ("ListenerTlsShape", "key_file"): "tls: {certificate_file: x}\n",
    ("UpstreamShape", "url"): "upstreams: {a: {timeouts: {total: 1s}}}\n",
    ("ScopeShape", "headers"): "scope: {}\n",
    ("RouteShape", "name"): "routes: [{upstream: a}]\n",
    ("RouteShape", "upstream"): "routes: [{name: r}]\n",
    ("ProbeShape", "get"): "routes: [{name: r, upstream: a, on_unknown: probe, probe: {found: x}}]\n",
    ("ProbeShape", "found"): "routes: [{name: r, upstream: a, on_unknown: probe, probe: {get: '/{a}', from_request: {a: b}}}]\n",
}


def test_there_is_an_example_for_every_key_that_may_be_missing() -> None:
    """The cases of the next test are all there are."""
    assert {(part.__name__, name) for part, name in _required()} == set(MISSING)


@pytest.mark.parametrize(("part", "name"), MISSING)
def test_any_key_that_is_missing_is_told(part: str, name: str, complaints: Complaints) -> None:
    """Nothing else is wrong with the file, and nothing else is said; a key of another name is not taken for it."""
    text = MISSING[part, name]
    text += "" if part == "UpstreamShape" else "upstreams: {a: {url: 'http://127.0.0.1:9'}}\n"

    (told,) = complaints(text)

    assert told.endswith(f"{name}: is missing: add it"), told


@pytest.mark.parametrize(("words", "told"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_what_a_value_may_be(words: list[str], told: str) -> None:
    """One allowed value is told as it stands, several with commas and an `or`."""
    assert told == either(words)


def test_a_risk_that_cannot_be_accepted(complaints: Complaints) -> None:
    """Whoever wants to accept all is told what there is to accept."""
    (told,) = complaints(UPSTREAM + "store: {accept_risk: [all]}\n")

    assert told.startswith("idemproxy.yaml:2: store.accept_risk[0]: must be eviction")
