"""Records, answers and acts as JSON: what the admin API shows of them. Times are RFC 3339 in UTC."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final, TypeAlias

from idemproxy.core.record import AnswerFormatError, Identity, Phase, Record, time_shown, unpack_answer
from idemproxy.core.transition import Act

Shown: TypeAlias = dict[str, object]

ABSENT: Final = "absent"
"""The phase of a record that has gone."""


def record_shown(identity: Identity, record: Record) -> Shown:
    """A record without its answer. `source` is where the answer of a completed record comes from."""
    is_completed = record.phase in (Phase.COMPLETED, Phase.EXPIRED)
    return _identity_shown(identity) | {
        "phase": record.phase.value,
        "route": record.route,
        "fence": record.fence,
        "status": record.status,
        "source": record.source.value if is_completed else None,
        "claimed_at": time_shown(record.claimed_at),
        "settled_at": time_shown(record.settled_at),
        "expires_at": time_shown(record.expires_at),
        "forget_at": time_shown(record.forget_at),
    }


def whole_shown(identity: Identity, record: Record | None, acts: Sequence[Act]) -> Shown:
    """A record with its answer and its audit trail; None is one that has gone and left a trail."""
    if record is None:
        shown = _identity_shown(identity) | {"phase": ABSENT, "answer": None}
    else:
        shown = record_shown(identity, record) | {"answer": _answer_shown(record.answer)}
    return shown | {"audit": [_act_shown(act) for act in acts]}


def _identity_shown(identity: Identity) -> Shown:
    return {"id": str(identity), "scope": identity.scope, "upstream": identity.upstream, "key": identity.key_hash}


def _act_shown(act: Act) -> Shown:
    return {
        "at": time_shown(act.at),
        "verb": act.verb.value,
        "who": act.who,
        "why": act.why,
        "fence": act.fence,
        "from_phase": act.from_phase.value,
    }


def _answer_shown(packed: bytes | None) -> Shown | None:
    """Header fields as Latin-1, which keeps every byte; a body that is not UTF-8 goes as base64, under another name."""
    if packed is None:
        return None
    try:
        stored = unpack_answer(packed)
    except AnswerFormatError as failure:
        return {"unreadable": str(failure)}
    lines = stored.head.decode("latin-1").split("\r\n")[1:-1]  # between the reason phrase and the end of the last line
    shown: Shown = {"status": stored.status, "headers": [line.split(": ", 1) for line in lines]}
    try:
        return shown | {"body": stored.body.decode("utf-8")}
    except UnicodeDecodeError:
        return shown | {"body_base64": base64.b64encode(stored.body).decode("ascii")}
