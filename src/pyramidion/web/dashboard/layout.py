"""What stands around every page: its title, the navigation, and which of its parts are live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyramidion.errors import ForbiddenError
from pyramidion.web.dashboard.rendering import rendered
from pyramidion.web.service.streams import Stream
from pyramidion.web.tokens import Token

if TYPE_CHECKING:
    from pyramidion.web.dashboard.pages import Page


class Link(NamedTuple):
    """A page's place in the navigation: what it is called there, and in which order."""

    name: str
    order: int


class Shown(NamedTuple):
    """A link as it stands on a page. ``why`` says who may, where this token may not."""

    name: str
    path: str
    address: str
    why: str


class Layout:
    """Knows the pages of one service."""

    def __init__(self) -> None:
        self._pages: list[Page] = []

    def know(self, page: Page) -> None:
        """A page that may stand in the navigation."""
        if page.link is not None:
            self._pages.append(page)
            self._pages.sort(key=lambda each: each.link.order if each.link else 0)

    def links(self, caller: Token, stream: Stream | None) -> list[Shown]:
        """The navigation of a stream, or of the service; what is not for a token says why."""
        found = []
        for page in self._pages:
            of_stream = "{stream}" in page.path
            if page.link is None or of_stream != (stream is not None):
                continue
            address = page.path.format(stream=stream.name) if stream else page.path
            found.append(Shown(page.link.name, page.path, address, _why(caller, page)))
        return found

    def page(self, template: str, /, *, live: bool, **told: Any) -> str:
        """A page, whole or for a live update."""
        around: Mapping[str, Any] = {
            "live": live,
            "caller": None,
            "stream": None,
            "links": (),
            "here": "",
            "csrf": "",
        }
        return rendered(template, {**around, **told})


def _why(caller: Token, page: Page) -> str:
    try:
        caller.refuse_without(page.roles)
    except ForbiddenError:
        return f"for tokens with the role {' or '.join(sorted(page.roles))}"
    return ""
