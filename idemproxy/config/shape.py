"""The shape of a configuration file: every key that it may have, each with its meaning.

Values stay as people write them ("15s", "10MiB") and are only checked here, so that what is printed can be read again;
`build` turns them into seconds, bytes and names. The sentences under the fields are the descriptions in the JSON Schema.
What is None was not said: `effective` fills it in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from idemproxy.config import units, values
from idemproxy.config.problem import did_you_mean
from idemproxy.config.profiles import ProfileName
from idemproxy.core.key import KeyMode, KeySource
from idemproxy.core.policy import Effect, OnExpired, OnUnknown
from idemproxy.core.stamp import Place


def _checked(read: Callable[[Any], object]) -> BeforeValidator:
    """Keep the value as written when `read` understands it."""

    def check(value: object) -> object:
        read(value)
        return value

    return BeforeValidator(check)


def _checked_text(read: Callable[[str], object]) -> BeforeValidator:
    """As `_checked`, for text; anything else is left to the type's own check."""
    return _checked(lambda value: read(value) if isinstance(value, str) else None)


# A variable may stand in the place of a value, or of a part of it.
_DURATION = WithJsonSchema(
    {"type": "string", "pattern": rf"^({units.DURATION_PATTERN}|.*\$\{{.*)$", "examples": ["500ms", "15s"]}
)
_SIZE = WithJsonSchema({"type": "string", "pattern": rf"^({units.SIZE_PATTERN}|.*\$\{{.*)$", "examples": ["64KiB", "10MiB"]})

Duration: TypeAlias = Annotated[str, _checked(units.seconds), _DURATION]
Patience: TypeAlias = Annotated[str, _checked(units.positive_seconds), _DURATION]
Lease: TypeAlias = Annotated[str, _checked(units.lease_seconds), _DURATION]
Size: TypeAlias = Annotated[str, _checked(units.size), _SIZE]
PositiveSize: TypeAlias = Annotated[str, _checked(units.positive_size), _SIZE]
Listen: TypeAlias = Annotated[str, _checked_text(values.read_address)]
FieldName: TypeAlias = Annotated[str, _checked_text(values.read_field_name)]
ForwardKeyText: TypeAlias = Annotated[
    str, _checked_text(values.read_forward_key), Field(json_schema_extra={"pattern": "^(strip|same|rename:.+)$"})
]
Status: TypeAlias = Annotated[int, Field(ge=100, le=599)]
Text: TypeAlias = Annotated[str, Field(min_length=1)]


class Shape(BaseModel):
    """Part of a configuration: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class KeyShape(Shape):
    """Where the key comes from: `required`, `optional`, or a mapping."""

    sources: Annotated[tuple[KeySource, ...], Field(min_length=1)] | None = Field(default=None, alias="from")
    """What makes a key; default both. An explicit one in the header comes first; else Workflow-Id and Workflow-Step make one."""
    header: Annotated[str, _checked_text(values.read_key_name)] | None = None
    """The header field that carries the key; default Idempotency-Key."""
    mode: KeyMode | None = None
    """Whether a write without a key is refused or passes through unprotected; default optional."""

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value not in set(KeyMode):
            raise ValueError(
                f"must be required, optional, or a mapping with from, header and mode{did_you_mean(value, list(KeyMode))}"
            )
        return {"mode": value}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return _or_words(list(KeyMode), handler(core))


class ScopeShape(Shape):
    """Whose keys these are: `shared`, or the header fields whose values tell callers apart."""

    headers: tuple[FieldName, ...]
    """Names of header fields; their values are kept only as a hash. A token that rotates makes a new scope each time."""

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        if value == "shared":
            return {"headers": ()}
        if isinstance(value, str):
            hint = did_you_mean(value, ("shared",))
            raise ValueError(f"must be shared, or a mapping such as {{headers: [x-tenant]}}{hint}")  # noqa: TRY004 - as pydantic wants it
        if isinstance(value, dict) and value.get("headers") == []:
            raise ValueError("names no header field: write `scope: shared` when all callers share their keys")
        return value

    @model_serializer
    def _to_word(self) -> str | dict[str, list[str]]:
        return {"headers": list(self.headers)} if self.headers else "shared"

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return _or_words(["shared"], handler(core))


class AdminShape(Shape):
    """The listener for operators: metrics, health, and the records."""

    listen: Listen = "127.0.0.1:8081"
    """Address, host:port; port 0 takes a free one and prints it. Beyond loopback, records are served only to a token."""
    token_file: Text | None = None
    """A file that holds the bearer token for the records, from 16 characters; relative to the configuration's directory."""


class StoreShape(Shape):
    """Where records are kept."""

    url: Annotated[str, _checked_text(values.check_store_url)] | None = Field(default=None, repr=False)
    """sqlite:///file.db, redis://host:6379/0, unix:///path/to/socket, or memory:// for tests; default sqlite:///idemproxy.db."""
    url_file: Text | None = None
    """A file that holds the URL, for one with a password; relative to the configuration's directory."""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")] = "idemproxy:"
    """What the names of all records begin with, in a store that is shared with other programs."""


class SpoolShape(Shape):
    """Where completions wait that the store could not take."""

    directory: Text = "idemproxy-spool"
    """A directory on a disk that outlives the process, relative to the current one. The proxies of a host may share it."""


class TimeoutsShape(Shape):
    """Limits on one attempt."""

    connect: Patience = "5s"
    """Until a connection stands, TLS included."""
    first_byte: Patience = "60s"
    """From the request to the first byte of its answer."""
    idle: Patience = "30s"
    """Silence between two bytes."""
    total: Patience = "120s"
    """The whole attempt."""


class UpstreamShape(Shape):
    """A server that requests are forwarded to."""

    url: Annotated[str, _checked_text(values.read_upstream_url)]
    """http:// or https://, host, port, and a path that is put before the path of every request."""
    forward_key: ForwardKeyText | None = None
    """What the upstream sees of the key: strip, same, or rename:<Header>; default by profile."""
    profile: ProfileName | None = None
    """Policies for every route to this upstream; default by its host, else strict."""
    timeouts: TimeoutsShape = TimeoutsShape()
    pool_idle: Duration = "4s"
    """How long an unused connection is kept; shorter than the upstream keeps it, or a request meets a dead one."""
    max_connections: Annotated[int, Field(ge=1, le=65_535)] = 1_000
    """Connections at a time."""


class Limits(Shape):
    """Times and sizes, for all routes (`defaults`) or for one."""

    lease: Lease | None = None
    """How long the holder of a claim is presumed alive without a sign of life; default 15s."""
    wait: Duration | None = None
    """How long a second request waits for the first one's answer; default 10s."""
    retention: Patience | None = None
    """How long an answer is kept for replay; default 24h."""
    expired_mark: Duration | None = None
    """How long, after that, it is still known that the operation happened; default 7d."""
    max_request_body: PositiveSize | None = None
    """The largest body of a request with a key; default 10MiB."""
    max_stored_body: Size | None = None
    """The largest body of an answer that is kept; beyond it only the fact is; default 1MiB."""


class MatchShape(Shape):
    """Which requests a route takes; what is not said takes all."""

    path: Annotated[str, _checked_text(values.check_path)] | None = None
    """`*` is any text without a slash; `**`, at the end only, is any text at all."""
    methods: Annotated[tuple[Annotated[str, _checked_text(values.read_method)], ...], Field(min_length=1)] | None = None
    """Request methods."""
    host: Annotated[str, _checked_text(values.read_match_host)] | None = None
    """The host that the client asked for, without port."""


class FingerprintShape(Shape):
    """What makes two requests the same operation, beside method, target and content type."""

    mode: Literal["semantic", "raw"] = "semantic"
    """semantic compares the meaning of JSON and forms; raw compares bytes."""
    include: tuple[Text, ...] = ()
    """JSON Pointers or JMESPath expressions; when given, only these parts of a JSON body count."""
    exclude: tuple[Text, ...] = ()
    """Parts of a JSON body that do not count, such as timestamps."""
    headers: tuple[FieldName, ...] = ()
    """Header fields that count too."""


class OutcomeShape(Shape):
    """Statuses of the upstream that this route judges in its own way. Every other status: by the profile, then by the table."""

    release: tuple[Status, ...] = ()
    """The upstream did not act: the key is free again. Beside these, 401, 403, 407, 408, 409, 421, 425, 429."""
    unknown: tuple[Status, ...] = ()
    """Nobody can say whether the upstream acted. Beside these, 5xx but 501 and 505 (and 503 with Retry-After, which releases)."""
    complete: tuple[Status, ...] = ()
    """The answer is kept and replayed. Beside these, 2xx, 3xx and every other 4xx, 501 and 505."""


class ProbeAnswerShape(Shape):
    """What callers get when a probe has found that the operation happened; always JSON."""

    status: Status = 200
    """Its status, 200 to 299."""
    body: Text | None = None
    """JMESPath: what of the probe's answer becomes the body; default: what `found` selected."""


class ProbeShape(Shape):
    """How to ask the upstream whether an operation of unknown outcome happened: a GET, with the fields of the retry that asks."""

    get: Text
    """Target below the upstream's URL, without strip_prefix: /seats?ref={key}; also {workflow}, {step}, names of from_request."""
    found: Text
    """JMESPath over the answer's JSON: true, or something, when it happened. 0 is something: write total > `0`."""
    absent: Text | None = None
    """JMESPath over the answer's JSON: true, or something, when it surely did not happen. Without: only absent_status says so."""
    absent_status: tuple[Status, ...] = ()
    """Statuses, of 204, 404 and 410, by which a lookup says that it did not happen."""
    settle: Duration = "10s"
    """How long an outcome must be unknown before an absence is believed: longer than the upstream's slowest write, from 5s."""
    from_request: Annotated[dict[str, Text], Field(json_schema_extra={"propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"}})] = {}
    """Names for `get`, each with the JMESPath of its value in the request's JSON body."""
    answer: ProbeAnswerShape = ProbeAnswerShape()


class StampShape(Shape):
    """Where the key is written into the forwarded request, so that a probe can find it later: one of the three places."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    header: Text | None = None
    """A header field."""
    json_pointer: Text | None = Field(default=None, alias="json")  # a model has a method `json`
    """A JSON Pointer to a member of the body, such as /metadata/ref; the object around it must be there."""
    form: Text | None = None
    """A field of a form, such as metadata[ref]."""

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if len(self.places()) != 1:
            raise ValueError("must name one place: {header: Name}, {json: /pointer} or {form: name}")
        return self

    def places(self) -> dict[Place, str]:
        """What was said, by the kind of place."""
        said: dict[Place, str | None] = {"header": self.header, "json": self.json_pointer, "form": self.form}
        return {place: name for place, name in said.items() if name is not None}


class RouteShape(Limits):
    """Which requests go where, and what is promised for those with a key. The first route that takes a request decides."""

    name: Annotated[str, _checked_text(values.read_route_name), Field(json_schema_extra={"pattern": f"^{values.ROUTE_NAME}$"})]
    """Names the route in logs and metrics: letters, digits, _, . and -, the first no sign."""
    match: MatchShape = MatchShape()
    upstream: str
    """The name of an upstream."""
    strip_prefix: Annotated[str, _checked_text(values.check_prefix)] | None = None
    """Taken off the path before it is forwarded; a part of match.path."""
    effect: Effect = Effect.WRITE
    """read: requests change nothing, whatever their method, and pass through."""
    key: KeyShape | None = None
    scope: ScopeShape | None = None
    fingerprint: FingerprintShape = FingerprintShape()
    outcome: OutcomeShape = OutcomeShape()
    on_unknown: OnUnknown | None = None
    """What a retry gets when nobody knows if it happened. retry only for an upstream that honours keys; probe asks first."""
    probe: ProbeShape | None = None
    stamp: StampShape | None = None
    expired: OnExpired = OnExpired.REFUSE
    """What a retry gets when its operation happened but the answer is no longer kept: an error, or a new operation."""
    forward_key: ForwardKeyText | None = None
    """What the upstream sees of the key: strip, same, or rename:<Header>; default by profile."""
    profile: ProfileName | None = None
    """Policies for what this route does not say; default by upstream."""
    replay_denied: tuple[FieldName, ...] = ()
    """Header fields of answers that are not replayed, beside cookies, challenges, rate limits and request ids."""


class ConfigurationShape(Shape):
    """A configuration of idemproxy."""

    listen: Listen = "127.0.0.1:8080"
    """Address for clients, host:port; port 0 takes a free one and prints it. Beyond loopback, `scope` must be said."""
    admin: AdminShape = AdminShape()
    store: StoreShape = StoreShape()
    spool: SpoolShape = SpoolShape()
    scope: ScopeShape | None = None
    key_secret: Text | None = Field(default=None, repr=False)
    """Makes the hashes of keys and scopes useless to whoever reads the store; the same for all proxies of one store."""
    key_secret_file: Text | None = None
    """A file that holds the secret; relative to the configuration's directory."""
    access_log: bool = True
    """One JSON line for each request on standard output."""
    log_format: Literal["text", "json"] = "text"
    """The lines on standard error, of what the proxy does and what goes wrong: words for a person, or one JSON object each."""
    drain: Duration = "30s"
    """How long a stop waits for attempts that are under way."""
    upstreams: Annotated[
        dict[str, UpstreamShape], Field(json_schema_extra={"propertyNames": {"pattern": f"^{values.UPSTREAM_NAME}$"}})
    ] = {}
    """By name: lower-case letters, digits, _ and -, the first no sign. It is part of every record: renamed, it has no records."""
    defaults: Limits = Limits()
    routes: tuple[RouteShape, ...] | None = None
    """In the order in which they are tried. Without any, one upstream takes everything, and several are reached under /name/."""


def _or_words(words: list[str], mapping: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of one of some words, or a mapping."""
    about = mapping.pop("description", "")
    return {"description": about, "anyOf": [{"enum": [str(word) for word in words]}, mapping]}
