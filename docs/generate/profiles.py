"""The profiles as tables: what each one says where a route does not, and how it judges every status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from docs.generate.markdown import NOTHING, code, listed, table
from idemproxy.config.profiles import BY_HOST, PROFILES
from idemproxy.core.outcome import Settlement, judge_status
from idemproxy.core.policy import OutcomeRule


def profiles() -> str:
    """When to choose each one, and the hosts by which it is chosen."""
    hosts = {name: [host for host, chosen in BY_HOST.items() if chosen == name] for name in PROFILES}
    rows = ([code(name), profile.about, listed(hosts[name])] for name, profile in PROFILES.items())
    return table(("profile", "when, and at what cost", "chosen by itself for"), rows)


def settings() -> str:
    """The settings that a profile gives."""
    rows = (
        [code(name), *map(code, (profile.key_mode, profile.forward_key, profile.on_unknown)), listed(profile.scope_headers)]
        for name, profile in PROFILES.items()
    )
    return table(("profile", "`key.mode`", "`forward_key`", "`on_unknown`", "fields added to `scope`"), rows)


def statuses() -> str:
    """What is written after an answer with each status."""
    rows = []
    for name, profile in PROFILES.items():
        told = statuses_by_settlement(profile.outcome)
        rows.append([code(name), *(told.get(settlement, NOTHING) for settlement in Settlement)])
    return table(("profile", "completed: kept and replayed", "released: the key is free again", "unknown"), rows)


def statuses_by_settlement(rule: OutcomeRule) -> Mapping[Settlement, str]:
    """The final statuses that lead to each settlement: whole classes, single ones, and `other 4xx` for the rest of a class."""
    told: dict[Settlement, list[str]] = {}
    for hundred in range(200, 600, 100):
        judged = {status: judge_status(status, rule, has_retry_after=False) for status in range(hundred, hundred + 100)}
        ((rest, count),) = Counter(judged.values()).most_common(1)
        for status, settlement in judged.items():
            if settlement is not rest:
                told.setdefault(settlement, []).append(str(status))
            hinted = judge_status(status, rule, has_retry_after=True)
            if hinted is not settlement:
                told.setdefault(hinted, []).append(f"{status} with Retry-After")
                count -= settlement is rest
        told.setdefault(rest, []).append(f"{'' if count == len(judged) else 'other '}{hundred // 100}xx")
    return {settlement: ", ".join(texts) for settlement, texts in told.items()}
