"""An exposure report in words: the sentences and tables that the terminal and the page share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from pyramidion.config.durations import EPOCH
from pyramidion.store.exposure.exposed import OPEN, Exposure, WindowExposed

SHOWN = 8  # rows of a table; the others are summed up
WHERE = {"store": "the store's machine", "edge": "an edge", "tables": "sealed tables alone"}
WHO = {
    "store": "An intruder on the store's machine",
    "edge": "An intruder on an edge",
    "tables": "Somebody who saw the tables",
}


class Part(NamedTuple):
    """A table of the report: its name, its head, and what stands below it."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    more: str = ""


def moment(micros: int | None) -> str:
    """A time in UTC, no longer than it needs to be.

    >>> moment(86_400_000_000), moment(86_460_000_000), moment(1_500_000), moment(None)
    ('1970-01-02', '1970-01-02 00:01', '1970-01-01 00:00:01.5', '-')
    """
    if micros is None:
        return "-"
    told = (EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0")
    return told.removesuffix(".").removesuffix(":00").removesuffix(":0").removesuffix(" 00:00")


def several(number: int, noun: str) -> str:
    """A number and its noun.

    >>> several(1, "row"), several(2_000, "row"), several(0, "row")
    ('1 row', '2,000 rows', 'no row')
    """
    if not number:
        return f"no {noun}"
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def promise(epsilon: float, delta: float) -> str:
    """What tables promise, short.

    >>> promise(1.0, 1e-9), promise(math.inf, 1.0)
    ('(1, 1e-09)', 'none')
    """
    return f"({epsilon:.6g}, {delta:g})" if epsilon < math.inf else "none"


# --- sentences ----------------------------------------------------------------------------


def sentences(found: Exposure) -> list[str]:
    """The report in a few sentences, the most important one first."""
    told = [_raw(found), _learned(found), _tables(found), _subtracted(found), _vault(found)]
    return [sentence for sentence in (*told, _forgotten(found), *_unknown(found)) if sentence]


def _raw(found: Exposure) -> str:
    between = f"{WHO[found.component]} between {moment(found.start)} and {moment(found.stop)} (UTC)"
    if found.component != "store" or not found.hot:
        return f"{between} could read no raw observation."
    bound = "" if found.exact else "at most "
    rows = f"{bound}{several(found.rows, 'raw observation')}"
    came = f"{bound}{found.arrived:,} of them" if found.arrived else "none of them"
    return f"{between} could read {rows}; {came} arrived during that time."


def _learned(found: Exposure) -> str:
    if found.component == "tables":
        return ""
    if not found.models.registered:
        return "No model was registered."
    names = sorted({model.name for model in found.models.registered if model.name is not None})
    rows = several(found.models.rows, "observation")
    if any(model.name is None for model in found.models.registered):
        return f"Models there may have been can have learned from at most {rows}."
    noun = "Model" if len(names) == 1 else "Models"
    return f"{noun} {', '.join(names)} can have learned from at most {rows}."


def _tables(found: Exposure) -> str:
    if not found.windows:
        return "No table was visible."
    seen = f"The tables of {several(len(found.windows), 'window')} were visible"
    if found.epsilon == math.inf:
        return f"{seen}: they promise nothing, for ε is infinite."
    private = f"{promise(found.epsilon, found.delta)}-differentially private for any"
    if found.unit is None:
        return f"{seen}: {private} {several(found.k, 'observation')}."
    return f"{seen}: {private} person, in all of them together."


def _subtracted(found: Exposure) -> str:
    if not found.later:
        return ""
    rows = several(found.later, "observation")
    goes_on = any(window.later and window.frozen is None for window in found.windows)
    remedy = " It goes on: run `pyramidion reseed`." if goes_on else ""
    return (
        f"Afterwards at most {rows} came into tables that could be seen while they were "
        f"populating: who kept these and gets later ones can subtract, and knows the exact counts "
        f"of what came between.{remedy}"
    )


def _vault(found: Exposure) -> str:
    told = []
    if found.vault.files:
        files, rows = several(found.vault.files, "file"), several(found.vault.rows, "observation")
        told.append(f"The vault had {files} with {rows}, sealed: no key here opens them.")
    grants = found.vault.grants or ()
    if there := sum(grant.why == OPEN for grant in grants):
        told.append(f"Open then: {several(there, 'grant')} to read it.")
    if others := len(grants) - there:
        told.append(
            f"Given earlier or later to a broker that ran then: {several(others, 'grant')}; who "
            f"copied its memory has the keys of their files."
        )
    return " ".join(told)


def _forgotten(found: Exposure) -> str:
    gone = found.forgotten
    parts = []
    if gone.steps or gone.unrecorded:
        rows = f"{several(gone.step_rows, 'observation')} of {several(gone.steps, 'hot step')}"
        parts += [rows] if gone.steps else []
        if gone.unrecorded:
            parts.append(f"{several(gone.unrecorded, 'older hot step')} of which no record is kept")
    if gone.windows:
        parts.append(f"the tables of {several(len(gone.windows), 'window')}")
    return (
        f"Forgotten before: {', '.join(parts)}." if parts else "Nothing had been forgotten before."
    )


def _unknown(found: Exposure) -> Iterator[str]:
    for gap in found.gaps:
        since = "" if gap.start is None else f" from {moment(gap.start)}"
        until = "" if gap.stop is None else f" until {moment(gap.stop)}"
        yield f"The record is not complete{since}{until}: {gap.why}."


# --- tables -------------------------------------------------------------------------------


def parts(found: Exposure) -> list[Part]:
    """The tables of the report, those alone that have something in them."""
    told = [_hot(found), _models(found), _windows(found), _grants(found)]
    return [part for part in told if part.rows]


def _hot(found: Exposure) -> Part:
    rows = [
        [
            f"{part.step}",
            moment(part.first),
            moment(part.last),
            _bound(part.rows, part.exact),
            _bound(part.arrived, part.exact),
            "still hot" if part.gone is None else moment(part.gone),
        ]
        for part in found.hot
    ]
    more = found.hot[:-SHOWN]
    total = several(sum(part.rows for part in more), "observation")
    return Part(
        "Raw observations that could be read",
        ["hot step", "arrived from", "to", "observations", "came during it", "gone since"],
        rows[-SHOWN:],
        f"and {several(len(more), 'older step')} with {total}" if more else "",
    )


def _bound(number: int, exact: bool) -> int | str:
    return number if exact or not number else f"≤ {number:,}"


def _models(found: Exposure) -> Part:
    rows = [
        [
            model.name or "(not recorded)",
            moment(model.since) if model.since else "-",
            "still registered" if model.until is None else moment(model.until),
            _bound(found.models.rows, exact=False),
        ]
        for model in found.models.registered
    ]
    more = f"and {several(len(rows) - SHOWN, 'more')}".removesuffix("s") if rows[SHOWN:] else ""
    head = ["model", "registered from", "to", "learned from"]
    return Part("Models", head, rows[:SHOWN], more)


def _windows(found: Exposure) -> Part:
    rows = [
        [
            f"{window.number}",
            moment(window.start),
            moment(window.stop),
            ", then ".join(window.states),
            window.rows,
            _noisy(window),
            promise(window.epsilon, window.delta),
            _bound(window.later, exact=False),
        ]
        for window in found.windows
    ]
    more = rows[:-SHOWN]
    return Part(
        "Windows whose tables were visible",
        ["window", "from", "to", "it was", "took", "noisy total", "(ε, δ)", "came later"],
        rows[-SHOWN:],
        f"and {several(len(more), 'older window')}, all sealed then" if more else "",
    )


def _noisy(window: WindowExposed) -> str:
    if window.noisy_rows is None or window.noise is None:
        return "forgotten since" if window.erased is not None else "-"
    return f"{window.noisy_rows:,} ± {window.noise:,.0f}"


def _grants(found: Exposure) -> Part:
    rows = [
        [grant.grant, moment(grant.since), moment(grant.until), grant.opened, grant.why]
        for grant in found.vault.grants or ()
    ]
    more = f"and {len(rows) - SHOWN:,} more" if rows[SHOWN:] else ""
    head = ["grant", "from", "to", "used", "why"]
    return Part("Grants of the vault's rows", head, rows[:SHOWN], more)
