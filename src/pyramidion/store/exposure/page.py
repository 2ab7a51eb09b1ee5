"""An exposure report as one page: it needs nothing but itself, and prints on A4.

No script runs and nothing is fetched. All that comes from a store or a person is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from pyramidion.store.exposure.exposed import Exposure
from pyramidion.store.exposure.text import WHERE, Part, moment, parts, promise, sentences
from pyramidion.store.exposure.timeline import drawn, lanes

STYLE = """\
:root { color-scheme: light dark; --page: #fff; --ink: #1f2328; --pale: #59636e; --line: #d8dee4;
  --soft: #f5f7f9; --hot: #cf4b32; --model: #8450ba; --populating: #dfa11b; --sealed: #4a86c5;
  --shade: #cf4b3226; --edge: #cf4b32 }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --ink: #e6e9ec; --pale: #9aa4af;
  --line: #343b43; --soft: #1e2329; --hot: #ee7059; --model: #b08ae0; --populating: #e3b341;
  --sealed: #6ca8e6; --shade: #ee705930; --edge: #ee7059 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1.25rem; max-width: 62rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
h1 { margin: 0; font-size: 1.55rem; line-height: 1.25 }
h2 { margin: 1.6rem 0 .4rem; font-size: 1.02rem }
p { margin: .45rem 0 }
.of { color: var(--pale); margin: .25rem 0 1.1rem }
.lead { font-size: 1.12rem; border-left: 4px solid var(--hot); padding: .15rem 0 .15rem .9rem }
.calm .lead { border-color: var(--sealed) }
.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: .7rem; margin: 1.1rem 0;
  padding: 0; list-style: none }
.figures li { background: var(--soft); border-radius: 8px; padding: .65rem .85rem }
.figures b { display: block; font-size: 1.4rem; line-height: 1.25;
  font-variant-numeric: tabular-nums }
.figures span { color: var(--pale); font-size: .84rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums }
th, td { padding: .26rem 1.4rem .26rem 0; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top }
th { color: var(--pale); font-weight: 600 }
th.right, td.right { text-align: right }
.more, footer { color: var(--pale); font-size: .85rem }
footer { margin-top: 1.6rem; border-top: 1px solid var(--line); padding-top: .7rem }
svg { width: 100%; min-width: 38rem; height: auto; display: block }
svg text { font-size: 11.5px; fill: var(--ink) }
svg .name { text-anchor: end } svg .tick, svg .attack, svg .when { text-anchor: middle }
svg .tick, svg .number, svg .when { fill: var(--pale) }
svg .attack { fill: var(--edge); font-weight: 600 }
svg .grid { stroke: var(--line) } svg .shade { fill: var(--shade) }
svg .edge { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 3 2 }
svg text.cut { fill: var(--page); font-size: 9px }
svg .hot { fill: var(--hot) } svg .model { fill: var(--model) }
svg .populating { fill: var(--populating) } svg .sealed { fill: var(--sealed) }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .3rem 0 0; padding: 0;
  list-style: none; color: var(--pale); font-size: .85rem }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin-right: .4em }
@media (max-width: 40rem) { .figures { grid-template-columns: repeat(2, 1fr) } }
@media print { @page { size: A4; margin: 11mm }
  :root { color-scheme: light; --page: #fff; --ink: #000; --pale: #444; --line: #ccc;
    --soft: #f3f3f3; --hot: #cf4b32; --model: #8450ba; --populating: #dfa11b; --sealed: #4a86c5;
    --shade: #cf4b3226; --edge: #b53a23 }
  html { font-size: 10px }
  body { padding: 0; max-width: none; font-size: 1rem; line-height: 1.35;
    print-color-adjust: exact; -webkit-print-color-adjust: exact }
  h2 { margin-top: 1rem } .figures { margin: .6rem 0 } footer { margin-top: 1rem }
  .wide { overflow: visible } svg { min-width: 0; width: 86%; margin: 0 auto }
  table, svg { break-inside: avoid }
  th, td { padding-top: .1rem; padding-bottom: .1rem } }
"""
LEGEND = {
    "hot": "raw observations, readable",
    "model": "model registered",
    "populating": "tables populating",
    "sealed": "tables sealed",
}
OUT = (
    "Where the record is not exact, this report tells more than was exposed, never less, by the "
    "store's clock. It does not tell of copies that people made of rows, training sets, models or "
    "backups, of an intruder who was there before the interval, or of what the timing of answers "
    "gives away."
)


def page(found: Exposure, name: str) -> str:
    """The whole page about a store of this name."""
    title = f"Exposure of {name}, {moment(found.start)} to {moment(found.stop)}"
    calm = ' class="calm"' if not found.rows and not found.models.rows else ""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"{calm}>',
            '<head><meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>{escape(title)}</title>",
            f"<style>\n{STYLE}</style></head>",
            "<body><main>",
            *_top(found, name),
            *_picture(found),
            *(line for part in parts(found) for line in _table(part)),
            *_columns(found),
            f"</main><footer><p>{escape(OUT)}</p></footer></body>",
            "</html>\n",
        ]
    )


def _top(found: Exposure, name: str) -> Iterator[str]:
    first, *others = sentences(found)
    between = f"{moment(found.start)} to {moment(found.stop)} UTC"
    yield f"<h1>What was exposed, {between}</h1>"
    told = f"Store {name} · intruder on {WHERE[found.component]} · as known at {moment(found.at)}"
    yield f'<p class="of">{escape(told)}</p>'
    yield f'<p class="lead">{escape(first)}</p>'
    yield f'<ul class="figures">{"".join(_figures(found))}</ul>'
    yield from (f"<p>{escape(sentence)}</p>" for sentence in others)


def _figures(found: Exposure) -> Iterator[str]:
    bound = "" if found.exact else "≤ "
    rows = found.rows if found.component == "store" else found.models.rows
    what = "raw observations readable" if found.component == "store" else "observations in models"
    figures = [(f"{bound if rows else ''}{rows:,}", what)]
    if found.component == "store":
        came = f"{bound if found.arrived else ''}{found.arrived:,}"
        figures.append((came, "of them arrived during it"))
    figures.append((f"{len(found.windows):,}", "windows with visible tables"))
    told = promise(found.epsilon, found.delta) if found.windows else "–"
    figures.append((told, "(ε, δ) of these tables"))
    if found.component != "store":
        figures.append((f"{len(found.forgotten.windows):,}", "windows forgotten before"))
    for number, name in figures:
        yield f"<li><b>{escape(number)}</b><span>{escape(name)}</span></li>"


def _picture(found: Exposure) -> Iterator[str]:
    kinds = {bar.kind for _, rows in lanes(found) for row in rows for bar in row.bars}
    yield "<h2>Timeline</h2>"
    yield f'<div class="wide">{drawn(found)}</div>'
    keys = "".join(
        f'<li><i style="background: var(--{kind})"></i>{told}</li>'
        for kind, told in LEGEND.items()
        if kind in kinds
    )
    yield f'<ul class="legend">{keys}</ul>' if keys else ""


def _table(part: Part) -> Iterator[str]:
    columns = zip(*part.rows, strict=True)
    right = [
        all(isinstance(cell, int) or str(cell)[:1] == "≤" for cell in each) for each in columns
    ]
    yield f"<h2>{escape(part.name)}</h2>"
    heads = "".join(
        f'<th scope="col"{_side(side)}>{escape(cell)}</th>'
        for cell, side in zip(part.head, right, strict=True)
    )
    yield f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>'
    for row in part.rows:
        told = [f"{cell:,}" if isinstance(cell, int) else escape(str(cell)) for cell in row]
        cells = (f"<td{_side(side)}>{c}</td>" for c, side in zip(told, right, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    if part.more:
        yield f'<p class="more">{escape(part.more)}</p>'


def _side(right: bool) -> str:
    return ' class="right"' if right else ""


def _columns(found: Exposure) -> Iterator[str]:
    if found.columns and found.hot:
        names = ", ".join(found.columns)
        yield f"<h2>Columns of the raw observations</h2><p>{escape(names)}</p>"
