"""Plans for schema files: what the command line and the service ask of the planner, and tell."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyramidion.config.settings import Settings
from pyramidion.privacy.plan import Plan


def settings_in(file: Mapping[str, object], *, told: bool) -> Settings | None:
    """A schema file's own settings, if it has any; an ε or a target that is told goes first.

    >>> settings_in({"settings": {"k": 2}}, told=True).k
    2
    >>> settings_in({}, told=True)
    """
    knobs = file.get("settings")
    if told and isinstance(knobs, Mapping):
        knobs = {**knobs, "epsilon": 1.0}
    return None if knobs is None else Settings.from_dict(knobs)  # type: ignore[arg-type]


def report(planned: Plan) -> dict[str, object]:
    """A plan in plain values, its settings as text, and the ε that each table asks for."""
    told = planned.to_dict() | {"toml": planned.to_toml()}
    if planned.target is not None:
        found = [planned.epsilon_for(planned.target, table.name) for table in planned.tables]
        told["epsilon_for_table"] = [e if e < math.inf else None for e in found]
    return told
