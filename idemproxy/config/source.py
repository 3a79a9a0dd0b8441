"""From a YAML file to plain values, each with the line that it came from.

YAML is read as a graph of nodes (PyYAML's safe loader, `compose`), because nodes keep their lines and show a key that stands
twice. `${NAME}`, `${NAME:-default}` and `$$` are replaced in text before it is read as anything else; `$NAME` is a problem.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import yaml

from idemproxy.config.problem import Place, Problem, Trail, show_trail

if yaml.__with_libyaml__:

    class _FastLoader(yaml.composer.Composer, yaml.CSafeLoader):
        """Events of libyaml, nodes of PyYAML: nodes made in C could be nested so deeply that they end the process."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)


class Unreadable(Enum):
    """Stands where a value could not be read; the reason is among the problems already."""

    VALUE = "unreadable"


_VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<or>:-(?P<default>[^}]*))?\}|(?P<wrong>\{[^}]*\}?)|(?P<bare>[A-Za-z_]))"
)
_TAG: Final = "tag:yaml.org,2002:"

# A few lines of aliases can stand for any number of values, at any depth; no configuration comes near these, but one that is as
# long as that itself: a file without aliases holds fewer values than signs.
_MOST_VALUES: Final = 100_000
_DEEPEST: Final = 50


@dataclass(frozen=True, slots=True)
class Document:
    """What was read: `tree` of plain values, `places` by trail, and what was wrong. Not `whole`: nothing could be read.

    `twice`: the trails at which two values were given, of which the tree holds one.
    """

    tree: dict[str, object] = field(default_factory=dict)
    places: dict[Trail, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    twice: set[Trail] = field(default_factory=set)
    whole: bool = True

    def place(self, trail: Trail) -> Place:
        """Where the value at `trail` was written, or the nearest value around it."""
        while trail and trail not in self.places:
            trail = trail[:-1]
        return self.places.get(trail, Place("idemproxy"))

    def complain(self, trail: Trail, text: str) -> None:
        """Note a problem with the value at `trail`."""
        self.problems.append(Problem(self.place(trail), trail, text))


def read(path: Path, environ: Mapping[str, str]) -> Document:
    """Read a file; whatever goes wrong is among the document's problems."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return _unusable(path, 1, "there is no such file: check the path")
    except OSError as failure:
        return _unusable(path, 1, f"the file cannot be read: {failure.strerror}")
    except UnicodeDecodeError as failure:
        line = failure.object[: failure.start].count(b"\n") + 1
        return _unusable(path, line, "the file is not UTF-8: save it in that encoding")
    try:
        root = _compose(text)
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark or failure.context_mark
        line = mark.line + 1 if mark else 1
        reason = ", ".join(part for part in (failure.context, failure.problem) if part)
        # The braces of a variable are YAML's own within a mapping that is written in braces.
        hint = "; put text with ${...} in quotes" if "${" in "".join(text.split("\n")[line - 1 : line]) else ""
        return _unusable(path, line, f"this is not YAML: {reason}{hint}")
    except yaml.reader.ReaderError as failure:
        line = text.count("\n", 0, failure.position) + 1
        return _unusable(path, line, f"this is not YAML: the character {failure.character!r} is not allowed")
    except RecursionError:
        return _unusable(path, 1, "the file is nested too deeply")
    if root is None:
        return _unusable(path, 1, "the file is empty: describe at least one upstream under `upstreams`")
    if not isinstance(root, yaml.MappingNode):
        return _unusable(path, root.start_mark.line + 1, "the file must be a mapping with keys such as `upstreams` and `routes`")
    reader = _Reader(str(path), environ, max(_MOST_VALUES, len(text)))
    try:
        tree = reader.mapping(root, (), frozenset())
    except _UnboundedError as failure:
        return _unusable(path, failure.line, str(failure))
    return Document(tree, {(): Place(str(path), 1)} | reader.places, reader.problems, reader.twice)


def _compose(text: str) -> yaml.Node | None:
    """The nodes of a file. Where libyaml is there, it reads it, six times as fast; what is wrong is always told by PyYAML.

    Of tabs and of byte order marks within a file the two think differently: then PyYAML reads it.
    """
    if yaml.__with_libyaml__ and not any(sign in text for sign in "\t\ufeff"):
        with contextlib.suppress(yaml.YAMLError):
            return _FastLoader(text).get_single_node()
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _unusable(path: Path, line: int, text: str) -> Document:
    place = Place(str(path), line)
    return Document(places={(): place}, problems=[Problem(place, (), text)], whole=False)


class _UnboundedError(Exception):
    """A file stands for more than it holds; `line` is that of the outermost key in which this shows."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class _Reader:
    """Walks the nodes of one file and gathers values, places and problems."""

    def __init__(self, origin: str, environ: Mapping[str, str], most: int) -> None:
        self.origin = origin
        self.environ = environ
        self.places: dict[Trail, Place] = {}
        self.problems: list[Problem] = []
        self.twice: set[Trail] = set()
        self.most = self.left = most
        self.scalars = yaml.constructor.SafeConstructor()

    def mapping(self, node: yaml.MappingNode, trail: Trail, above: frozenset[int]) -> dict[str, object]:
        """A mapping; its keys are text as written, and a key that stands twice is a problem."""
        values: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.complain(key, trail, "a key must be a plain word")
                continue
            inner = (*trail, key.value)
            if key.value in values:
                first = self.places[inner].line
                self.complain(key, inner, f"this key stands here twice, first in line {first}: keep one")
                self.twice.add(inner)
                continue
            self.places[inner] = Place(self.origin, key.start_mark.line + 1)
            values[key.value] = self.value(value, inner, above | {id(node)})
        return values

    def sequence(self, node: yaml.SequenceNode, trail: Trail, above: frozenset[int]) -> list[object]:
        """A list."""
        for number, item in enumerate(node.value):
            self.places[*trail, number] = Place(self.origin, item.start_mark.line + 1)
        return [self.value(item, (*trail, number), above | {id(node)}) for number, item in enumerate(node.value)]

    def value(self, node: yaml.Node, trail: Trail, above: frozenset[int]) -> object:
        """Any value. An alias is read where it is used. Raises _UnboundedError."""
        self.left -= 1
        if self.left < 0 or len(trail) > _DEEPEST:
            what = f"more than {self.most:,} values" if self.left < 0 else f"values more than {_DEEPEST} levels deep"
            text = f"with every alias written out, {show_trail(trail[:1])} makes {what}: use fewer aliases within aliases"
            raise _UnboundedError(self.places[trail[:1]].line or 1, text)
        if id(node) in above:
            return self.complain(node, trail, "this alias contains itself")
        match node:
            case yaml.MappingNode():
                return self.mapping(node, trail, above)
            case yaml.SequenceNode():
                return self.sequence(node, trail, above)
            case yaml.ScalarNode():
                return self.scalar(node, trail)
            case _:
                raise TypeError(f"YAML has no node of type {type(node).__name__}")

    def scalar(self, node: yaml.ScalarNode, trail: Trail) -> object:
        """Text, a number, a truth value or nothing (None); dates stay text."""
        try:
            match node.tag.removeprefix(_TAG):
                case "str" | "timestamp":
                    return self.text(node, trail)
                case "int":
                    return self.scalars.construct_yaml_int(node)
                case "float":
                    return self.scalars.construct_yaml_float(node)
                case "bool":
                    return self.scalars.construct_yaml_bool(node)
                case "null":
                    return None
                case _:
                    return self.complain(node, trail, f"the tag {node.tag} has no meaning here: write the value without it")
        except (ValueError, KeyError):
            return self.complain(node, trail, "this is not a value of the type that its tag or its form says")

    def text(self, node: yaml.ScalarNode, trail: Trail) -> object:
        """Text with its variables replaced, or Unreadable when one of them cannot be."""
        wrong: list[str] = []

        def replace(found: re.Match[str]) -> str:
            name = found["name"]
            if found["dollar"]:
                return "$"
            if found["bare"]:
                # The text around may be a secret: none of it is shown.
                wrong.append("a `$` before a name stands without braces: write ${NAME} for a variable, or $$ for a dollar sign")
            elif name is None:
                text = f"{found[0]!r} names no variable: write ${{NAME}}, ${{NAME:-default}}, or $$ for a dollar sign"
                wrong.append(text)
            elif found["or"]:
                return self.environ.get(name) or found["default"]
            elif name not in self.environ:
                wrong.append(f"the environment variable {name} is not set: set it, or write ${{{name}:-default}}")
            return self.environ.get(name or "", "")

        text = _VARIABLE.sub(replace, str(node.value))
        for problem in dict.fromkeys(wrong):
            self.complain(node, trail, problem)
        return Unreadable.VALUE if wrong else text

    def complain(self, node: yaml.Node, trail: Trail, text: str) -> object:
        """Note a problem at a node; the value is then Unreadable."""
        self.problems.append(Problem(Place(self.origin, node.start_mark.line + 1), trail, text))
        return Unreadable.VALUE
