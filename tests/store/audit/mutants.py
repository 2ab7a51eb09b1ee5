"""Mutants: the store with one rule broken. Each must turn a named test red.

    make mutants            all of them, a few minutes
    python -m tests.store.audit.mutants halved    those with this word in their names

The source tree is copied, one small edit is made in the copy, and the named test runs
there. Before that all named tests run without a mutation, and must be green. The exit code
is 1 if a mutant survives, if a test is red by itself, or if an edit no longer fits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path("src") / "pyramidion"
STATISTICAL = "tests/store/audit/test_statistical.py"
STRUCTURAL = "tests/store/audit/test_structural.py"
KILLED = "tests/store/audit/test_killed.py"
TREES = "tests/store/test_trees.py"
SHARDS = "tests/store/shards/test_shards.py"
PINS = "tests/storage/test_pins.py"
RELEASES = "tests/store/test_releases.py"
SHARED = "tests/storage/contracts/test_table_store.py"
ORACLES = "tests/web/service/security/test_oracles.py"
ANSWERS = f"{ORACLES}::test_answers_do_not_depend_on_hot_rows_or_erasures"
ONE_ROW = "tests/rows/test_one_row_one_key.py"
GREEN, RED = 0, 1  # exit codes of pytest


@dataclass(frozen=True)
class Edit:
    """One text in one file of the package, and what stands there instead."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """What is broken, how, and the test that must notice."""

    name: str
    edits: tuple[Edit, ...]
    test: str


MUTANTS = (
    Mutant(
        "one row: a type for all values of an NDJSON column",
        (
            Edit(
                "rows/text_files.py",
                "return arrow_of([row.get(name, ABSENT) for row in rows])",
                "return pa.array([row.get(name) for row in rows], from_pandas=True)",
            ),
        ),
        f"{ONE_ROW}::test_one_row_does_not_change_how_another_is_read",
    ),
    Mutant(
        "one row: floats of 2^53 and more are categories",
        (
            Edit(
                "rows/validation.py",
                "judge.mark(name, pc.fill_null(large, False), NOT_EXACT)",
                "pass",
            ),
            Edit(
                "rows/hashing_values.py",
                "not abs(float(value)) < exact_below(value)",
                "value != value",
            ),
        ),
        f"{ONE_ROW}::test_all_ways_in_make_the_same_of_a_row_or_refuse_it",
    ),
    Mutant(
        "one row: most times of a column decide how all are read",
        (
            Edit(
                "rows/validation.py",
                "list(texts), judge, _microseconds, 0)",
                "[t if t and t[:2] == '20' else None for t in texts], judge, _microseconds, 0)",
            ),
        ),
        f"{ONE_ROW}::test_one_row_does_not_change_how_another_is_read",
    ),
    Mutant(
        "one row: a column of booleans has a small table",
        (Edit("learn/frames.py", 'if kind == "bool" and not private:', 'if kind == "bool":'),),
        "tests/learn/test_featurizer.py::test_the_shape_of_a_table_does_not_follow_from_inferred_types",
    ),
    Mutant(
        "one row: text is another value than its number",
        (Edit("config/spelling.py", "KEYED_BY = BY_TEXT", "KEYED_BY = BY_TYPE"),),
        f"{ONE_ROW}::test_all_ways_in_make_the_same_of_a_row_or_refuse_it",
    ),
    Mutant(
        "one row: files that disagree about a type are cast",
        (
            Edit(
                "rows/containers.py",
                "columns = [_in_line([table.column(name) for table in tables]) for name in names]",
                'return pa.concat_tables(tables, promote_options="permissive")',
            ),
        ),
        "tests/rows/test_history.py::test_files_of_other_types_change_no_value",
    ),
    Mutant(
        "halved Laplace noise",
        (
            Edit(
                "privacy/budget.py",
                "return Fraction(k * omega * rows) / epsilon",
                "return Fraction(k * omega * rows) / (2 * epsilon)",
            ),
        ),
        f"{STATISTICAL}::test_pure_stores_leak_no_more_than_their_ledger_says",
    ),
    Mutant(
        "halved Gaussian noise",
        (
            Edit(
                "privacy/budget.py",
                "return Fraction(k * k * omega * omega * rows) / (2 * rho)",
                "return Fraction(k * k * omega * omega * rows) / (8 * rho)",
            ),
        ),
        f"{STATISTICAL}::test_gaussian_stores_leak_no_more_than_their_ledger_says",
    ),
    Mutant(
        "dropped signs",
        (
            Edit(
                "counts/kernels.py",
                "return finalise(key ^ plan[table, PLAN_SALT])",
                "return np.uint64(0)",
            ),
        ),
        f"{STRUCTURAL}::test_signs_are_even_and_independent_between_hash_rows",
    ),
    Mutant(
        "the same sign in all hash rows",
        (
            Edit(
                "counts/kernels.py",
                "sign = np.int64(1) - (np.int64((signs >> row) & np.uint64(1)) << 1)",
                "sign = np.int64(1) - (np.int64(signs & np.uint64(1)) << 1)",
            ),
        ),
        f"{STRUCTURAL}::test_signs_are_even_and_independent_between_hash_rows",
    ),
    Mutant(
        "skipped charge",
        (
            Edit(
                "store/transitions.py",
                "state.ledger.open(number, birth.shares, birth.reserves, now, above)",
                "pass",
            ),
        ),
        f"{STRUCTURAL}::test_every_draw_is_charged_before_it_is_made",
    ),
    Mutant(
        "charge after the noise",
        (
            Edit(
                "store/transitions.py",
                "        apply(state, opening.charge, now)\n"
                "        tables = {owner: birth.arena() "
                "for owner, birth in opening.births.items()}\n",
                "        tables = {owner: birth.arena() "
                "for owner, birth in opening.births.items()}\n"
                "        apply(state, opening.charge, now)\n",
            ),
        ),
        f"{STRUCTURAL}::test_every_draw_is_charged_before_it_is_made",
    ),
    Mutant(
        "half the charge",
        (
            Edit(
                "privacy/ledger.py",
                'born.append(Line(window, "table", name, self._budget * share, now))',
                'born.append(Line(window, "table", name, self._budget * share / 2, now))',
            ),
        ),
        f"{STRUCTURAL}::test_all_tables_let_through_what_the_ledger_says_and_not_much_less",
    ),
    Mutant(
        "noise after the counts",
        (
            Edit(
                "store/transitions.py",
                "tables = {owner: birth.arena() for owner, birth in opening.births.items()}",
                "tables = {o: Arena.exact(b.layout) for o, b in opening.births.items()}",
            ),
            Edit(
                "store/transitions.py",
                "            tables.arena.seal()\n",
                "            late = state.birth(tables.number).arena()\n"
                "            for table in range(len(late.layout.tables)):\n"
                "                tables.arena._flat(table)[:] += late._flat(table)\n"
                "            tables.arena.seal()\n",
            ),
        ),
        f"{STRUCTURAL}::test_a_state_less_its_exact_counts_is_the_noise_of_its_birth",
    ),
    Mutant(
        "a node noised when it is sealed",
        (
            Edit(
                "store/transitions.py",
                "tables = {owner: birth.arena() for owner, birth in opening.births.items()}",
                "tables = {o: Arena.exact(b.layout) if o.level else b.arena() "
                "for o, b in opening.births.items()}",
            ),
            Edit(
                "store/transitions.py",
                "            tables.arena.seal()\n",
                "            late = tables.arena\n"
                "            if tables.level:\n"
                "                first = min(tables.windows)\n"
                "                late = state.node_birth(first, tables.level).arena()\n"
                "            for table in range(len(late.layout.tables) if tables.level else 0):\n"
                "                tables.arena._flat(table)[:] += late._flat(table)\n"
                "            tables.arena.seal()\n",
            ),
        ),
        f"{TREES}::test_a_node_less_its_exact_counts_is_the_noise_of_its_birth",
    ),
    Mutant(
        "a level that nobody pays for",
        (
            Edit(
                "store/transitions.py",
                "state.ledger.open(number, birth.shares, birth.reserves, now, above)",
                "state.ledger.open(number, birth.shares, birth.reserves, now)",
            ),
        ),
        f"{TREES}::test_every_observation_is_in_one_node_of_each_level_and_each_is_charged",
    ),
    Mutant(
        "a node that is older than a window and not charged to it",
        (
            Edit(
                "store/transitions.py",
                "above = held | {purpose(owner)",
                "above = {purpose(owner)",
            ),
        ),
        f"{TREES}::test_every_observation_is_in_one_node_of_each_level_and_each_is_charged",
    ),
    Mutant(
        "a node that outlives its first window",
        (
            Edit(
                "store/transitions.py",
                'nodes = state.sets.nodes_over(sealed, "populating", "sealed")',
                "nodes = list[SetId]()",
            ),
            Edit(
                "store/transitions.py",
                'nodes = state.sets.nodes_over(windows, "populating", "sealed", "retired")',
                "nodes = list[SetId]()",
            ),
        ),
        f"{TREES}::test_of_a_retired_window_nothing_opens_neither_its_tables_nor_those_of_its_nodes",
    ),
    Mutant(
        "a node whose checkpoint does not follow the rows that leave",
        (
            Edit(
                "store/schedule.py",
                "for tables in [*store.open_sets.taking(), *store.open_sets.nodes()]:",
                "for tables in store.open_sets.taking():",
            ),
        ),
        f"{TREES}::test_a_node_less_its_exact_counts_is_the_noise_of_its_birth",
    ),
    Mutant(
        "noise in memory alone",
        (
            Edit(
                "store/transitions.py",
                "        write={checkpoint(owner): arena for owner, arena in tables.items()},\n",
                "",
            ),
        ),
        f"{KILLED}::test_before_the_first_row_is_written_the_noise_is_durable",
    ),
    Mutant(
        "noise reused between windows",
        (
            Edit(
                "privacy/table_noise.py",
                "source = randomness if randomness is not None else Randomness()",
                'source = Randomness.insecure_from_seed(b"")',
            ),
        ),
        f"{STRUCTURAL}::test_noise_is_independent_between[gaussian-windows]",
    ),
    Mutant(
        "noise reused between tables",
        (
            Edit(
                "privacy/randomness.py",
                "self._new_key: Callable[[], bytes] = lambda: os.urandom(32)",
                "key = os.urandom(32)\n        self._new_key: Callable[[], bytes] = lambda: key",
            ),
        ),
        f"{STRUCTURAL}::test_noise_is_independent_between[gaussian-tables]",
    ),
    Mutant(
        "exact prior",
        (
            Edit(
                "privacy/table_noise.py",
                "            aside.do(lambda: noise.fill(cells, source))\n",
                "            if table:\n                noise.fill(cells, source)\n",
            ),
        ),
        f"{STRUCTURAL}::test_the_prior_carries_noise",
    ),
    Mutant(
        "unclipped weight",
        (
            Edit(
                "rows/observations.py",
                "np.minimum(np.minimum(weights, _MOST).astype(np.int64), self.settings.omega)",
                "np.minimum(weights, _MOST).astype(np.int64)",
            ),
            Edit(
                "counts/arena.py",
                "weights.min(initial=1) < 0 or weights.max(initial=1) > self.layout.weight:",
                "weights.min(initial=1) < 0:",
            ),
        ),
        f"{STRUCTURAL}::test_no_observation_adds_more_than_omega_to_a_cell",
    ),
    Mutant(
        "kept checkpoint key",
        (
            Edit(
                "store/change.py",
                "        dead += state.tables.forget_superseded()\n",
                "        state.tables.forget_superseded()\n",
            ),
        ),
        f"{STRUCTURAL}::test_no_key_opens_a_superseded_state_once_rows_have_left",
    ),
    Mutant(
        "uncharged reading",
        (
            Edit(
                "store/bins_and_weights.py",
                "        store.ledger.spend(purpose, amount, [window], now, TOLD[purpose])\n",
                "",
            ),
        ),
        "tests/store/test_weights.py::test_the_window_that_was_read_pays_in_full",
    ),
    Mutant(
        "reading of a forgotten window",
        (
            Edit(
                "store/bins_and_weights.py",
                "sorted(came.keys() & self._kept(), ",
                "sorted(came.keys(), ",
            ),
        ),
        "tests/store/test_weights.py::"
        "test_a_window_that_was_forgotten_is_not_read_though_its_rows_are_hot",
    ),
    Mutant(
        "quantile twice as sharp",
        (
            Edit(
                "privacy/exponential.py",
                "Fraction(epsilon) / (2 * sensitivity)",
                "Fraction(epsilon) / sensitivity",
            ),
        ),
        "tests/privacy/test_exponential.py::test_draws_fit_the_exact_mass_function",
    ),
    Mutant(
        "uncharged selection",
        (
            Edit(
                "store/select_groups.py",
                "        store.ledger.spend(PURPOSE, amount, windows, now, told)\n",
                "",
            ),
        ),
        "tests/store/test_selection.py::"
        "test_every_window_whose_rows_are_hot_pays_in_full_sealed_ones_too",
    ),
    Mutant(
        "selection that one window pays",
        (
            Edit(
                "store/select_groups.py",
                "store.ledger.spend(PURPOSE, amount, windows, now, told)",
                "store.ledger.spend(PURPOSE, amount, windows[-1:], now, told)",
            ),
        ),
        "tests/store/test_selection.py::"
        "test_every_window_whose_rows_are_hot_pays_in_full_sealed_ones_too",
    ),
    Mutant(
        "release that ends no older copy",
        (Edit("store/change.py", "elif change.renew:", "elif False:"),),
        f"{RELEASES}::test_a_backup_from_before_does_not_open",
    ),
    Mutant(
        "release while an older store key is still there",
        (
            Edit(
                "storage/data_keys.py",
                "            self.settle()\n            self.unfinished = False\n",
                "            self.unfinished = False\n",
            ),
        ),
        f"{RELEASES}::test_older_keys_are_gone_before_anything_is_read",
    ),
    Mutant(
        "release of two copies that renew at once",
        (
            Edit(
                "storage/data_keys.py",
                "        self.must_be_held()  # or another copy has destroyed ours\n",
                "",
            ),
        ),
        f"{RELEASES}::test_nothing_is_read_where_another_copy_renewed_its_key_at_the_same_time",
    ),
    Mutant(
        "store key of another copy that is added meanwhile and stays",
        (
            Edit(
                "storage/data_keys.py",
                "        while others := self._others():\n",
                "        if others := self._others():\n",
            ),
        ),
        f"{RELEASES}::test_a_key_that_another_copy_adds_meanwhile_is_destroyed",
    ),
    Mutant(
        "noise in bulk before the charge",
        (
            Edit(
                "store/bulk.py",
                "            apply(store, self._plan_charge(number, slot, birth, now), now)\n"
                '            reach("bulk.charged")\n'
                "            arena = birth.arena()\n",
                "            arena = birth.arena()\n"
                "            apply(store, self._plan_charge(number, slot, birth, now), now)\n"
                '            reach("bulk.charged")\n',
            ),
        ),
        f"{RELEASES}::test_older_keys_are_gone_before_anything_is_read",
    ),
    Mutant(
        "budget given back after rows were read",
        (
            Edit(
                "store/select_groups.py",
                "        found = select(",
                "        store.catalogue.run(\"DELETE FROM ledger WHERE kind = 'spend'\")\n"
                "        found = select(",
            ),
        ),
        f"{RELEASES}::test_what_fails_after_a_row_was_read_is_not_given_back",
    ),
    Mutant(
        "selection of rows that came after it began",
        (
            Edit(
                "store/hot_rows.py",
                "            batch.number\n            for batch in self._batches\n",
                "            batch.number\n"
                "            for batch in self._store.hot.stored(lambda _: True)\n",
            ),
        ),
        "tests/store/test_selection.py::test_rows_that_arrive_during_a_selection_are_not_in_it",
    ),
    Mutant(
        "charge for rows that cannot be read",
        (Edit("store/select_groups.py", "        hot.refuse_unreadable(windows)\n", ""),),
        "tests/store/test_selection.py::test_unreadable_rows_cost_nothing",
    ),
    Mutant(
        "halved sensitivity of a selection",
        (
            Edit(
                "privacy/selection.py",
                "return math.ceil((3 * widest(prior) + Fraction(8, LEAST_ROWS)) * UNIT) + 12",
                "return math.ceil((3 * widest(prior) + Fraction(8, LEAST_ROWS)) * UNIT) // 2",
            ),
        ),
        "tests/privacy/test_selection.py::"
        "test_a_row_that_one_group_agrees_with_and_another_not_needs_most_of_the_spread",
    ),
    Mutant(
        "draws of groups twice as sharp",
        (
            Edit(
                "privacy/selection.py",
                "sensitivity = Fraction(k * spread, 2)",
                "sensitivity = Fraction(k * spread, 4)",
            ),
        ),
        "tests/privacy/test_selection.py::"
        "test_draws_fit_the_mass_function_of_the_utilities_over_their_spread",
    ),
    Mutant(
        "counts in bulk without noise",
        (Edit("store/bulk.py", "arena = birth.arena()", "arena = Arena.exact(birth.layout)"),),
        "tests/store/test_bulk.py::"
        "test_the_sealed_tables_are_noise_and_the_rows_and_no_other_state_is_on_the_disk",
    ),
    Mutant(
        "custodian and settings that anybody may replace",
        (
            Edit(
                "storage/home.py",
                "            Pins(self.catalogue, self.keys).refuse_changed()\n",
                "",
            ),
        ),
        f"{PINS}::test_a_fact_that_was_changed_is_named_at_open",
    ),
    Mutant(
        "catalogue whose pins may be taken away",
        (Edit("storage/pins.py", "if self._keys.pinned:", "if False:"),),
        f"{PINS}::test_a_catalogue_that_lost_its_pins_is_refused",
    ),
    Mutant(
        "change that pins what an intruder changed",
        (
            Edit(
                "storage/pins.py",
                "            for name, value in facts.items():\n"
                "                self._pin(name, str(value))\n",
                "            self.begin()\n",
            ),
        ),
        f"{PINS}::test_a_change_by_the_store_does_not_pin_that_of_an_intruder",
    ),
    Mutant(
        "record of a shard under the stream's secret",
        (
            Edit(
                "store/pyramid.py",
                "meeting = DataKey.new(MEETING)",
                'meeting = DataKey(DataKey.new(MEETING).id, MEETING, secret or b"k" * 32)',
            ),
        ),
        f"{SHARDS}::test_where_shards_meet_does_not_open_with_the_secret",
    ),
    Mutant(
        "names of imports under the stream's secret alone",
        (Edit("storage/names.py", "return _under(self._key, former)", "return former"),),
        "tests/store/test_replay.py::test_the_secret_does_not_confirm_what_was_imported",
    ),
    Mutant(
        "exported model that outlives an erased person by a hot step",
        (Edit("store/training.py", " or unit is not None", ""),),
        "tests/store/test_exports.py::test_an_export_is_brief_where_a_person_may_be_erased",
    ),
    Mutant(
        "edge that serves a model which is trained again",
        (
            Edit(
                "web/edge/copies.py",
                "                self._held = None\n            if self._as_good",
                "                pass\n            if self._as_good",
            ),
        ),
        "tests/web/edge/test_edge.py::test_a_copy_goes_while_the_service_trains_the_model_again",
    ),
    Mutant(
        "populating tables that are shared",
        (
            Edit(
                "storage/blocks.py",
                "not isinstance(arena, Arena) or not arena.sealed or arena.raw",
                "not isinstance(arena, Arena) or arena.raw",
            ),
        ),
        f"{SHARED}::test_a_checkpoint_is_refused[memory]",
    ),
    Mutant(
        "shared tables as raw as their rows",
        (
            Edit(
                "storage/blocks.py",
                "not isinstance(arena, Arena) or not arena.sealed or arena.raw",
                "not isinstance(arena, Arena) or not arena.sealed",
            ),
        ),
        f"{SHARED}::test_tables_as_raw_as_their_rows_are_refused[memory]",
    ),
    Mutant(
        "a shared block that opens in another place",
        (Edit("storage/blocks.py", "place = _place.pack(table, block)", "place = bytes(16)"),),
        f"{SHARED}::test_swapped_blocks_are_refused[memory]",
    ),
    Mutant(
        "noise for k rows of a person who has more",
        (
            Edit(
                "privacy/contributions.py",
                "return settings.k * blocks_touched(settings.window_us or 0, skew, blocks.length)",
                "return settings.k",
            ),
        ),
        "tests/store/test_people.py::"
        "test_without_one_person_no_window_differs_by_more_than_its_noise_hides",
    ),
    Mutant(
        "plan that forgets the blocks of people",
        (Edit("privacy/prediction.py", "        k=hidden_of(schema, settings),\n", ""),),
        "tests/store/test_planned.py::test_predicted_noise_is_that_of_a_store",
    ),
    Mutant(
        "answer that says how many rows were blanked",
        (
            Edit(
                "storage/hot.py",
                'return {"accepted": self.accepted, "refused": self.refused, "late": self.late}',
                "return dict(vars(self))",
            ),
        ),
        f"{ANSWERS}[other_person]",
    ),
    Mutant(
        "answer with the deletion records of people",
        (
            Edit(
                "web/service/routes_store.py",
                "for each in found.deletions\n        if not each.of_person\n",
                "for each in found.deletions\n",
            ),
        ),
        f"{ANSWERS}[erased]",
    ),
    Mutant(
        "answer with the bytes on disk",
        (
            Edit(
                "web/service/routes_store.py",
                'del told["path"], told["bytes"]',
                'del told["path"]',
            ),
        ),
        f"{ANSWERS}[erased]",
    ),
    Mutant(
        "answer with the bytes of vault files",
        (
            Edit(
                "web/service/routes_store.py",
                'del told["url"], told["backlog_bytes"]',
                'del told["url"]',
            ),
        ),
        f"{ORACLES}::test_answers_do_not_depend_on_how_vault_files_compress[observe]",
    ),
    Mutant(
        "answer that says what a model learned from",
        (
            Edit(
                "web/service/routes_models.py",
                'if "train" in caller.roles else dict.fromkeys(about)',
                'if "predict" in caller.roles else dict.fromkeys(about)',
            ),
        ),
        f"{ANSWERS}[erased]",
    ),
    Mutant(
        "answer that says why a model failed",
        (
            Edit(
                "web/service/calls.py",
                'if "train" in call.caller.roles or not',
                "if True or not",
            ),
        ),
        "tests/web/service/test_models.py::test_why_a_model_is_unavailable_is_for_trainers",
    ),
    Mutant(
        "records as long as their values",
        (
            Edit(
                "storage/records.py",
                "    size = length_of(rows, table.column_names, widths)\n",
                "    size = needed\n",
            ),
        ),
        "tests/store/test_hot_window.py::test_size_on_disk_does_not_follow_labels_and_keys",
    ),
    Mutant(
        "records as long as the rows that an erasure leaves",
        (
            Edit(
                "storage/hot.py",
                "self.widths, batch.receipt.accepted, least)",
                "self.widths)",
            ),
        ),
        "tests/store/test_erase_person.py::test_older_compressed_records_do_not_show_who_is_erased",
    ),
    Mutant(
        "erasure that moves the next checkpoint",
        (
            Edit(
                "store/erase_person.py",
                "        due=False,  #",
                "        due=True,  #",
            ),
        ),
        "tests/store/test_erase_person.py::"
        "test_populating_tables_stay_what_they_were_also_after_a_crash",
    ),
    Mutant(
        "vault file that is bound to no store and no name",
        (
            Edit(
                "vault/parquet.py",
                'return f"pyramidion vault {store} {name}".encode()',
                'return b"pyramidion vault"',
            ),
        ),
        "tests/vault/test_parquet.py::test_a_file_does_not_open_as_that_of_another_store_or_name",
    ),
    Mutant(
        "vault key reused between files",
        (Edit("vault/writer.py", "self._key = new_key()", 'self._key = b"k" * 32'),),
        "tests/vault/test_writer.py::test_each_file_has_a_key_of_its_own",
    ),
    Mutant(
        "vault grant that never ends",
        (
            Edit(
                "vault/broker.py",
                "return min(grant.expires, self._until.get(grant.id, grant.expires))",
                "return 1 << 62",
            ),
        ),
        "tests/vault/test_broker.py::test_a_grant_first_shown_after_its_time_is_refused",
    ),
    Mutant(
        "vault file that keeps its lock past its time",
        (
            Edit(
                "vault/vault.py",
                "self._parts.erase(files, why, now, keys=locks, before=forget)",
                "self._parts.erase(files, why, now, keys=[], before=forget)",
            ),
        ),
        "tests/vault/test_writer.py::"
        "test_the_locks_of_files_past_their_time_are_gone_from_the_catalogue",
    ),
    Mutant(
        "erasure that the audit log does not tell after a crash",
        (
            Edit(
                "storage/outbox.py",
                "        self._outbox.keep(self._note)\n        self.stored = True\n",
                "        self._outbox.keep(self._note) if self.stored else None\n"
                "        self.stored = not self.stored\n",
            ),
        ),
        "tests/storage/test_outbox.py::test_a_deed_that_breaks_off_after_its_erasure_is_told",
    ),
)


# --- a copy, an edit, a test ----------------------------------------------------------------------


def mutated(mutant: Mutant, tree: Path) -> dict[Path, str]:
    """The files of a tree that a mutant changes, as they are then; each text must be there once."""
    texts: dict[Path, str] = {}
    for edit in mutant.edits:
        path = tree / PACKAGE / edit.file
        text = texts.get(path) or path.read_text("utf-8")
        if text.count(edit.old) != 1:
            raise LookupError(
                f"mutant {mutant.name!r}: {edit.file} has this {text.count(edit.old)} times, not "
                f"once: {edit.old.strip()!r}; code has moved, so move the mutant with it"
            )
        texts[path] = text.replace(edit.old, edit.new)
    return texts


def copied(place: Path) -> Path:
    """What the tests need, without any cache."""
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=skip)
    shutil.copy2(ROOT / "pyproject.toml", place)
    return place


def infected(mutant: Mutant, whole: Path, place: Path) -> Path:
    """A copy with the mutant in it.

    The caches of the tree come along, so that kernels need not be compiled again, unless a
    kernel is what is changed: numba does not see that others inline it.
    """
    shutil.copytree(whole, place)
    texts = mutated(mutant, place)
    for path, text in texts.items():
        path.write_text(text, "utf-8")
    if any("kernels" in path.name for path in texts):
        for cache in [*place.rglob("*.nbi"), *place.rglob("*.nbc")]:
            cache.unlink()
    return place


def tested(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Pytest's exit code on a tree, and what it says of the first failure."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "400"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, told[0].partition(" - ")[2] if told else done.stdout[-500:]


def main(words: Sequence[str] = ()) -> int:
    """Run mutants, all or those that are named; 0 if each is found."""
    chosen = [m for m in MUTANTS if not words or any(word in m.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="pyramidion-mutants-") as folder:
        whole = copied(Path(folder) / "whole")
        for mutant in chosen:
            mutated(mutant, whole)
        tests = sorted({mutant.test for mutant in chosen})
        code, told = tested(whole, tests)
        _say(f"{'green' if code == GREEN else 'RED'}  without a mutant: {len(tests)} named tests")
        if code != GREEN:
            _say(f"       {told}")
            return 1
        survivors = [m.name for m in chosen if not _found(m, whole, Path(folder) / "mutant")]
    _say(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were found")
    return 1 if survivors else 0


def _found(mutant: Mutant, whole: Path, place: Path) -> bool:
    began = time.monotonic()
    try:
        code, told = tested(infected(mutant, whole, place), [mutant.test])
    finally:
        shutil.rmtree(place, ignore_errors=True)
    state = {GREEN: "GREEN: SURVIVES", RED: "red"}.get(code, f"BROKEN: pytest ended with {code}")
    lines = [f"{state}  {mutant.name} ({time.monotonic() - began:.0f} s)"]
    lines += [f"     {mutant.test}", *([f"     {told[:160]}"] if code != GREEN else [])]
    _say("\n".join(lines))
    return code == RED


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
