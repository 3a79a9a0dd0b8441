"""Which route a request takes: the first one, in the order of the configuration, that takes it.

Asking one route after the other costs what the number of routes is. So the routes stand in a tree of the segments of their path
patterns, a tree for each host: a walk along a request's path comes by the few that may take it, and only these are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from idemproxy.core.message import Request
from idemproxy.core.policy import Route

Numbers: TypeAlias = tuple[int, ...]
"""Places of routes in their order."""


@dataclass(slots=True)
class _Branch:
    """Where patterns that begin alike part: `whole` are the routes whose pattern ends here, `below` those that go on with `**`.

    `starred` leads on for every segment with a `*`, which is looked at only when the route is asked.
    """

    children: dict[bytes, _Branch] = field(default_factory=dict)
    starred: _Branch | None = None
    whole: Numbers = ()
    below: Numbers = ()

    def grown(self, segment: bytes) -> _Branch:
        """The branch to which a segment of a pattern leads, made if there is none."""
        if b"*" not in segment:
            return self.children.setdefault(segment, _Branch())
        if self.starred is None:
            self.starred = _Branch()
        return self.starred


class RouteTable:
    """Routes in the order in which they decide.

    A request is matched in a time that its path's segments determine, and not the number of routes; unless many routes differ in
    nothing but their methods, or within a segment that has a `*`.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes: Final = tuple(routes)
        hosts: dict[bytes | None, _Branch] = {None: _Branch()}
        deepest = 0
        for number, route in enumerate(self._routes):
            branch = hosts.setdefault(route.host, _Branch())
            if route.path is None:
                branch.below += (number,)
                continue
            segments = route.path.text.split(b"/")
            deepest = max(deepest, len(segments))
            for segment in segments:
                branch = branch.grown(segment)
            if route.path.and_below:
                branch.below += (number,)
            else:
                branch.whole += (number,)
        anywhere = hosts.pop(None)
        self._deepest: Final = deepest
        self._anywhere: Final = (anywhere,)
        self._hosts: Final = {host: (anywhere, branch) for host, branch in hosts.items() if host is not None}

    def match(self, request: Request, path: bytes, host: bytes) -> Route | None:
        """The first route that takes the request, with its path in comparable form; `host` in lower case, without port."""
        for number in sorted(self._candidates(path, host)):
            route = self._routes[number]
            if route.takes(request, path, host):
                return route
        return None

    def _candidates(self, path: bytes, host: bytes) -> list[int]:
        """Every route that may take this path; a path with more segments than any pattern is not split to its end."""
        found: list[int] = []
        branches: Sequence[_Branch] = self._hosts.get(host, self._anywhere)
        for segment in path.split(b"/", self._deepest):
            deeper: list[_Branch] = []
            for branch in branches:
                found += branch.below
                child = branch.children.get(segment)
                if child is not None:
                    deeper.append(child)
                if branch.starred is not None:
                    deeper.append(branch.starred)
            branches = deeper
            if not branches:
                return found
        for branch in branches:
            found += branch.below + branch.whole
        return found
