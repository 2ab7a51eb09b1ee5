"""``/docs``: the OpenAPI document as one page, rendered here.

The usual pages load scripts from elsewhere, which a closed network does not reach and a careful
one does not run; this one has no scripts at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}code,pre{font:14px/1.4 ui-monospace,monospace}"
    "pre{background:#f5f5f5;padding:.7em;overflow-x:auto}h2{font-size:1.05em;margin:1.6em 0 0}"
    "b{display:inline-block;min-width:4.5em}p{margin:.2em 0}summary{cursor:pointer}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}pre{background:#2a2a2a}"
    "a{color:#8bf}}"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def page(document: Mapping[str, Any]) -> str:
    """The page."""
    about = document["info"]
    title = f"{escape(about['title'])} {escape(about['version'])}"
    shapes = document["components"]["schemas"]
    parts = [*_routes(document), "<h1>Shapes</h1>", *map(_shape, shapes.items())]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{title}</h1><p>Send <code>Authorization: Bearer TOKEN</code>. For programs: "
        f'<a href="/openapi.json">openapi.json</a>.</p>{"".join(parts)}</html>'
    )


def _routes(document: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in sorted(document["paths"].items()):
        for method, told in methods.items():
            who = escape(told.get("description", "Who may: anybody."))
            yield (
                f"<h2><b>{method.upper()}</b> <code>{escape(path)}</code></h2>"
                f"<p>{escape(told.get('summary', ''))} {who}</p>"
            )
            details = {
                "asks": told.get("parameters"),
                "takes": told.get("requestBody", {}).get("content"),
                "gives": {code: a.get("content") for code, a in told["responses"].items()},
            }
            known = {name: each for name, each in details.items() if each}
            yield f"<details><summary>details</summary>{_pre(known)}</details>"


def _shape(item: tuple[str, Any]) -> str:
    name, shape = item
    return f'<h2 id="{escape(name)}">{escape(name)}</h2>{_pre(shape)}'


def _pre(told: object) -> str:
    return f"<pre>{escape(json.dumps(told, indent=1))}</pre>"
