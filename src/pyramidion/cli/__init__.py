"""The command line: parse, call, print.

A person's mistake gets one sentence on stderr and an exit code, never a
traceback. Everything heavy is imported by the command that needs it, so
``pyramidion --help`` answers at once.

    program       all commands, exit codes
    options       what the commands share: the store, its keys, the clock, passphrases, limits
    output        what they print: numbers, times, tables, progress bars
    row_files     the files that they write rows to
    schema        draft a schema, check one
    plan          propose settings, predict errors and memory
    store         create, advance, ledger, group, withdraw, backup, restore
    shards        make and join the shards of a stream
    observe       import, observe
    predict       featurize, training-set, predict
    models        list models, add and remove them, a learning curve
    status        what a store holds
    clock         which clock is right
    share         complete tables for readers elsewhere
    erase_person  erase one person's hot rows
    exposure      what an intruder between two moments could read
    repair        reseed, verify, rebuild: after a break-in or damage
    vault         keys, requests, grants, revocations
    vault_rows    the broker, and granted rows
    vault_files   what a vault holds: status, files, verify, adopt, attach
    audit         what leaks, measured on stores made for it
    audit_log     what was done with a store: show, verify, export
    serve, edge   the service; predictions away from the store
    demo, live    a year of flights, and plots; the same, served while it flows
    temporary     temporary directories of which nothing is left
    warm          compile the kernels
"""

from __future__ import annotations

from pyramidion.cli.program import main, run

__all__ = ["main", "run"]
