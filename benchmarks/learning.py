"""Models on a store beside the same estimators alone: training sets, training, predicting."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import rows
from benchmarks.report import Report, best
from benchmarks.storing import BATCH, Store

HOT = 5  # batches that are hot
ESTIMATORS = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "boosted trees": LGBMClassifier(n_estimators=100, verbose=-1),
}


def main(report: Report) -> None:
    store = Store()
    table = rows.table(*rows.matrix(BATCH * (HOT + 2)))
    batches = [table.slice(start, BATCH) for start in range(0, table.num_rows, BATCH)]
    store.pyramid.observe(batches[0])
    store.roll()
    for batch in batches[1:-1]:
        store.pyramid.observe(batch)
    training_sets(report, store)
    training(report, store)
    predicting(report, store, batches[-1].drop_columns(["click"]))
    online(report, store, batches[-1])
    store.close()


def training_sets(report: Report, store: Store) -> None:
    report.title(f"training set of {BATCH * HOT:,} hot rows, 39 tables")
    hot = [table for _, table, _ in store.pyramid._state.hot.batches()]
    snapshot = store.pyramid.snapshot()
    ours = best(lambda: store.pyramid.training_set().X)
    peer = best(lambda: [snapshot.array(batch) for batch in hot])
    report.ratio("made", ours, peer, of="featurizing alone", least=0.3)


def training(report: Report, store: Store) -> None:
    report.title(f"training on {BATCH * HOT:,} hot rows, features and child process included")
    X, y = store.pyramid.training_set()
    for name, estimator in ESTIMATORS.items():
        store.pyramid.register(name, estimator)
        ours = best(lambda name=name: store.pyramid.models.retrain(name))
        peer = best(lambda estimator=estimator: estimator.fit(np.asarray(X), y))
        report.ratio(name, ours, peer, of="fit in this process", least=0.3)


def predicting(report: Report, store: Store, batch: pa.Table) -> None:
    report.title(f"predicting {BATCH:,} rows, features included")
    for name in ESTIMATORS:
        alone = store.pyramid.models[name].fitted.estimator
        snapshot = store.pyramid.snapshot()

        def by_hand(estimator=alone, snapshot=snapshot) -> None:
            estimator.predict_proba(np.asarray(snapshot.array(batch)))

        ours = best(lambda name=name: store.pyramid.predict_proba(name, batch))
        report.ratio(name, ours, best(by_hand), of="by hand", least=0.8)


def online(report: Report, store: Store, batch: pa.Table) -> None:
    report.title(f"observing {BATCH:,} rows with a model that learns them at once")
    for name in list(store.pyramid.models):
        store.pyramid.models.unregister(name)
    alone = best(lambda: store.pyramid.observe(batch))
    store.pyramid.register("online", SGDClassifier(loss="log_loss"))
    ours = best(lambda: store.pyramid.observe(batch))
    model, snapshot = store.pyramid.models["online"].fitted.estimator, store.pyramid.snapshot()
    features, click = batch.drop_columns(["click"]), np.asarray(batch["click"])
    learn = best(lambda: model.partial_fit(np.asarray(snapshot.array(features)), click))
    report.ratio("observed", ours, alone + learn, of="one after the other", least=0.7)
