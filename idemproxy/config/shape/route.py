"""The shape of a route, and of what all routes share."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic_core import CoreSchema

from idemproxy.config import values
from idemproxy.config.problem import did_you_mean
from idemproxy.config.profiles import ProfileName
from idemproxy.config.shape.parts import (
    Duration,
    FieldName,
    ForwardKeyText,
    Lease,
    Patience,
    PositiveSize,
    Shape,
    Size,
    Status,
    Text,
    checked_text,
    or_words,
)
from idemproxy.core.key import KeyMode, KeySource
from idemproxy.core.policy import Effect, Forwarded, OnExpired, OnUnknown
from idemproxy.core.stamp import Place


class KeyShape(Shape):
    """Where the key comes from: `required`, `optional`, `derive`, or a mapping."""

    sources: Annotated[tuple[KeySource, ...], Field(min_length=1)] | None = Field(default=None, alias="from")
    """What makes a key; default both. An explicit one in the header comes first; else Workflow-Id and Workflow-Step make one."""
    header: Annotated[str, checked_text(values.read_key_name)] | None = None
    """The header field that carries the key; default Idempotency-Key."""
    mode: KeyMode | None = None
    """A write without a key: refused, or passed through unprotected; derive makes one for workflows. Default optional."""

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value not in set(KeyMode):
            raise ValueError(
                f"must be required, optional, derive, or a mapping with from, header and mode{did_you_mean(value, list(KeyMode))}"
            )
        return {"mode": value}

    @model_validator(mode="after")
    def _derives_from_what_it_reads(self) -> Self:
        if self.mode is KeyMode.DERIVE and self.sources is not None and KeySource.WORKFLOW not in self.sources:
            raise ValueError("mode: derive makes keys for workflows: add workflow to `from`, or leave `from` out")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return or_words(list(KeyMode), handler(core))


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
        return or_words(["shared"], handler(core))


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

    path: Annotated[str, checked_text(values.check_path)] | None = None
    """`*` is any text without a slash; `**`, at the end only, is any text at all."""
    methods: Annotated[tuple[Annotated[str, checked_text(values.read_method)], ...], Field(min_length=1)] | None = None
    """Request methods."""
    host: Annotated[str, checked_text(values.read_match_host)] | None = None
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
    from_request: Annotated[dict[str, Text], Field(json_schema_extra={"propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"}})] = {}  # noqa: RUF012 - as above
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

    name: Annotated[str, checked_text(values.read_route_name), Field(json_schema_extra={"pattern": f"^{values.ROUTE_NAME}$"})]
    """Names the route in logs and metrics: letters, digits, _, . and -, the first no sign."""
    match: MatchShape = MatchShape()
    upstream: str
    """The name of an upstream."""
    strip_prefix: Annotated[str, checked_text(values.check_prefix)] | None = None
    """Taken off the path before it is forwarded; a part of match.path."""
    preserve_host: bool = False
    """Whether the upstream gets the client's `Host`; else it gets its own, from its URL."""
    forwarded: Forwarded = Forwarded.NONE
    """Tell the upstream who asked: none, x-forwarded (X-Forwarded-For, -Host, -Proto), or forwarded (RFC 7239)."""
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
    forward_workflow: bool = False
    """Whether the upstream sees Workflow-Id, Workflow-Step and Workflow-Action, and baggage of these names."""
    profile: ProfileName | None = None
    """Policies for what this route does not say; default by upstream."""
    replay_denied: tuple[FieldName, ...] = ()
    """Header fields of answers that are not replayed, beside cookies, challenges, rate limits and request ids."""
