"""What a document shows of an example stands in the example, which the tests run."""

from __future__ import annotations

import re
from typing import Final

from tests.docs.pages import REPOSITORY, blocks, read

PAGE: Final = "docs/how-to/use-with-agent-frameworks.md"
EXAMPLES: Final = sorted(path.name for path in (REPOSITORY / "examples").glob("*.py"))


def _lines(text: str) -> str:
    """Text without indentation, each line ended: a block is shown without that of its place."""
    return "".join(f"{line.strip()}\n" for line in text.splitlines())


def test_what_is_shown_stands_in_an_example() -> None:
    """Each block of Python is a piece of an example, line by line."""
    sources = [_lines((REPOSITORY / "examples" / name).read_text("utf-8")) for name in EXAMPLES]

    shown = [block.text for block in blocks(read(PAGE), "python")]

    assert [] == [text for text in shown if not any(_lines(text) in source for source in sources)]


def test_every_example_is_linked() -> None:
    """Whoever reads the page comes to every example."""
    assert EXAMPLES == sorted(set(re.findall(r"\(\.\./\.\./examples/(\w+\.py)\)", read(PAGE))))
