"""The command line: parse, call, print.

A person's mistake gets one sentence on stderr and an exit code, never a
traceback. Everything heavy is imported by the command that needs it, so
``pyramidion --help`` answers at once.

    program     all commands, exit codes
    schema      draft a schema, check one
    plan        propose settings, predict errors and memory
    store       create, advance, ledger, group, withdraw, backup, restore
    status      what a store holds, for people
    sharing     complete tables for readers elsewhere
    erasing     erase one person's hot rows
    exposure    what an intruder between two moments could read
    rows_in     import, observe
    rows_out    featurize, training-set, predict
    writers     the files they write
    edge        predict away from the store
    models      list models, add and remove them, a learning curve
    estimators  a model's class and parameters, as they are written
    workload    a label and tables, as they are written
    options     what the commands share: the store, its keys, the clock
    vault       requests, grants, revocations; vault_keys, vault_rows, vault_files: the rest of it
    passphrases asked for, or read from a file
    audit       what leaks, measured on stores made for it
    audit_log   what was done with a store: show, verify, export
    demo        a year of flights, and plots; live: the same, served while it flows
    scratch     temporary directories of which nothing is left
    progress    bars, remarks, and a stop that loses nothing
"""

from __future__ import annotations

from pyramidion.cli.program import main, run

__all__ = ["main", "run"]
