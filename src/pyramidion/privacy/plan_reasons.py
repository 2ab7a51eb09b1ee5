"""Why a plan is as it is, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyramidion.privacy.contributions import hidden_of

if TYPE_CHECKING:
    from pyramidion.privacy.plan import Plan
    from pyramidion.privacy.proposals import Alternative

LITTLE_HIDDEN = 4.0
"""ε beyond which an attacker who knows much already is told nearly everything."""

_FEW = 6
_NAMES = {"gaussian": "Gaussian", "laplace": "Laplace"}


def reasons(plan: Plan) -> tuple[str, ...]:
    """One sentence for each choice, and for what should be known before it is taken."""
    parts = (_noise, _people, _sketch, _windows, _shards, _shares, _tables, _epsilon)
    return tuple(sentence for part in parts for sentence in part(plan))


def _cheapest(plan: Plan) -> dict[str, Alternative]:
    """The cheapest alternative with each noise."""
    found: dict[str, Alternative] = {}
    for alternative in plan.alternatives:
        found.setdefault(alternative.mechanism, alternative)
    return found


def _noise(plan: Plan) -> Iterator[str]:
    settings, cheapest = plan.settings, _cheapest(plan)
    if not settings.private:
        yield "epsilon is inf, so there is no noise and NO privacy"
        return
    ours, others = _NAMES[settings.mechanism], set(cheapest) - {settings.mechanism}
    if not others:
        yield f"{ours} noise, as delta is 0"
    for other in others:
        yield (
            f"{ours} noise: at its best, and with equal shares, it costs {_whose(plan)} "
            f"{cheapest[settings.mechanism].cost:.4f}, {_NAMES[other]} noise "
            f"{cheapest[other].cost:.4f}"
        )


def _people(plan: Plan) -> Iterator[str]:
    unit, k = plan.schema.unit, plan.settings.k
    if unit is None or not plan.settings.private:
        return
    hidden = hidden_of(plan.schema, plan.settings)
    yield (
        f"noise hides {hidden:,} rows of a person (column {unit!r}) in a window: {k:,} in each of "
        f"the {hidden // k:,} blocks that a window touches"
    )


def _whose(plan: Plan) -> str:
    if plan.target is None:
        return "a row's probabilities"
    return "a typical key's probability in the worst table"


def _sketch(plan: Plan) -> Iterator[str]:
    settings = plan.settings
    if all(table.kind == "dense" for table in plan.tables):
        return
    flat = settings.levels is None
    alike = [a for a in plan.alternatives if a.mechanism == settings.mechanism]
    same = [a for a in alike if (a.windows == "flat") == flat]
    others = [
        f"{a.cost:.4f} with {a.rows}" + (" of count-min" if a.sketch == "count-min" else "")
        for a in sorted(same, key=lambda a: a.rows)
        if (a.rows, a.sketch) != (settings.rows, settings.sketch)
    ]
    rows = "1 hash row" if settings.rows == 1 else f"{settings.rows} hash rows"
    told = f"{rows} of {settings.buckets:,} buckets, {settings.sketch}"
    yield told + (f": it would cost {', '.join(others)}" if others else "")


def _windows(plan: Plan) -> Iterator[str]:
    settings, levels, kept = plan.settings, plan.settings.levels, plan.expected.windows
    if levels is None or not settings.private:
        return
    shares = ", ".join(f"{share:.3f}" for share in levels.shares)
    alike = [a for a in plan.alternatives if a.mechanism == settings.mechanism]
    flat = [a for a in alike if a.windows == "flat"]
    costs = f"; flat windows would cost {flat[0].cost:.4f}" if flat else ""
    yield (
        f"a tree of windows, radix {levels.radix}, {levels.depth} levels that have {shares} of the "
        f"budget: {kept:,} windows summed have the noise of {plan.window_noise:.1f} and not of "
        f"{kept:,}; it takes {levels.depth} tables in memory for one, and {plan.writes:,} rows are "
        f"counted for {plan.expected.rows:,}{costs}"
    )


def _shards(plan: Plan) -> Iterator[str]:
    settings = plan.settings
    if settings.shards == 1 or not settings.private:
        return
    alone = plan.on_shards(1)
    yield (
        f"{settings.shards} shards, each with noise of its own: the sum has {settings.shards} "
        f"times the noise variance of one store, which would cost a row's probabilities "
        f"{alone:.4f} and not {plan.cost:.4f}"
    )


def _shares(plan: Plan) -> Iterator[str]:
    shares = dict(plan.settings.shares or ())
    if shares:
        most = max(shares, key=lambda name: shares[name])
        yield f"shares by the size of a typical key: the largest is that of {most}"
    elif plan.settings.private and plan.settings.weights != "equal" and len(plan.tables) > 1:
        yield (
            "predicted for equal shares: not all distinct values are known, so the store's "
            f"weights ({plan.settings.weights}) will decide"
        )


def _tables(plan: Plan) -> Iterator[str]:
    guessed = [table.name for table in plan.tables if table.guessed]
    if guessed:
        named = "; ".join(guessed) if len(guessed) <= _FEW else f"{len(guessed)} tables"
        yield f"it is guessed how many distinct values there are in {named}: tell them if you can"
    worst = plan.worst
    yield (
        f"{worst.name} fares worst: a typical key has {worst.typical:,.0f} rows, and noise and "
        f"collisions move its probability by {worst.cost:.4f}"
    )


def _epsilon(plan: Plan) -> Iterator[str]:
    if plan.target is not None:
        yield f"within {plan.target:g} in every table takes epsilon {plan.epsilon:g}"
    if plan.settings.private and plan.epsilon > LITTLE_HIDDEN:
        yield f"epsilon {plan.epsilon:g} hides little from an attacker who knows much already"
