"""The memory of an agent: JSON of its own, kept as it was sent, and saved only over the version that its agent knows.

The entity tag is the memory's version, which no other memory of the workflow ever has. A save that is asked again, because its
answer was lost, succeeds again: the same content in the place of the same version (core.journal.saved).
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from aiohttp import web

from idemproxy.core.coding import names
from idemproxy.core.fingerprint.json_form import MOST_LEVELS, read_json
from idemproxy.core.fingerprint.parameters import essence
from idemproxy.core.journal import ABSENT, Saved
from idemproxy.core.message import field_values
from idemproxy.core.problem import Slug, problem
from idemproxy.proxy.body import SlowError, TooLongError, whole_body
from idemproxy.workflow.answers import done, text
from idemproxy.workflow.asked import TurnedAwayError, bad
from idemproxy.workflow.checkpoint import etag
from idemproxy.workflow.workflows import unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idemproxy.core.journal import WorkflowIdentity
    from idemproxy.core.message import Fields
    from idemproxy.proxy.reply import Reply
    from idemproxy.workflow.asked import Asked
    from idemproxy.workflow.workflows import Workflows

_ANY: Final = b"*"
_TAG: Final = rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'  # RFC 9110, section 8.8.3
_TAGS: Final = re.compile(rb"[ \t,]*%b(?:[ \t]*,[ \t,]*%b)*[ \t,]*" % (_TAG, _TAG))
_EACH_TAG: Final = re.compile(_TAG)
_VERSION: Final = re.compile(rb'"([1-9][0-9]{0,17})"')

_ANYTHING: Final = (None,)
"""What a save without a condition expects."""


class Memories:
    """The pages of memories, of at most `limit` bytes, each kept for `kept` microseconds after its last save."""

    def __init__(self, workflows: Workflows, limit: int, kept: int) -> None:
        self._workflows = workflows
        self._limit = limit
        self._kept = kept

    async def load(self, asked: Asked) -> Reply:
        """The memory, byte for byte. Raises TurnedAwayError."""
        found = await self._workflows.journals.journal(self._workflows.identity(asked))
        if found is None or found[0].memory is None:
            raise unknown("Nothing is kept of what an agent of such a workflow remembers, for this caller: save it first.")
        memory = found[0].memory
        return text(memory.content, _etag_line(memory.version))

    async def save(self, asked: Asked) -> Reply:
        """Keep the body as the memory. Raises TurnedAwayError."""
        workflow = self._workflows.identity(asked)
        expected = _expected(asked.request.fields)
        content = await self._content(asked)
        version = ABSENT if expected else await self._version(workflow)
        if expected is None:
            expected = () if version == ABSENT else _ANYTHING
        for each in expected:
            result = await self._workflows.journals.save(workflow, content, each, self._kept)
            if isinstance(result, Saved):
                return done(_etag_line(result.version))
            version = result.version
        raise _changed(version)

    async def _version(self, workflow: WorkflowIdentity) -> int:
        found = await self._workflows.journals.journal(workflow)
        return ABSENT if found is None or found[0].memory is None else found[0].memory.version

    async def _content(self, asked: Asked) -> bytes:
        """The body, which is JSON. Raises TurnedAwayError."""
        fields = asked.request.fields
        kinds = [essence(value) for value in field_values(fields, b"content-type")]
        if kinds not in ([], [b"application/json"]):
            raise bad("A memory is JSON, so nothing was saved: send it with Content-Type: application/json.")
        transfer = [value.lower() for value in field_values(fields, b"transfer-encoding")]
        if names(field_values(fields, b"content-encoding")) or transfer not in ([], [b"chunked"]):
            raise bad("A memory is kept as it is sent, so nothing was saved: send it without a content or transfer coding.")
        try:
            content = await whole_body(asked.http, asked.request, self._limit, asked.patience)
        except TooLongError as exc:
            detail = f"The memory is longer than {self._limit} bytes, `max_agent_memory`, so nothing was saved."
            raise TurnedAwayError(problem(Slug.BODY_TOO_LARGE, detail)) from exc
        except SlowError as exc:
            raise TurnedAwayError(problem(Slug.BAD_REQUEST, f"{exc}, so nothing was saved.", status=408)) from exc
        except web.RequestPayloadError as exc:
            raise bad("The request body is broken off or wrongly framed, so nothing was saved.") from exc
        try:
            await asyncio.to_thread(read_json, content)  # which gives way to others all the time
        except (ValueError, RecursionError) as exc:
            raise bad(
                "The body is not JSON in UTF-8, has a name twice in one object, or more than "
                f"{MOST_LEVELS} levels, so nothing was saved."
            ) from exc
        return content


def _expected(fields: Fields) -> Sequence[int | None] | None:
    """The versions of which the present one must be one, ABSENT for no memory; None for any memory that there is.

    Raises TurnedAwayError for conditions that are not understood: to save in spite of one could lose what another has saved.
    """
    matches, none_matches = field_values(fields, b"if-match"), field_values(fields, b"if-none-match")
    if matches and none_matches:
        raise bad("If-Match and If-None-Match ask for opposite things, so nothing was saved: send one of them.")
    if none_matches:
        if none_matches != [_ANY]:
            raise bad(
                "If-None-Match is understood as * alone here, so nothing was saved: name what is to be replaced in If-Match."
            )
        return (ABSENT,)
    if not matches:
        return _ANYTHING
    if matches == [_ANY]:
        return None
    told = b",".join(matches)
    if not _TAGS.fullmatch(told):
        raise bad("If-Match is no list of entity tags, so nothing was saved: send the ETag as it was given, with its quotes.")
    strong = (_VERSION.fullmatch(tag) for tag in _EACH_TAG.findall(told))  # a weak tag never matches: RFC 9110, section 13.1.1
    return tuple(dict.fromkeys(int(version[1]) for version in strong if version is not None))


def _changed(version: int) -> TurnedAwayError:
    if version == ABSENT:
        return TurnedAwayError(problem(Slug.MEMORY_CHANGED, "There is no memory to be replaced, so nothing was saved."))
    detail = "The memory is another than was expected, so nothing was saved: load it, and save again over what you have seen."
    return TurnedAwayError(problem(Slug.MEMORY_CHANGED, detail), _etag_line(version))


def _etag_line(version: int) -> bytes:
    return f"ETag: {etag(version)}\r\n".encode("ascii")
