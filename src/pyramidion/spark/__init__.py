"""Pyramidion on Apache Spark: counts and features in bulk, and streams into a store."""

from pyramidion.extras import refuse_missing

refuse_missing("pyramidion.spark", ["pyspark"], "spark")

from pyramidion.spark.counting import Counted, count, count_into  # noqa: E402
from pyramidion.spark.features import featurize, training_set  # noqa: E402
from pyramidion.spark.parquet import ParquetFiles  # noqa: E402
from pyramidion.spark.streaming import stream  # noqa: E402

__all__ = ["Counted", "ParquetFiles", "count", "count_into", "featurize", "stream", "training_set"]
