"""The documents as a reader has them before them: blocks, tables, links, anchors, and what stands in the text as code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
DOCS: Final = sorted((REPOSITORY / "docs").rglob("*.md"))
DOCUMENTS: Final = [*sorted(REPOSITORY.glob("*.md")), *DOCS]

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_CELL: Final = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line at which it begins."""

    language: str
    text: str
    line: int


def named(path: Path) -> str:
    """How a document is called from the top of the repository."""
    return path.relative_to(REPOSITORY).as_posix()


def read(name: str) -> str:
    """The text of the document of that name."""
    return (REPOSITORY / name).read_text("utf-8")


def blocks(text: str, *languages: str) -> list[Block]:
    """The blocks of these languages, in order."""
    found = (Block(each[1], each[2], text.count("\n", 0, each.start()) + 1) for each in _BLOCK.finditer(text))
    return [block for block in found if block.language in languages]


def prose(text: str) -> str:
    """A document without its blocks."""
    return _BLOCK.sub("", text)


def inline_code(text: str) -> list[str]:
    """What stands between backticks."""
    return _CODE.findall(prose(text))


def links(text: str) -> list[str]:
    """The targets of the links."""
    return _LINK.findall(prose(text))


def anchors(text: str) -> set[str]:
    """What a link to this document may name, as GitHub makes it from the headings; a heading that comes twice is numbered."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(prose(text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table, headings among them."""
    for line in prose(text).splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one."""
    _, _, rest = text.partition(f"\n{heading}\n")
    return re.split(r"\n#+ ", rest)[0]
