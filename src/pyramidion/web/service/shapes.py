"""What bodies and answers look like, as JSON Schema, for the OpenAPI document.

Times are microseconds since 1970. Amounts of privacy that are infinite are null.
"""

from __future__ import annotations

from pyramidion.web.bodies import ARROW, JSON, LINES
from pyramidion.web.service.access import ROLES
from pyramidion.web.service.csv_bodies import CSV
from pyramidion.web.shapes import (
    BINARY,
    COMMON,
    FLAG,
    FREE,
    NAMES,
    NUMBER,
    SOME,
    TEXT,
    TIME,
    VALUE,
    WHOLE,
    Asked,
    Body,
    Shape,
    closed,
    listed,
    named,
    whole,
)

TOML = "application/toml"
BYTES = "application/octet-stream"

TRAINER: Shape = {"description": "for tokens with the role train; null for others"}
_WORKLOAD: dict[str, Shape] = {
    "label": {"type": ["string", "null"]},
    "only": {"type": ["array", "null"], "items": TEXT, "description": 'tables; a group as "a,b"'},
    "without": listed(TEXT, description="features, with every group they are in, and groups"),
    "merge": {
        "type": ["object", "null"],
        "additionalProperties": listed(VALUE),
        "description": "new classes, each with those it is made of",
    },
}

NAMED: dict[str, Shape] = COMMON | {
    "Receipt": whole(accepted=WHOLE, refused=WHOLE, late=WHOLE),
    "SchemaFile": closed(
        ("schema",),
        schema=TEXT | {"description": "the text of a schema file"},
        settings=FREE | {"description": "instead of its [settings] table"},
    ),
    "Schema": whole(schema=FREE, settings=FREE),
    "Draft": whole(
        toml=TEXT,
        schema=FREE,
        changes=listed(WHOLE, description="lines that a person has to go through, from 1"),
    ),
    "Plan": whole(
        settings=FREE,
        target=SOME,
        rows=WHOLE,
        windows=WHOLE,
        skew=NUMBER,
        cost=NUMBER,
        tables=listed(FREE),
        window_bytes=WHOLE,
        complete_bytes=WHOLE,
        writes=WHOLE,
        alternatives=listed(FREE),
        why=NAMES,
        toml=TEXT | {"description": "the [settings] table"},
    ),
    "Estimator": whole(
        estimator=TEXT,
        params=FREE,
        predicts={"enum": ["probabilities", "numbers"]},
        about=TEXT,
        installed=FLAG,
    ),
    "Status": whole(
        stream=TEXT,
        at=TIME,
        hot_rows=WHOLE,
        hot_steps=WHOLE,
        oldest_hot=TIME,
        summarised_rows=WHOLE,
        windows=listed(named("Window")),
        tables=listed(named("Table")),
        deletions=listed(FREE, description="of steps, windows and tables; never of a person"),
        guarantee={"oneOf": [named("Guarantee"), {"type": "null"}]},
        due=FLAG,
        state={"enum": ["open", "failed: reopen"]},
        clock=FREE,
    ),
    "Clock": whole(
        now=TIME,
        follows={"enum": ["nothing", "rows", "system", "given"]},
        present=TIME,
        system=TIME,
        alarm={"type": ["integer", "null"], "description": "since when clocks disagree"},
        problem=TEXT,
    ),
    "ClockAnswer": whole(answer={"enum": ["confirm", "correct"]}, why=TEXT),
    "Layers": whole(
        at=TIME,
        collected=WHOLE,
        exposed=WHOLE,
        summarised=WHOLE,
        retained=WHOLE | {"description": "in the vault alone"},
        gone=WHOLE,
        locked_away={"type": ["integer", "null"], "description": "null: there is no vault"},
        waiting={"type": ["integer", "null"]},
    ),
    "Window": whole(
        number=WHOLE,
        state={"enum": ["populating", "sealed", "retired", "erased"]},
        start=TIME,
        stop=TIME,
        rows=WHOLE,
    ),
    "Table": whole(name=TEXT, kind=TEXT, rows=WHOLE, width=WHOLE, windows=WHOLE, deviation=SOME),
    "NoisyTable": whole(
        name=TEXT,
        kind=TEXT,
        rows=WHOLE,
        width=WHOLE,
        windows=WHOLE,
        deviation=SOME,
        typical=SOME
        | {"description": "the count in the cell that a row falls into, told by noisy cells"},
    ),
    "Verification": whole(entries=WHOLE, first=TEXT, head=TEXT, problems=NAMES, sound=FLAG),
    "Grant": whole(
        grant=TEXT,
        at=TIME,
        engineer=TEXT,
        purpose=TEXT,
        columns=NAMES,
        files=WHOLE,
        first=TIME,
        last=TIME,
        expires=TIME,
        ended=TIME,
        open=FLAG,
        opened=WHOLE,
    ),
    "Recipe": closed(
        ("estimator",),
        estimator=TEXT | {"description": "its name, such as LogisticRegression"},
        params=FREE,
        **_WORKLOAD,
    ),
    "Model": whole(
        name=TEXT,
        estimator=FREE,
        label=TEXT,
        only={"type": ["array", "null"], "items": TEXT},
        without=NAMES,
        merge=listed({}),
        classes=listed(VALUE),
        available=FLAG,
        version=WHOLE,
        expires=TIME,
        why=TRAINER | {"type": ["string", "null"]},
        rows=TRAINER | {"type": ["integer", "null"]},
        trained=TRAINER | TIME,
        took=TRAINER | SOME,
    ),
    "Loss": whole(
        model=TEXT,
        loss=NUMBER,
        prior=NUMBER,
        gain=NUMBER,
        kind=TEXT,
        tested=WHOLE,
        at=TIME,
        guarantee=named("Guarantee"),
    ),
    "Groups": whole(groups=listed(NAMES), trials=listed(named("Group"))),
    "Group": whole(
        name=TEXT,
        features=NAMES,
        state={"enum": ["by hand", "trial", "kept", "dropped"]},
        windows=WHOLE,
        gain=SOME,
        error=SOME,
        why=TEXT,
    ),
    "NewSelection": closed(
        (),
        share={
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "description": "of what windows kept back for it; left out: all",
        },
    ),
    "Selection": whole(groups=NAMES, windows=listed(WHOLE), rows=WHOLE, unit=TEXT, charged=NUMBER),
    "NewGroup": closed(("features",), features=listed(TEXT, minItems=2)),
    "Why": closed(("why",), why=TEXT | {"minLength": 1}),
    "NewRequest": closed(
        ("from", "to", "columns", "reason", "engineer", "key", "broker"),
        **{
            "from": {"type": ["string", "number"], "description": "when the first row arrived"},
            "to": {"type": ["string", "number"], "description": "up to when, not with it"},
            "columns": listed(TEXT, minItems=1),
            "reason": TEXT | {"description": "stays in the audit log; must not name a person"},
            "engineer": TEXT | {"description": "who asks"},
            "key": TEXT | {"description": "the public key of who asks, as `keygen` wrote it"},
            "broker": TEXT | {"description": "the broker's public key, as broker.json has it"},
        },
    ),
    "NewToken": closed(
        ("name", "roles"),
        name=TEXT,
        roles=listed({"enum": list(ROLES)}, minItems=1),
        streams=listed(TEXT, description='names; left out or ["*"]: all, also those to come'),
    ),
    "Token": whole(
        id=TEXT, name=TEXT, roles=listed({"enum": list(ROLES)}), streams=NAMES, made=TIME
    ),
}


ROWS = Body({JSON: named("Rows"), ARROW: BINARY, CSV: TEXT})
ASKED = Body({JSON: named("Asked"), ARROW: BINARY, CSV: TEXT})
SCHEMA = Body({TOML: TEXT, JSON: named("SchemaFile")})
SAMPLE = Body({CSV: TEXT})
DRAFTED = Body({JSON: named("Draft"), TOML: TEXT})
PLANNED = Body({JSON: named("Plan"), TOML: TEXT})
TRAINING = Body({LINES: TEXT, ARROW: BINARY})
LOG = Body({LINES: TEXT})
DRAFT = Body({JSON: FREE})
SIGNED = Body({BYTES: BINARY})

WHY = Asked("why", "the reason, for the record; it must not name a person", needed=True)
WORKLOAD = (
    Asked("label", "which label, where there are several"),
    Asked("only", "a table to use; may be repeated", listed(TEXT)),
    Asked("without", "a feature or group to leave out; may be repeated", listed(TEXT)),
    Asked("merge", 'new classes, as JSON: {"new": ["old", "older"]}'),
)
