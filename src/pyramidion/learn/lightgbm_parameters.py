"""The parameters of LightGBM that a recipe may set, and which values each may have.

LightGBM gets its parameters as one text, ``name=value name=value``, split at blanks, and has
several names for most of them. After a blank in a value or in a name comes another parameter, and
some of those open files, write them or connect to other machines. So names are looked up in a
list, numbers must be numbers, and text has no blank, no ``=`` and no path in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pyramidion.config.checks import nearest
from pyramidion.errors import SchemaError

CLASSES = ("lightgbm.LGBMClassifier", "lightgbm.LGBMRegressor", "lightgbm.LGBMModel")
THREADS = 256
"""At most so many: OpenMP ends the process that cannot start as many as it was asked for."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


NUMBERS = _names(
    """
    num_iterations num_iteration n_iter num_tree num_trees num_round num_rounds nrounds
    num_boost_round n_estimators max_iter
    learning_rate shrinkage_rate eta num_leaves num_leaf max_leaves max_leaf max_leaf_nodes
    seed random_seed random_state deterministic force_col_wise force_row_wise
    histogram_pool_size hist_pool_size max_depth
    min_data_in_leaf min_data_per_leaf min_data min_child_samples min_samples_leaf
    min_sum_hessian_in_leaf min_sum_hessian_per_leaf min_sum_hessian min_hessian min_child_weight
    bagging_fraction sub_row subsample bagging pos_bagging_fraction pos_sub_row pos_subsample
    pos_bagging neg_bagging_fraction neg_sub_row neg_subsample neg_bagging
    bagging_freq subsample_freq bagging_seed bagging_fraction_seed bagging_by_query
    feature_fraction sub_feature colsample_bytree feature_fraction_bynode sub_feature_bynode
    colsample_bynode feature_fraction_seed extra_trees extra_tree extra_seed
    early_stopping_round early_stopping_rounds early_stopping n_iter_no_change
    early_stopping_min_delta first_metric_only max_delta_step max_tree_output max_leaf_output
    lambda_l1 reg_alpha l1_regularization lambda_l2 reg_lambda lambda l2_regularization
    linear_lambda min_gain_to_split min_split_gain drop_rate rate_drop max_drop skip_drop
    xgboost_dart_mode uniform_drop drop_seed top_rate other_rate min_data_per_group
    max_cat_threshold cat_l2 cat_smooth max_cat_to_onehot top_k topk
    monotone_penalty monotone_splits_penalty ms_penalty mc_penalty
    refit_decay_rate cegb_tradeoff cegb_penalty_split path_smooth
    use_quantized_grad num_grad_quant_bins quant_train_renew_leaf stochastic_rounding
    linear_tree linear_trees max_bin max_bins min_data_in_bin
    bin_construct_sample_cnt subsample_for_bin data_random_seed data_seed
    is_enable_sparse is_sparse enable_sparse sparse enable_bundle is_enable_bundle bundle
    use_missing zero_as_missing feature_pre_filter
    objective_seed is_unbalance unbalance unbalanced_sets scale_pos_weight sigmoid
    boost_from_average reg_sqrt alpha fair_c poisson_max_delta_step tweedie_variance_power
    lambdarank_truncation_level lambdarank_norm
    """
)
TEXTS = _names(
    """
    boosting boosting_type boost objective objective_type app application loss
    metric metrics metric_types data_sample_strategy
    monotone_constraints_method monotone_constraining_method mc_method importance_type
    """
)
LISTS = _names(
    """
    monotone_constraints mc monotone_constraint monotonic_cst interaction_constraints
    feature_contri feature_contrib fc fp feature_penalty max_bin_by_feature
    cegb_penalty_feature_lazy cegb_penalty_feature_coupled
    metric metrics metric_types
    """
)
JOBS = _names("n_jobs num_threads num_thread nthread nthreads")
WEIGHTS = "class_weight"
"""Weights of labels, or ``balanced``: LightGBM itself never sees it."""

NAMES = NUMBERS | TEXTS | LISTS | JOBS | {WEIGHTS}
_TEXT = re.compile(r"[A-Za-z0-9_.,-]{1,64}")
_LIST = re.compile(r"[0-9eE+.,\[\]-]{1,10000}")


def refuse_class(name: str) -> None:
    """Raise for a class of LightGBM that reads rows from other machines."""
    if name.startswith("lightgbm.") and name not in CLASSES:
        raise SchemaError(f"{name} cannot be trained here; use one of {', '.join(CLASSES[:2])}")


def refuse_parameter(owner: str, name: object, value: Any) -> None:
    """Raise unless LightGBM may get a parameter: a known name, with a value of its kind."""
    if name not in NAMES:
        close = nearest(str(name), sorted(NAMES))
        remedy = close if close.startswith("did") else "leave it out"
        raise SchemaError(
            f"parameter {name!r} of {owner} is none that a model may set here: it is unknown, or "
            f"concerns files, other machines or devices; {remedy}"
        )
    if not _fits(str(name), value):
        raise SchemaError(
            f"parameter {name!r} of {owner} has a value of another kind than it takes; give "
            f"{_kind(str(name))}"
        )


def refuse_searched(owner: str, name: str, values: Iterable[Any], others: frozenset[str]) -> None:
    """Raise for what a search would give to LightGBM, among estimators with ``others``' names.

    A name that neither has is a step of a pipeline, which takes estimators.
    """
    last = name.rpartition("__")[2]
    for value in values:
        step = value in (None, "passthrough", "drop") or (
            isinstance(value, dict) and "estimator" in value
        )
        if last in NAMES or not (last in others or step):
            refuse_parameter(owner, last, value)


def _fits(name: str, value: Any) -> bool:
    if value is None or name == WEIGHTS:
        return True
    if name in JOBS:
        return _is_number(value) and abs(value) <= THREADS
    return (
        (name in NUMBERS and _is_number(value))
        or (name in TEXTS and isinstance(value, str) and _TEXT.fullmatch(value) is not None)
        or (name in LISTS and _is_list(name, value))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _is_list(name: str, value: Any) -> bool:
    """Whether a value is numbers, in lists that recipes hold; of metrics, text."""
    if isinstance(value, dict) and value.keys() == {"tuple"}:
        value = value["tuple"]
    if isinstance(value, str):
        return (_TEXT if name in TEXTS else _LIST).fullmatch(value) is not None
    if not isinstance(value, list):
        return name not in TEXTS and _is_number(value)
    return all(_is_list(name, item) for item in value)


def _kind(name: str) -> str:
    if name in JOBS:
        return f"a number from -{THREADS} to {THREADS}"
    if name in NUMBERS:
        return "a number"
    return "text without blanks, '=' or '/'" if name in TEXTS else "a list of numbers"
