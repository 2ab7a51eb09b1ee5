"""Style and scripts: files of this package, and the plot library's own from where it is installed.

They hold nothing of a stream, so that anybody may have them, and caches may keep them: their
addresses change with their contents.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from pyramidion.errors import MissingError, refuse_missing
from pyramidion.web.dashboard.rendering import ENVIRONMENT
from pyramidion.web.errors import error_response

OWN = Path(__file__).parent / "static"
PLOTS = "plotly.min.js"
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
YEAR = 365 * 86_400


@cache
def files() -> dict[str, Path]:
    """The files by name; nothing else is served, whatever is asked for."""
    refuse_missing("the dashboard", ["plotly"], "serve")
    spec = find_spec("plotly")
    places = list((spec and spec.submodule_search_locations) or ())
    found = {file.name: file for file in OWN.iterdir() if file.suffix in KINDS}
    return found | {PLOTS: Path(places[0]) / "package_data" / PLOTS}


@cache
def styles() -> list[str]:
    """Ids of styles that the plot library would write into a page, where none has the id.

    Our policy forbids that; what we need of them is in our own style.
    """
    text = files()[PLOTS].read_text("utf-8")
    found = re.findall(r'getElementById\("([0-9a-f]{64})"\)', text)
    return ["plotly.js-style-global", *dict.fromkeys(found)]


@cache
def address(name: str) -> str:
    """Where a file is; another one when it changes."""
    mark = hashlib.sha256(files()[name].read_bytes()).hexdigest()[:16]
    return f"/static/{mark}/{name}"


ENVIRONMENT.globals |= {"static": address, "plot_styles": styles}


async def static(request: Request) -> Response:
    """A file, if this is its address."""
    mark, name = request.path_params["mark"], request.path_params["name"]
    if name not in files() or address(name) != f"/static/{mark}/{name}":
        return error_response(
            MissingError("there is nothing at this address; /docs shows what there is")
        )
    headers = {"Cache-Control": f"public, max-age={YEAR}, immutable"}
    return FileResponse(files()[name], headers=headers, media_type=KINDS[Path(name).suffix])
