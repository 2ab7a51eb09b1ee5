"""The first steps as commands for a shell: what a page does, by `curl`, to be copied and run.

The token is in a file ``auth``, as the guide makes it, so that it stands in no list of processes.
Whatever a person chose is quoted.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from pyramidion.web.bodies import CSV, TOML

SAMPLE = 200
"""Lines of a file that a schema is drafted for."""
AS_CSV, AS_TOML = f'-H "Content-Type: {CSV}"', f'-H "Content-Type: {TOML}"'
_PLAIN = re.compile(r"[A-Za-z0-9:/._{}\[\]-]+")  # nothing in it that a shell would change
_PLACE = re.compile(r"\{(\w+)\}")  # filled in one pass: a value with a place in it stays quoted
GIVE_TOML = f'-H "Accept: {TOML}"'


class Command(NamedTuple):
    """A command with places in it, for the page's script to fill again as a person types."""

    template: str
    values: Mapping[str, str]

    @property
    def text(self) -> str:
        """The command as it stands."""
        return _PLACE.sub(
            lambda place: (
                shlex.quote(self.values[place[1]]) if place[1] in self.values else place[0]
            ),
            self.template,
        )


class Commands:
    """The commands for a service at an address."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def _curl(self, path: str, *words: str, query: Mapping[str, str] | None = None) -> str:
        address = f"{self._url}/v1{path}" + (f"?{urlencode(query)}" if query else "")
        word = address if _PLAIN.fullmatch(address) else shlex.quote(address)
        return " ".join(("curl -sS", word, "-H @auth", *words))

    def draft(self, file: str, name: str) -> Command:
        """Have a schema drafted."""
        curl = self._curl("/drafts", AS_CSV, GIVE_TOML, "--data-binary @-")
        template = f"head -n {SAMPLE} ./{{file}} | {curl} -o {{name}}.toml"
        return Command(template, {"file": file, "name": name})

    def schema(self, name: str, text: str) -> str:
        """Write a schema file as it stands on the page."""
        lines = text.rstrip("\n").split("\n")
        end = next(f"END{n}" for n in range(len(lines) + 1) if f"END{n}" not in lines)
        return "\n".join((f"cat > {name}.toml <<'{end}'", *lines, end))

    def plan(self, name: str, query: Mapping[str, str]) -> str:
        """See the plan."""
        return self._curl("/plans", AS_TOML, f"--data-binary @{name}.toml", query=query)

    def create(self, name: str, query: Mapping[str, str]) -> str:
        """Write the planned settings into the schema file, and make the stream of it."""
        sent, planned = f"--data-binary @{name}.toml", f"{name}.planned.toml"
        plan = self._curl("/plans", AS_TOML, GIVE_TOML, sent, f"-o {planned}", query=query)
        made = self._curl(f"/streams/{name}", AS_TOML, f"--data-binary @{planned}")
        return f"{plan}\n{made} -X PUT"

    def observe(self, name: str, file: str) -> Command:
        """Send a file, and have done what is due then."""
        sent = ('-H "Idempotency-Key: "{key}', "--data-binary @{file}")
        observed = self._curl(f"/streams/{name}/observations", AS_CSV, *sent)
        template = f"{observed}\n{self._curl(f'/streams/{name}/advance')} -X POST"
        return Command(template, {"key": plain(file), "file": file})

    def register(self, name: str, model: str, recipe: Mapping[str, Any]) -> Command:
        """Register a model."""
        template = f"{self._curl(f'/streams/{name}/models/{{model}}')} --json {{recipe}} -X PUT"
        return Command(template, {"model": model, "recipe": json.dumps(recipe)})

    def predict(self, name: str, model: str, rows: str) -> Command:
        """Ask a model for one row."""
        header, _, row = rows.rstrip("\r\n").partition("\n")
        path = f"/streams/{name}/models/{{model}}/predictions"
        curl = self._curl(path, AS_CSV, "--data-binary @-")
        template = f"printf '%s\\n' {{header}} {{row}} | {curl}"
        return Command(template, {"header": header, "row": row, "model": model})


def plain(text: str) -> str:
    """What may stand in a header.

    >>> plain("größe.csv")
    'gr__e.csv'
    """
    return "".join(each if each.isascii() and each.isprintable() else "_" for each in text)


def one_row(row: Mapping[str, str]) -> str:
    """A header and a row as CSV.

    >>> one_row({"shop": "north", "item": "a, b"})
    'shop,item\\nnorth,"a, b"\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((row.keys(), row.values()))
    return text.getvalue()
