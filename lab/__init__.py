"""The paper's questions, asked of this software: loss against hot data, noise, sketches, windows.

A folder of the repository, not of the wheel: ``python -m lab``, ``make report``.

datasets            what a data set is: rows in order of time, split into past and future
movielens, criteo, open_bandit, flights     loaders of real data; nothing is downloaded
clicks              generated rows whose best possible loss is known
wide                generated rows with 507 features
bandits             a generated bandit, and the log of a bandit; open_bandit_log is a real one
policies            what learns from such a log, on raw rows and on counts
raw_models          baselines, trained on raw rows
count_models        the models that stores train on counts
stores              a store of the past, and what its models lose on the future
holdout             weights and groups from rows set aside for them
service_process     a service in a process of its own, and a connection to it
experiments         one module for each figure
points, runner      what is measured, job by job
result_files        results on disk, so that one figure can be repeated alone
paper, comparison   the paper's numbers and our targets, and whether they are met
caveats             where each figure falls short, in a sentence
plots, bars, axes   pictures
report              one HTML page, and Markdown
correlated_columns  when counts lose against raw rows
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
