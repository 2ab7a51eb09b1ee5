"""The first steps on an empty service: rows, a drafted schema, a plan, and a stream of them.

What was chosen travels from page to page in the forms: nothing is kept here until the stream is
made, and of the rows that a draft is made for, nothing then either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from pyramidion.config import toml
from pyramidion.config.schema import Schema
from pyramidion.errors import FormatError, PyramidionError
from pyramidion.web.bodies import CSV, TOML
from pyramidion.web.dashboard.curl_commands import SAMPLE, Commands
from pyramidion.web.dashboard.layout import Link
from pyramidion.web.dashboard.pages import Pages, Visit
from pyramidion.web.errors import public_message
from pyramidion.web.service.schema_files import SCHEMA_BYTES, schema_file
from pyramidion.web.service.service import refuse_name

pages = Pages()
HERE = "/first-steps"
MARK = "# CHANGE:"
LENGTHS = {
    "rows": "so many rows",
    "1d": "a day",
    "7d": "a week",
    "30d": "30 days",
}
"""How long a count window may be, as the form offers it."""
FIELDS = ("name", "sample", "schema", "window", "hot", "retention", "epsilon", "target")


@dataclass
class Choices:
    """What a person has chosen so far, as text."""

    name: str = ""
    file: str = "rows.csv"
    lines: str = ""
    """Rows of the file, as the browser counted them."""
    sample: str = ""
    schema: str = ""
    length: str = "rows"
    window: str = "1000"
    hot: str = "2000"
    retention: str = "365"
    by: str = "epsilon"
    epsilon: str = "1"
    target: str = "0.05"
    wrong: dict[str, str] = field(default_factory=dict)
    """What is wrong with which field."""

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Choices:
        """What a form says."""
        made = cls()
        for name in cls.__dataclass_fields__.keys() & form.keys() - {"wrong"}:
            setattr(made, name, form[name])
        return made

    def suggest(self) -> None:
        """Windows of half the file's rows, so that it fills two and a model can be asked."""
        if self.lines.isdecimal() and len(self.lines) < 16 and int(self.lines) >= 2:
            self.window = str(max(1, int(self.lines) // 2))
            self.hot = str(max(1, min(int(self.lines), 100_000)))

    @property
    def changes(self) -> list[tuple[int, str]]:
        """The lines of the schema that are still marked."""
        lines = enumerate(self.schema.splitlines(), 1)
        return [(number, line.partition(MARK)[2].strip()) for number, line in lines if MARK in line]

    @property
    def query(self) -> dict[str, str]:
        """What is asked of the planner."""
        return {"rows": self.window, self.by: self.epsilon if self.by == "epsilon" else self.target}

    @property
    def text(self) -> str:
        """The schema file, with the settings that are chosen here."""
        length = f"{self.window} rows" if self.length == "rows" else self.length
        knobs = {"count_window": length, "hot_rows": int(self.hot)}
        knobs |= {"retention": f"{self.retention}d"}
        return f"{self.schema.rstrip()}\n\n{toml.written({'settings': knobs})}"

    def refuse_wrong(self) -> None:
        """Find out what is wrong with which field, before the planner is asked."""
        self.schema = self.schema.replace("\r\n", "\n")
        for name in ("window", "hot", "retention"):
            text = getattr(self, name)
            if not text.isdecimal() or len(text) > 13 or not 1 <= int(text) <= 10**12:
                self.wrong[name] = "This must be a whole number of at least 1."
        if self.length not in LENGTHS or self.by not in ("epsilon", "target"):
            raise FormatError("the form cannot be read; open the page again, and send it")
        for name, wanted in (("epsilon", "1"), ("target", "0.05")):
            if name == self.by and not _number(getattr(self, name)):
                self.wrong[name] = f"This must be a number above 0, such as {wanted}."
        try:
            if len(self.schema) > SCHEMA_BYTES:
                raise FormatError(f"a schema has {SCHEMA_BYTES} letters at most; shorten it")
            told = schema_file(self.schema.encode(), TOML)
            if told.pop("settings", None) is not None:
                raise FormatError("the fields below say the settings; leave out [settings]")
            Schema.from_dict(told)
        except PyramidionError as problem:
            self.wrong["schema"] = sentence(problem)


def _number(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def sentence(problem: PyramidionError) -> str:
    """An error as a page says it."""
    text = public_message(problem)
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def commands_of(visit: Visit) -> Commands:
    """Commands for this service, at the address that the browser knows it by."""
    return Commands(str(visit.request.base_url))


@pages.add("GET", HERE, "admin", link=Link("First steps", 10))
async def first_steps(visit: Visit) -> Response:
    """The first of the first steps: a name, and the first rows of a CSV."""
    return _asked(visit, Choices())


def _asked(visit: Visit, chosen: Choices, status: int = 200) -> Response:
    commands = commands_of(visit)
    return visit.show(
        "first_draft.html",
        status,
        step=1,
        chosen=chosen,
        lines=SAMPLE,
        draft=commands.draft(chosen.file, chosen.name or "NAME"),
    )


@pages.add("POST", f"{HERE}/draft", "admin")
async def first_draft(visit: Visit) -> Response:
    """Draft the schema, and plan for it as it stands."""
    chosen = Choices.of(visit.form)
    try:
        refuse_name(chosen.name)
    except PyramidionError as problem:
        chosen.wrong["name"] = sentence(problem)
        return _asked(visit, chosen, problem.status)
    try:
        told = await visit.ask("POST", "/drafts", body=chosen.sample.encode(), kind=CSV)
    except PyramidionError as problem:
        chosen.wrong["sample"] = sentence(problem)
        return _asked(visit, chosen, problem.status)
    chosen.schema = told["toml"]
    chosen.suggest()
    return await _planned(visit, chosen)


@pages.add("POST", f"{HERE}/plan", "admin")
async def first_plan(visit: Visit) -> Response:
    """The plan for what is chosen now."""
    return await _planned(visit, Choices.of(visit.form))


async def _planned(visit: Visit, chosen: Choices) -> Response:
    return _shown(visit, chosen, await _plan(visit, chosen))


def _shown(visit: Visit, chosen: Choices, plan: Any) -> Response:
    commands, name = commands_of(visit), chosen.name
    written: dict[str, str] = {}
    if plan is not None:
        written = {
            "schema": commands.schema(name, chosen.text),
            "plan": commands.plan(name, chosen.query),
            "create": commands.create(name, chosen.query),
        }
    return visit.show(
        "first_plan.html",
        422 if chosen.wrong else 200,
        step=2,
        chosen=chosen,
        plan=plan,
        commands=written,
        lengths=LENGTHS,
    )


async def _plan(visit: Visit, chosen: Choices) -> Any:
    """The plan, or None where a field is wrong."""
    try:
        refuse_name(chosen.name)
    except PyramidionError as problem:
        chosen.wrong["name"] = sentence(problem)
    chosen.refuse_wrong()
    if chosen.wrong:
        return None
    body = chosen.text.encode()
    try:
        return await visit.ask("POST", "/plans", query=chosen.query, body=body, kind=TOML)
    except PyramidionError as problem:
        chosen.wrong[_field(str(problem), chosen.by)] = sentence(problem)
        return None


def _field(message: str, by: str) -> str:
    """Which field a sentence is about."""
    first = message.partition(" ")[0].strip("`")
    known = {"count_window": "window", "hot_rows": "hot", "rows": "window"}
    if first in known or first in FIELDS:
        return known.get(first, first)
    return "target" if by == "target" and "target" in message else "plan"


@pages.add("POST", f"{HERE}/create", "admin")
async def first_create(visit: Visit) -> Response:
    """Make the stream, and go on with its rows."""
    chosen = Choices.of(visit.form)
    plan = await _plan(visit, chosen)
    if plan is None:
        return _shown(visit, chosen, None)
    if chosen.changes and visit.form.get("seen") != "yes":
        chosen.wrong["seen"] = "Lines are still marked CHANGE: go through them, and say so here."
        return _shown(visit, chosen, plan)
    body = f"{chosen.schema}\n\n{plan['toml']}".encode()
    try:
        await visit.ask("PUT", "/streams/{new}", body=body, kind=TOML, new=chosen.name)
    except PyramidionError as problem:
        chosen.wrong["name" if " name" in str(problem) else "plan"] = sentence(problem)
        return _shown(visit, chosen, plan)
    return visit.go(f"/streams/{chosen.name}/first-steps?{urlencode({'file': chosen.file})}")
