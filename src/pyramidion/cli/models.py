"""``models``: which there are, and what they need. Their recipes are stored, nothing else is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyramidion.cli.options import (
    Commands,
    Parser,
    add_quiet,
    add_store,
    add_workload,
    json_object,
    opened,
    workload_of,
)
from pyramidion.cli.output import date, remark, several, table, warn
from pyramidion.errors import PyramidionError

if TYPE_CHECKING:
    from pyramidion.learn.curves import LearningCurve
    from pyramidion.learn.losses import Loss
    from pyramidion.learn.models import Model
    from pyramidion.learn.workload import Workload
    from pyramidion.store.pyramid import Pyramid

WIDE = 50  # letters of an estimator that a list shows
BAR = 30  # letters of the longest bar
ASKED = "trained when asked"
P1 = "these losses were measured on hot rows (P1); forget them when the rows leave"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    models = commands.add_parser(
        "models",
        help="list the models, add or remove one, see how many rows one needs",
        description="List the models of a store; looking makes nothing due. A store keeps recipes: "
        "models are trained from the hot rows when a command asks one, and gone when it ends.",
    )
    models.add_argument(
        "--train",
        action="store_true",
        help="do what is due, and train every model, to see whether it can be",
    )
    add_quiet(models)
    add_store(models, required=False)  # a command after it has its own
    models.set_defaults(run=listed, parser=models)
    verbs = models.add_subparsers(title="commands", metavar="COMMAND")
    _add_adding(verbs)
    _add_removing(verbs)
    _add_curve(verbs)


def _add_adding(verbs: Commands[Parser]) -> None:
    adding = verbs.add_parser(
        "add",
        help="register a model",
        description="Register a model: train it now, and keep its recipe. A model of this name is "
        "replaced.",
    )
    adding.add_argument("name", metavar="NAME", help="what to call it")
    adding.add_argument(
        "estimator",
        metavar="CLASS",
        help="an estimator of scikit-learn, LightGBM or pyramidion: LogisticRegression, or with "
        "its module sklearn.linear_model.LogisticRegression",
    )
    adding.add_argument(
        "--params",
        metavar="JSON",
        type=json_object,
        default={},
        help='its parameters: {"C": 0.1}; another estimator is {"class": ..., "params": {...}}',
    )
    add_workload(adding)
    add_quiet(adding)
    add_store(adding)
    adding.set_defaults(run=register)


def _add_removing(verbs: Commands[Parser]) -> None:
    removing = verbs.add_parser(
        "remove", help="forget a model", description="Forget a model and its recipe."
    )
    removing.add_argument("name", metavar="NAME", help="the model")
    add_store(removing)
    removing.set_defaults(run=unregister)


def _add_curve(verbs: Commands[Parser]) -> None:
    curving = verbs.add_parser(
        "curve",
        help="show a model's loss against the hot rows it learns from",
        description="Train a model on more and more of the hot rows, test it on the newest, and "
        "say how few are enough. The losses are as raw as the rows (P1).",
    )
    curving.add_argument("name", metavar="NAME", help="the model")
    curving.add_argument(
        "--within",
        metavar="SHARE",
        type=float,
        default=0.05,
        help="how much above the best loss is good enough (default: 0.05, five per cent)",
    )
    add_quiet(curving)
    add_store(curving)
    curving.set_defaults(run=curve)


# --- list -----------------------------------------------------------------------------------


def listed(arguments: argparse.Namespace) -> None:
    """List the models."""
    if arguments.data is None:
        arguments.parser.error("the following arguments are required: --data")
    with opened(arguments, reading=True) as pyramid:
        if arguments.train and pyramid.models:
            remark(arguments, f"training {several(len(pyramid.models), 'model')}")
            for name in pyramid.models:
                pyramid.models.retrain(name)
        models = dict(pyramid.models.items())
        losses = {name: _loss(pyramid, name) for name in models} if arguments.train else {}
        told = _listing(list(models.values()), losses, arguments)
    print(told)
    if any(losses.values()):
        warn(P1)


def _loss(pyramid: Pyramid, name: str) -> Loss | None:
    """How well a model does; None where that cannot be measured."""
    try:
        return pyramid.models.loss(name) if pyramid.models[name].available else None
    except PyramidionError:  # too few hot rows, or all of one class
        return None


def _listing(
    models: list[Model], losses: dict[str, Loss | None], arguments: argparse.Namespace
) -> str:
    if arguments.json:
        told = [_told(model) | _measured(losses.get(model.name)) for model in models]
        return json.dumps({"models": told}, default=bytes.hex)
    if not models:
        return "there are no models; add one with `pyramidion models add`"
    return _table(models, losses, arguments.train)


def _measured(loss: Loss | None) -> dict[str, Any]:
    """A loss for programs."""
    if loss is None:
        return {"loss": None}
    told = {"model": loss.model, "prior": loss.prior, "kind": loss.kind, "tested": loss.tested}
    return {"loss": told | {"at": loss.at, "guarantee": loss.guarantee.to_dict()}}


def _table(models: list[Model], losses: dict[str, Loss | None], trained: bool) -> str:
    learned = ["rows", "version", "took", "expires", "loss", "prior's"] if trained else []
    head = ["model", "estimator", "label", "learns from", *learned, "state"]
    rows = []
    for model in models:
        name = _estimator(model)
        shown = name if len(name) <= WIDE else f"{name[: WIDE - 3]}..."
        row = [model.name, shown, model.label, _tables(model.workload)]
        rows.append(
            [*row, *_learned(model, losses[model.name]), _state(model)]
            if trained
            else [*row, ASKED]
        )
    return table(head, rows)


def _learned(model: Model, loss: Loss | None) -> list[object]:
    """What is to be told of what it learned; dashes where there is nothing."""
    took = "-" if model.took is None else f"{model.took:.1f} s"
    both = ["-", "-"] if loss is None else [f"{loss.model:.4g}", f"{loss.prior:.4g}"]
    return [model.rows, str(model.version or "-"), took, date(model.expires), *both]


def _estimator(model: Model) -> str:
    try:
        return model.estimator
    except PyramidionError:  # what it comes from is not installed here
        kind: str = model.recipe["class"]
        return kind


def _tables(workload: Workload) -> str:
    """Which tables, and which classes are merged."""
    told = ["all tables" if workload.only is None else f"only {' '.join(workload.only)}"]
    if workload.without:
        told.append(f"without {' '.join(workload.without)}")
    told += [f"{'+'.join(map(str, olds))} as {new!s}" for new, olds in workload.merge]
    return ", ".join(told)


def _state(model: Model) -> str:
    return "available" if model.available else f"not available: {model.why}"


def _told(model: Model) -> dict[str, Any]:
    """For programs."""
    return {
        "name": model.name,
        "estimator": _estimator(model),
        "recipe": model.recipe,
        **model.workload.to_dict(),
        "classes": list(model.classes),
        "available": model.available,
        "why": model.why,
        "rows": model.rows,
        "version": model.version,
        "took": model.took,
        "expires": model.expires,
    }


# --- add, remove ----------------------------------------------------------------------------


def register(arguments: argparse.Namespace) -> None:
    """Register a model."""
    from pyramidion.learn.estimators import estimator_named

    estimator = estimator_named(arguments.estimator, arguments.params)
    with opened(arguments) as pyramid:
        verb = "replaced" if arguments.name in pyramid.models else "added"
        workload = workload_of(arguments, pyramid.schema)
        remark(arguments, f"training {arguments.name!r} on the hot rows")
        model = pyramid.register(arguments.name, estimator, **workload)
        told = json.dumps(_told(model), default=bytes.hex) if arguments.json else _added(model)
    print(told if arguments.json else f"{verb} {told}")


def _added(model: Model) -> str:
    rows = several(model.rows, "hot row")
    trained = f"trained on {rows}" if model.available else f"not trained yet: {model.why}"
    return f"{model.name}: {_estimator(model)}, {trained}"


def unregister(arguments: argparse.Namespace) -> None:
    """Forget a model."""
    with opened(arguments) as pyramid:
        pyramid.models.unregister(arguments.name)
    if arguments.json:
        print(json.dumps({"removed": arguments.name}))
    else:
        print(f"removed {arguments.name}")


# --- curve ----------------------------------------------------------------------------------


def curve(arguments: argparse.Namespace) -> None:
    """Show a model's loss against the rows it learns from."""
    with opened(arguments, reading=True) as pyramid:
        if arguments.name in pyramid.models:
            remark(arguments, f"training {arguments.name!r} on more and more of the hot rows")
        found = pyramid.models.learning_curve(arguments.name, within=arguments.within)
        losses, smallest = found.losses, found.smallest  # they go with the store
    if arguments.json:
        told = {"model": arguments.name, "loss": found.loss, "tested": found.tested}
        told |= {"sizes": found.sizes, "losses": losses}
        told |= {"within": found.within, "smallest": smallest}
        print(json.dumps(told | {"guarantee": found.guarantee.to_dict()}))
        return
    print(f"{found.loss} of {arguments.name} on the newest {several(found.tested, 'hot row')}\n")
    print("\n".join(_lines(found, losses)))
    print(
        f"\nsmallest hot window within {100 * found.within:g} % of the best: "
        f"{several(smallest, 'row')} to learn from"
    )
    warn(P1)


def _lines(found: LearningCurve, losses: list[float]) -> Iterator[str]:
    """Each loss, and how far it is above the best, as a number and as a bar."""
    best, worst = min(losses), max(losses)
    width = max(len(f"{found.sizes[-1]:,}"), len("rows"))
    yield f"{'rows':>{width}}  {'loss':>8}  above the best"
    for size, loss in zip(found.sizes, losses, strict=True):
        above = f"{100 * (loss - best) / best:.1f} %" if best else ""
        bar = "#" * round(BAR * (loss - best) / (worst - best)) if worst > best else ""
        yield f"{size:>{width},}  {loss:>8.4g}  {above:>8}  {bar}".rstrip()
