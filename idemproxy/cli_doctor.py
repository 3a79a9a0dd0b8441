"""The command `doctor`: the findings on a store, as a table that a person reads. It starts the store as a run does."""

from __future__ import annotations

import asyncio
import shutil
import textwrap
from collections.abc import Sequence
from typing import Final

from idemproxy.config.settings import StoreSettings
from idemproxy.store.base import Store, StoreError
from idemproxy.store.base_finding import Finding, Level, judged
from idemproxy.store.choice import is_still_to_be_made, open_store, store_name

_LEAST_WIDTH: Final = 40
"""Columns that a text gets in the narrowest terminal."""
_ENDLESS: Final = 100_000
"""Columns of what is no terminal: each finding stays on one line."""
_GAP: Final = "  "


def examine(settings: StoreSettings) -> tuple[str, bool]:
    """What was found, as lines; and whether a run may use this store. Raises StoreError for settings that make no store."""
    findings = judged(asyncio.run(_findings(open_store(settings, only_looks=True), settings)), settings.accepted_risks)
    errors = sum(finding.level is Level.ERROR for finding in findings)
    shown = store_name(settings).partition("#")[0]
    verdict = f"{errors} {'error' if errors == 1 else 'errors'}" if errors else "no errors"
    return f"{_table(findings)}{shown}: {verdict}\n", not errors


async def _findings(store: Store, settings: StoreSettings) -> Sequence[Finding]:
    """Start, write and look, as far as each succeeds; a file that is not there yet is left to the run that needs it."""
    found: list[Finding] = []
    try:
        if not is_still_to_be_made(settings):
            await store.start()
            try:
                await store.check()
            except StoreError as error:
                found.append(Finding(Level.ERROR, "write", str(error)))
            else:
                found.append(Finding(Level.FINE, "write", "the store confirms it"))
        found += await store.inspect()
    except StoreError as error:
        if not found:  # what keeps it from being written keeps it from being seen
            found.append(Finding(Level.ERROR, "start", str(error)))
    finally:
        await store.close()
    return found


def _table(findings: Sequence[Finding]) -> str:
    first = max(len(finding.level) for finding in findings)
    second = max(len(finding.what) for finding in findings)
    margin = first + second + 2 * len(_GAP)
    width = max(_LEAST_WIDTH, shutil.get_terminal_size((_ENDLESS, 24)).columns - margin)
    lines = []
    for finding in findings:
        head, *rest = textwrap.wrap(str(finding), width, break_on_hyphens=False)
        lines.append(f"{finding.level:<{first}}{_GAP}{finding.what:<{second}}{_GAP}{head}")
        lines += [f"{'':{margin}}{line}" for line in rest]
    return "".join(f"{line}\n" for line in lines)
