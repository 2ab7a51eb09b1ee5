from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from lab import result_files as module
from lab.points import Point
from lab.result_files import all_measured, here, measured, place
from pyramidion.errors import FormatError
from tests.lab.made import RUN, figure, job, kept, points_of, same

numbers = st.floats(allow_nan=True, allow_infinity=True)
some_points = st.lists(
    st.builds(
        Point,
        series=st.text(st.characters(codec="utf-8"), max_size=5),
        x=numbers,
        loss=numbers,
        ratio=numbers,
        value=numbers,
        seed=st.integers(-(2**63), 2**63 - 1),
        seconds=numbers,
        detail=st.dictionaries(st.sampled_from("abc"), st.none() | st.integers() | st.text("<é")),
    ),
    max_size=4,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=30,
    deadline=None,
)
@given(some_points)
def test_points_come_back_as_they_were(tmp_path: Path, points: list[Point]) -> None:
    kept(tmp_path, [job(1)], again=True).put(job(1), points)
    back = kept(tmp_path, [job(1)]).get(job(1))
    assert back is not None
    assert len(back) == len(points)
    for one, other in zip(back, points, strict=True):
        assert (one.series, one.seed, one.detail) == (other.series, other.seed, other.detail)
        for name in ("x", "loss", "ratio", "value", "seconds"):
            assert same(getattr(one, name), getattr(other, name)), name


def test_a_job_that_was_not_done_has_no_points(tmp_path: Path) -> None:
    results = kept(tmp_path, [job(1)])
    results.put(job(1), points_of(1))
    assert results.get(job(2)) is None
    assert results.get(job(1, other=True)) is None


def test_a_job_without_points_is_done_all_the_same(tmp_path: Path) -> None:
    kept(tmp_path, [job(1)]).put(job(1), [])
    assert kept(tmp_path, [job(1)]).get(job(1)) == []


def test_numbers_of_numpy_are_kept_as_plain_ones(tmp_path: Path) -> None:
    point = Point("a", np.float64(1), seed=np.int64(3), detail={"rows": np.int64(7)})  # type: ignore[arg-type]
    kept(tmp_path, [job(1)]).put(job(1, share=np.float64(0.5)), [point])
    [back] = kept(tmp_path, [job(1)]).get(job(1, share=0.5)) or []
    assert (back.x, back.seed, back.detail) == (1.0, 3, {"rows": 7})


def test_the_file_is_a_plain_parquet_table_with_where_it_came_from(tmp_path: Path) -> None:
    kept(tmp_path, [job(1)]).put(job(1), points_of(1))
    rows = parquet.read_table(tmp_path / "results" / "q1-tiny.parquet").to_pylist()
    assert [row["ratio"] for row in rows] == [point.ratio for point in points_of(1)]
    assert {row["about"] for row in rows} == {'{"number": 1}'}
    assert all('"numpy": "2"' in row["run"] and "some words" in row["run"] for row in rows)


def test_only_whole_files_are_left(tmp_path: Path) -> None:
    results = kept(tmp_path, [job(1), job(2)])
    for number in (1, 2):
        results.put(job(number), points_of(number))
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["q1-tiny.parquet"]


def test_a_write_that_breaks_off_leaves_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = kept(tmp_path, [job(1), job(2)])
    results.put(job(1), points_of(1))
    monkeypatch.setattr(module.os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        results.put(job(2), points_of(2))
    again = kept(tmp_path, [job(1), job(2)])
    assert again.get(job(1)) is not None
    assert again.get(job(2)) is None


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign"])
def test_a_damaged_file_is_named_with_its_remedy(tmp_path: Path, damage: str) -> None:
    kept(tmp_path, [job(1)]).put(job(1), points_of(1))
    path = place(tmp_path, "q1-tiny")
    data = path.read_bytes()
    middle = data.index(b"counts: boosted") + 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    told = {"empty": b"", "cut": data[:-9], "flipped": flipped, "foreign": b"a,b\n1,2\n"}
    path.write_bytes(told[damage])
    with pytest.raises(FormatError, match=r"q1-tiny\.parquet is damaged.*delete it"):
        kept(tmp_path, [job(1)])


def test_a_parquet_file_of_something_else_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, [job(1)]).put(job(1), points_of(1))
    path = place(tmp_path, "q1-tiny")
    parquet.write_table(parquet.read_table(path).replace_schema_metadata(None), path)
    with pytest.raises(FormatError, match="of another version"):
        measured(path)


def test_again_forgets_one_figure_even_if_it_is_damaged(tmp_path: Path) -> None:
    for slug in ("q1", "q2"):
        kept(tmp_path, [job(1)], figure=figure(name=slug)).put(job(1), points_of(1))
    place(tmp_path, "q1-tiny").write_bytes(b"damaged")
    assert kept(tmp_path, [job(1)], again=True).get(job(1)) is None
    assert kept(tmp_path, [job(1)], figure=figure(name="q2")).get(job(1)) is not None


def test_jobs_no_longer_asked_for_are_dropped(tmp_path: Path) -> None:
    results = kept(tmp_path, [job(2)])
    for number in (1, 2):
        results.put(job(number), points_of(number))
    results.keep_only([job(2).key])
    assert kept(tmp_path, [job(2)]).get(job(1)) is None
    assert kept(tmp_path, [job(2)]).get(job(2)) == points_of(2)


# --- the baseline ----------------------------------------------------------------------------


BASELINE = job(9)
HALF = [Point("raw: a", 1.0, loss=0.5, detail={"baseline": True})]


def test_losses_are_divided_by_the_baselines_whenever_it_comes(tmp_path: Path) -> None:
    results = kept(tmp_path, [job(1), BASELINE])
    results.put(job(1), [Point("a", 1.0, loss=0.6), Point("a", 2.0)])
    assert math.isnan(measured(results.path).points[0].ratio)
    results.put(BASELINE, HALF)
    found = measured(results.path).points
    assert found[0].ratio == 1.2
    assert math.isnan(found[1].ratio)
    assert parquet.read_table(results.path)["ratio"].to_pylist()[0] == 1.2


def test_a_baseline_no_longer_asked_for_divides_nothing(tmp_path: Path) -> None:
    kept(tmp_path, [BASELINE]).put(BASELINE, HALF)
    fresh = job(8)
    results = kept(tmp_path, [fresh, job(1)])
    results.put(job(1), [Point("a", 1.0, loss=0.6)])
    results.put(fresh, [Point("raw: a", 1.0, loss=0.6, detail={"baseline": True})])
    assert measured(results.path).points[0].ratio == 1.0


def test_a_job_of_another_figure_is_taken_over_with_the_run_that_did_it(tmp_path: Path) -> None:
    lender = kept(tmp_path, [BASELINE, job(7)], figure=figure(name="q2"))
    lender.put(BASELINE, HALF)
    lender.put(job(7), points_of(7))
    results = kept(tmp_path, [BASELINE, job(1)], lenders=[lender.path])
    assert results.get(BASELINE) is not None
    assert results.get(job(7)) is None
    results.put(job(1), [Point("a", 1.0, loss=0.6)])
    assert measured(results.path).points[0].ratio == 1.2


@pytest.mark.parametrize("at", [None, 100.0])
def test_a_baseline_stands_where_the_figure_has_it(tmp_path: Path, at: float | None) -> None:
    results = kept(tmp_path, [BASELINE], figure=figure(baseline_at=at))
    results.put(BASELINE, HALF)
    assert [point.x for point in measured(results.path).points] == ([] if at is None else [at])


# --- a report can be made of a folder alone --------------------------------------------------


def test_a_file_knows_its_figure(tmp_path: Path) -> None:
    kept(tmp_path, [job(1)]).put(job(1), points_of(1))
    [found] = all_measured(tmp_path)
    assert found.figure == figure()
    assert found.plan.command == "again this"
    assert found.points == points_of(1)
    assert found.runs == [RUN]


def test_a_file_knows_which_lines_are_drawn(tmp_path: Path) -> None:
    some = figure(drawn=("trees", "half"))
    kept(tmp_path, [job(1)], figure=some).put(job(1), points_of(1))
    [found] = all_measured(tmp_path)
    assert found.figure == some


def test_what_is_not_asked_for_is_not_shown_and_what_is_missing_is_counted(tmp_path: Path) -> None:
    results = kept(tmp_path, [job(2), job(3)])
    for number in (1, 2):
        results.put(job(number), points_of(number))
    found = measured(results.path)
    assert found.points == points_of(2)
    assert found.missing == 1


def test_points_come_in_the_order_of_jobs(tmp_path: Path) -> None:
    results = kept(tmp_path, [job(1), job(2)])
    for number in (2, 1):
        results.put(job(number), points_of(number))
    assert measured(results.path).points == points_of(1) + points_of(2)


def test_a_run_names_software_and_machine_but_no_host() -> None:
    import platform

    found = here(86_400, "x")
    assert {"pyramidion", "python", "numpy", "scikit-learn"} <= set(found.versions)
    assert "cores" in found.machine
    assert "memory" in found.machine
    assert platform.node() not in repr(found)
    assert math.isfinite(float(found.machine.split(" GB")[0].split()[-1]))
