"""Mutated models of LightGBM, read in this process: ``python -m tests.learn.mutated FIRST LAST``.

Prints how many were refused and how many were read and predicted. A model that ends the process
ends this one.
"""

from __future__ import annotations

import random
import sys

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor

from pyramidion.errors import FormatError
from pyramidion.learn import payloads_lightgbm

NUMBERS = (
    *("0", "-1", "1", "2", "3", "7", "-7", "99", "-99", "2147483647", "-2147483648", "1e9", "-0"),
    *("4294967295", "9223372036854775808", "1e308", "1e400", "nan", "inf", "-inf", "", "x", "0x7f"),
)
MORE = ("num_cat=2", "is_linear=1", "num_class=0", "tree_sizes=9 9", "cat_boundaries=0 99", "Tree=")


def models() -> list[bytes]:
    """Whole texts of real models: one number, two classes, three, and a forest."""
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(300, 3))
    rows[::7, 1] = np.nan
    number = rows[:, 0] + draw.normal(size=300)
    given = {"n_estimators": 3, "num_leaves": 6, "min_child_samples": 5, "verbose": -1}
    forest = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
    three = np.digitize(number, [-0.5, 0.5])
    fitted = [
        LGBMRegressor(**given).fit(rows, number),
        LGBMClassifier(**given).fit(rows, number > 0),
        LGBMClassifier(**given).fit(rows, three),
        LGBMClassifier(**given, objective="multiclassova").fit(rows, three),
        LGBMClassifier(**given, **forest).fit(rows, number > 0),
    ]
    return [payloads_lightgbm.written(each) for each in fitted]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The same with one to three changes: a number, a line, a byte, a cut."""
    lines = data.decode().split("\n")
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        match draw.randrange(8):
            case 0:
                del lines[at]
                lines = lines or [""]
            case 1:
                lines.insert(at, draw.choice([*lines, *MORE]))
            case 2:
                lines = lines[: max(1, at)]
            case 3 if lines[at]:
                place = draw.randrange(len(lines[at]))
                changed = chr(draw.randrange(256))
                lines[at] = lines[at][:place] + changed + lines[at][place + 1 :]
            case _:
                name, equals, values = lines[at].partition("=")
                tokens = values.split(" ")
                place = draw.randrange(len(tokens))
                tokens[place : place + draw.randint(0, 2)] = [draw.choice(NUMBERS)]
                lines[at] = name + equals + " ".join(tokens)
    return "\n".join(lines).encode()


def main(first: str, last: str) -> None:
    originals = models()
    rows = np.random.default_rng(1).normal(size=(64, 3)) * 10
    rows[::5] = [np.nan, np.inf, -np.inf]
    refused = read = 0
    for seed in range(int(first), int(last)):
        draw = random.Random(seed)
        data = mutated(originals[seed % len(originals)], draw)
        try:
            model = payloads_lightgbm.read(data)
        except FormatError:
            refused += 1
        else:
            model.predict(rows[:, : model.n_features_in_])
            read += 1
    sys.stdout.write(f"{refused} {read}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
