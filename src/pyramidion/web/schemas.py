"""Bodies of requests and responses as msgspec structs: they decode, and describe for OpenAPI.

Request structs refuse unknown fields. Response structs describe what handlers answer; later
versions may add fields. Times are microseconds since 1970. An infinite privacy budget is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
import starlette.requests
from msgspec import Meta, Struct

from pyramidion.errors import FormatError
from pyramidion.web.bodies import (
    ARROW,
    BYTES,
    CSV,
    JSON,
    LINES,
    NOT_JSON,
    TOML,
    body_of,
    kind_of,
    refuse_other_kind,
)
from pyramidion.web.limits import Limits
from pyramidion.web.tokens import ROLES

S = TypeVar("S", bound=Struct)

# --- values ---------------------------------------------------------------------------------

Count = Annotated[int, Meta(ge=0)]
Time = Annotated[int | None, Meta(description="microseconds since 1970")]
Value = str | float | bool | None
Names = list[str]
Free = dict[str, Any]
Binary = Annotated[str, Meta(extra_json_schema={"format": "binary"})]
RoleName = Annotated[str, Meta(extra_json_schema={"enum": list(ROLES)})]
"""Checked by `pyramidion.web.tokens`, which names the nearest role."""
Row = Annotated[
    dict[str, Value], Meta(description="values by the names of columns, as the schema has them")
]


class OneOf(NamedTuple):
    """Alternatives that are told apart by their contents."""

    types: tuple[Any, ...]
    description: str


class Body(NamedTuple):
    """A request or response body: its type by content type."""

    kinds: Mapping[str, Any]


class Param(NamedTuple):
    """A parameter of the query, the path or a header."""

    name: str
    about: str
    type: Any = str
    place: str = "query"
    needed: bool = False


def json_of(type_: Any) -> Body:
    """JSON alone."""
    return Body({JSON: type_})


# --- requests -------------------------------------------------------------------------------


class Request(Struct, forbid_unknown_fields=True):
    """A JSON body that has no other fields."""


class Vector(Request):
    """The features of one row, ready-made."""

    features: list[float]


class SchemaFile(Request):
    """The text of a schema file, and settings instead of its [settings] table."""

    schema: str
    settings: Free | None = None


class Workload(Request):
    """What a model learns: the label, and which tables. A group of features is "a,b"."""

    label: str | None = None
    only: Annotated[Names | None, Meta(description='tables; a group as "a,b"')] = None
    without: Annotated[
        Names, Meta(description="features, with every group they are in, and groups")
    ] = []
    merge: Annotated[
        dict[str, list[str | int | float | bool]] | None,
        Meta(description="new classes, each with those it is made of"),
    ] = None


class Recipe(Workload, kw_only=True):
    """A model to register."""

    estimator: Annotated[str, Meta(description="its name, such as LogisticRegression")]
    params: Free = {}


class NewSelection(Request):
    """How much a selection of groups may spend."""

    share: Annotated[
        float, Meta(gt=0, le=1, description="of what windows reserved for it; left out: all")
    ] = 1.0


class NewGroup(Request):
    """Features to count together."""

    features: Annotated[Names, Meta(extra_json_schema={"minItems": 2})]


class Why(Request):
    """A reason, for the record."""

    why: Annotated[str, Meta(min_length=1)]


class ClockAnswer(Request):
    """Which clock is right."""

    answer: Literal["confirm", "correct"]
    why: Annotated[str, Meta(min_length=1)]


class NewRequest(Request, rename={"start": "from", "stop": "to"}):
    """A request for rows of the vault."""

    start: Annotated[str | float, Meta(description="when the first row arrived")]
    stop: Annotated[str | float, Meta(description="up to when, exclusive")]
    columns: Annotated[Names, Meta(min_length=1)]
    reason: Annotated[str, Meta(description="stays in the audit log; must not name a person")]
    engineer: Annotated[str, Meta(description="who asks")]
    key: Annotated[str, Meta(description="the public key of who asks, as `keygen` wrote it")]
    broker: Annotated[str, Meta(description="the broker's public key, as broker.json has it")]


class NewToken(Request):
    """A token to make."""

    name: str
    roles: Annotated[list[RoleName], Meta(extra_json_schema={"minItems": 1})]
    streams: Annotated[
        Names, Meta(description='names; left out or ["*"]: all, also those to come')
    ] = []


# --- responses ------------------------------------------------------------------------------


class ErrorInfo(Struct):
    """An error; never with a value in it."""

    code: Annotated[str, Meta(description="the name of the error, as docs/errors.md has it")]
    message: Annotated[str, Meta(description="what, why and the remedy")]
    problems: Annotated[
        dict[str, list[Count]], Meta(description="rows that cannot be counted, by reason")
    ] = {}


class Error(Struct):
    """The body of every refused request."""

    error: ErrorInfo


class Guarantee(Struct):
    """What an output promises."""

    level: Literal["P1", "P2", "P3"]
    epsilon: float | None
    delta: float
    k: Count
    windows: Count
    unit: str = ""


class Features(Struct):
    """Features of rows."""

    names: Names
    rows: list[list[float]]
    guarantee: Guarantee


class Predictions(Struct):
    """Probabilities of classes, or classes or numbers."""

    model: str
    version: Count
    classes: list[Value] = []
    probabilities: list[list[float]] = []
    predictions: list[Value] = []


class EdgeModel(Struct):
    """A model that an edge holds."""

    name: str
    version: Count
    classes: list[Value]
    expires: Time


class Receipt(Struct):
    """What became of observed rows."""

    accepted: Count
    refused: Count
    late: Count


class Schema(Struct):
    """The schema and the settings of a stream."""

    schema: Free
    settings: Free


class Draft(Struct):
    """A drafted schema."""

    toml: str
    schema: Free
    changes: Annotated[list[Count], Meta(description="lines to check by hand, from 1")]


class Plan(Struct):
    """Proposed settings and what they cost."""

    settings: Free
    target: float | None
    rows: Count
    windows: Count
    skew: float
    cost: float
    tables: list[Free]
    window_bytes: Count
    complete_bytes: Count
    writes: Count
    alternatives: list[Free]
    why: Names
    toml: Annotated[str, Meta(description="the [settings] table")]


class Estimator(Struct):
    """An estimator to choose."""

    estimator: str
    params: Free
    predicts: Literal["probabilities", "numbers"]
    about: str
    installed: bool


class Estimators(Struct):
    """Estimators to choose from."""

    estimators: list[Estimator]


class Window(Struct):
    """A count window."""

    number: Count
    state: Literal["populating", "sealed", "retired", "erased"]
    start: Time
    stop: Time
    rows: Count


class Windows(Struct):
    """The count windows of a stream."""

    windows: list[Window]


class Table(Struct):
    """A complete count table."""

    name: str
    kind: str
    rows: Count
    width: Count
    windows: Count
    deviation: float | None


class NoisyTable(Table):
    """A complete count table, and how large its counts are."""

    typical: Annotated[
        float | None,
        Meta(description="the count in the cell that a row falls into, estimated from noisy cells"),
    ]


class Tables(Struct):
    """The complete count tables of a stream."""

    tables: list[NoisyTable]


class Status(Struct):
    """What a stream holds."""

    stream: str
    at: Time
    hot_rows: Count
    hot_steps: Count
    oldest_hot: Time
    summarised_rows: Count
    windows: list[Window]
    tables: list[Table]
    deletions: Annotated[
        list[Free], Meta(description="of steps, windows and tables; never of a person")
    ]
    guarantee: Guarantee | None
    due: bool
    state: Literal["open", "failed: reopen"]
    clock: Free


class Streams(Struct):
    """Names of streams."""

    streams: Names


class Withdrawn(Struct):
    """A table that was withdrawn, and those that are left."""

    withdrawn: str
    tables: Names


class Clock(Struct):
    """The time that a stream goes by."""

    now: Time
    follows: Literal["nothing", "rows", "system", "given"]
    present: Time
    system: Time
    alarm: Annotated[int | None, Meta(description="since when clocks disagree")]
    problem: str


class Layers(Struct):
    """How many rows an intruder could read, and how."""

    at: Time
    collected: Count
    exposed: Count
    summarised: Count
    retained: Annotated[int, Meta(ge=0, description="in the vault alone")]
    gone: Count
    locked_away: Annotated[int | None, Meta(description="null: there is no vault")]
    waiting: int | None


class Verification(Struct):
    """Whether the audit log is as it was written."""

    entries: Count
    first: str
    head: str
    problems: Names
    sound: bool


class Grant(Struct):
    """A grant to read rows of the vault."""

    grant: str
    at: Time
    engineer: str
    purpose: str
    columns: Names
    files: Count
    first: Time
    last: Time
    expires: Time
    ended: Time
    open: bool
    opened: Count


class Grants(Struct):
    """Grants to read the vault."""

    grants: list[Grant]


_FOR_TRAINERS = Meta(description="for tokens with the role train; null for others")


class Model(Struct):
    """A registered model."""

    name: str
    estimator: Free
    label: str
    only: Names | None
    without: Names
    merge: list[Any]
    classes: list[Value]
    available: bool
    version: Count
    expires: Time
    why: Annotated[str | None, _FOR_TRAINERS]
    rows: Annotated[int | None, _FOR_TRAINERS]
    trained: Annotated[int | None, _FOR_TRAINERS]
    took: Annotated[float | None, _FOR_TRAINERS]


class Models(Struct):
    """The registered models of a stream."""

    models: list[Model]


class RemovedModel(Struct):
    """The name of a model that was removed."""

    removed: str


class Loss(Struct):
    """A model's loss beside the prior's."""

    model: str
    loss: float
    prior: float
    gain: float
    kind: str
    tested: Count
    at: Time
    guarantee: Guarantee


class Group(Struct):
    """A group of features on trial."""

    name: str
    features: Names
    state: Literal["by hand", "trial", "kept", "dropped"]
    windows: Count
    gain: float | None
    error: float | None
    why: str


class Groups(Struct):
    """The groups of a stream, and how those on trial do."""

    groups: list[Names]
    trials: list[Group]


class Selection(Struct):
    """Groups that were selected, and what that cost."""

    groups: Names
    windows: list[Count]
    rows: Count
    unit: str
    charged: float


class Token(Struct):
    """A token, without its secret."""

    id: str
    name: str
    roles: list[RoleName]
    streams: Names
    made: Time


class Tokens(Struct):
    """The tokens of a service."""

    tokens: list[Token]


class TokenText(Struct):
    """The text of a new token; shown once."""

    token: str


class RemovedToken(Struct):
    """A token that was removed."""

    removed: Token


# --- bodies and parameters that several routes share -----------------------------------------

_ROWS = OneOf((Row, list[Row]), "one row, or several")
_ASKED = OneOf(
    (Vector, Row, list[Row]),
    "rows without their label; or the features of one, as /features has them",
)
ROWS = Body({JSON: _ROWS, ARROW: Binary, CSV: str})
ASKED = Body({JSON: _ASKED, ARROW: Binary, CSV: str})
EDGE_ROWS = Body({JSON: _ROWS, ARROW: Binary})
EDGE_ASKED = Body({JSON: _ASKED, ARROW: Binary})
FEATURES = Body({JSON: Features, ARROW: Binary})
PREDICTIONS = Body({JSON: Predictions, ARROW: Binary})
SCHEMA = Body({TOML: str, JSON: SchemaFile})
DRAFTED = Body({JSON: Draft, TOML: str})
PLANNED = Body({JSON: Plan, TOML: str})
TRAINING = Body({LINES: str, ARROW: Binary})
SIGNED = Body({BYTES: Binary})

WHY = Param("why", "the reason, for the record; it must not name a person", needed=True)
WORKLOAD = (
    Param("label", "which label, where there are several"),
    Param("only", "a table to use; may be repeated", Names),
    Param("without", "a feature or group to leave out; may be repeated", Names),
    Param("merge", 'new classes, as JSON: {"new": ["old", "older"]}'),
)

# --- decoding -------------------------------------------------------------------------------


def format_error(problem: msgspec.ValidationError, type_: type[Struct]) -> FormatError:
    """What is wrong with a body, by the names of our fields: never with a value of it.

    >>> try:
    ...     msgspec.json.decode(b'{"why": 7}', type=Why)
    ... except msgspec.ValidationError as problem:
    ...     print(format_error(problem, Why))
    the field 'why' has a wrong type or value; /docs shows what it takes
    """
    names = [field.encode_name for field in msgspec.structs.fields(type_)]
    message, _, path = str(problem).partition(" - at `$.")
    field = path.rstrip("`").partition(".")[0].partition("[")[0]
    if field in names:
        return FormatError(
            f"the field {field!r} has a wrong type or value; /docs shows what it takes"
        )
    for name in names:
        if message == f"Object missing required field `{name}`":
            return FormatError(f"the field {name!r} is missing; /docs shows what it takes")
    if message.startswith("Object contains unknown field"):
        return FormatError(f"the body has an unknown field; use {', '.join(names)}")
    return FormatError("the body must be a JSON object; send one")


async def struct_of(request: starlette.requests.Request, limits: Limits, type_: type[S]) -> S:
    """The JSON body of a request as a struct."""
    return struct_from(await body_of(request, limits), kind_of(request), type_)


def struct_from(body: bytes, kind: str, type_: type[S]) -> S:
    """A JSON body as a struct; raises a `FormatError` if it is something else."""
    refuse_other_kind(kind)
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as problem:
        error = format_error(problem, type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = FormatError(NOT_JSON)
    raise error  # outside, so that it does not hold the body
