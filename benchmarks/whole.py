"""What a user calls, noise included: fit, transform and fit_transform beside TargetEncoder's."""

from __future__ import annotations

from sklearn.preprocessing import TargetEncoder

from benchmarks import rows
from benchmarks.report import Report, best
from pyramidion import CountFeaturizer

ROWS = 1_000_000


def main(report: Report) -> None:
    X, y = rows.matrix(ROWS)
    table = rows.table(X, y)
    features, click = table.drop_columns(["click"]), table["click"]
    ours = CountFeaturizer(epsilon=1.0, schema=rows.schema(), n_jobs=1)
    plain = CountFeaturizer(epsilon=1.0, weights="equal", schema=rows.schema(), n_jobs=1)
    theirs = TargetEncoder(target_type="binary")
    report.title(f"whole calls on {ROWS:,} rows of 39 features, noise included, one thread")
    for verb, own, other, least in (
        ("fit", lambda: ours.fit(features, click), lambda: theirs.fit(X, y), 1.5),
        ("transform", lambda: ours.transform(features), lambda: theirs.transform(X), 4),
        (
            "fit_transform",
            lambda: ours.fit_transform(features, click),
            lambda: theirs.fit_transform(X, y),
            1.5,
        ),
    ):
        report.ratio(
            verb, best(own, times=2), best(other, times=2), of=f"TargetEncoder.{verb}", least=least
        )
    weighed, equal = (best(lambda m=m: m.fit(features, click), times=3) for m in (ours, plain))
    report.ratio("fit, weights read", weighed, equal, of="fit, equal shares", least=0.75)
