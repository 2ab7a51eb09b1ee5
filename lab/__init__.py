"""The paper's questions, asked of this software: loss against hot data, noise, sketches, windows.

datasets        what a data set is: rows in time's order, split into past and future
movielens, criteo, open_bandit, flights     loaders of real data; nothing is downloaded
clicks          a generator whose best possible loss is known
wide            another, of 507 features
bandits         a generated bandit, and what a bandit's log is; open_bandit_log is a real one
policies        what learns such a log, on raw rows and on counts
raw_models      baselines, trained on raw rows
count_models    the models that stores train on counts
stores          a store of the past, and what its models lose on the future
served          a service in a process of its own, and a connection to it
experiments     one module for each figure
points, running what is measured, job by job
kept            results on disk, so that one figure can be made again alone
paper, beside   the paper's numbers and our targets, and whether they are met
plots, bars, axes   pictures
report          one HTML page, and Markdown
"""

from __future__ import annotations

import os

from pyramidion.errors import refuse_missing

NEEDED = ("lightgbm", "matplotlib", "vowpalwabbit")


def check_installed() -> None:
    """Raise if a package that only the evaluation needs is not there.

    Cores are shared with the store and with other processes, so threads that wait must not spin.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    refuse_missing("the evaluation", NEEDED, "dev")
