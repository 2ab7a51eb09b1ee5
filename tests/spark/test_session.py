"""What is asked of a session: that nothing of a stream lies on a disk, or is sent, readable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pyramidion.errors import PrivacyError, SchemaError
from pyramidion.spark import ParquetFiles, count, count_into, featurize, stream, training_set
from tests.spark.driver import FORM
from tests.spark.test_counting import frame, history
from tests.store.stores import SCHEMA, START, Stand, rows, tiny

Verb = Callable[[Any, Stand], object]


def now() -> float:
    """The stand's clock, on executors."""
    return START + 1


def _streamed(spark: Any, stand: Stand) -> object:
    df = spark.readStream.schema(FORM).parquet(str(stand.folder))
    return stream(df, stand.open(), checkpoint=stand.folder / "checkpoint")


VERBS: dict[str, Verb] = {
    "count": lambda spark, _: count(frame(spark, rows(3)), SCHEMA, tiny()),
    "count_into": lambda spark, stand: count_into(frame(spark, history(9)), stand.open()),
    "featurize": lambda spark, stand: featurize(
        frame(spark, rows(3)), stand.open().snapshot(), clock=now
    ),
    "training_set": lambda spark, stand: training_set(
        frame(spark, rows(3)), stand.open(), clock=now
    ),
    "stream": _streamed,
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_refuses_a_session_that_would_write_or_send_readable(
    spark: Any, stand: Stand, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stand.create()
    if verb in ("featurize", "training_set"):
        count_into(frame(spark, history(40, days=9)), store)
    stand.close()
    context, run = spark.sparkContext, VERBS[verb]
    plain = context.getConf().set("spark.io.encryption.enabled", "false")
    with monkeypatch.context() as patch:
        patch.setattr(type(context), "getConf", lambda _: plain)
        with pytest.raises(PrivacyError, match=r"to disk as .*spark.io.encryption.enabled=true"):
            run(spark, stand)
    stand.close()
    monkeypatch.setattr(context, "master", "spark://127.0.0.1:7077")
    with pytest.raises(PrivacyError, match=r"readable; .*spark.network.crypto.enabled=true"):
        run(spark, stand)


@pytest.mark.parametrize(
    ("name", "value", "good"),
    [
        ("spark.shuffle.manager", "org.example.RemoteShuffleManager", "tungsten-sort"),
        (
            "spark.shuffle.sort.io.plugin.class",
            "org.example.CloudShuffleDataIO",
            "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO",
        ),
        ("spark.storage.decommission.fallbackStorage.path", "s3a://bucket/", ""),
    ],
)
def test_a_shuffle_that_is_not_sparks_own_is_refused(
    spark: Any, name: str, value: str, good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyramidion.spark.session import refuse_unsafe

    context = spark.sparkContext
    given = context.getConf()
    monkeypatch.setattr(type(context), "getConf", lambda _: given)
    refuse_unsafe(context)
    given.set(name, good)
    refuse_unsafe(context)
    given.set(name, value)
    with pytest.raises(PrivacyError, match=f"set as {name} encrypts them"):
        refuse_unsafe(context)


def test_broadcasts_that_nobody_can_need_any_more_are_destroyed(
    spark: Any, stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import Broadcast

    made: list[Any] = []
    real = type(spark.sparkContext).broadcast

    def broadcast(self: Any, value: Any) -> Any:
        made.append(real(self, value))
        return made[-1]

    def there() -> list[Any]:
        return [each for each in made if Path(each._path).exists()]

    monkeypatch.setattr(type(spark.sparkContext), "broadcast", broadcast)
    store = stand.create()
    pq.write_table(history(60, days=20), tmp_path / "rows.parquet")
    count_into(ParquetFiles(spark, tmp_path / "rows.parquet"), store)
    assert len(made) == 2  # the recipe, and which task reads what
    assert all(isinstance(each, Broadcast) for each in made)
    assert not there()
    name = store.snapshot().names[0]
    clash = frame(spark, history(60, days=20)).withColumn(name, _one())
    with pytest.raises(SchemaError, match="rename it first"):
        featurize(clash, store.snapshot(), keep=[name], clock=now)
    with pytest.raises(SchemaError, match="rename it first"):
        training_set(clash, store, keep=[name], clock=now)
    assert not there()
    featurize(frame(spark, rows(3)), store.snapshot(), clock=now)
    assert len(there()) == 1


def _one() -> Any:
    from pyspark.sql.functions import lit

    return lit(1)
