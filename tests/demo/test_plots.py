from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.figure import Figure

from pyramidion.demo import plots
from pyramidion.demo.models import NAMES
from pyramidion.demo.year import Exposure, Life, Loss, Month

EXPOSURES = [Exposure(day, 90, 10 * day, 5 * day) for day in range(120)]
LIVES = [
    Life(number, 20.0 * number, 20.0 * number + 20, 100, "erased" if number < 3 else "sealed", 1.0)
    for number in range(6)
]


def month(number: int, ratio: float = 1.02) -> Month:
    raw = 0.5 + 0.01 * number
    losses = {name: Loss(raw * ratio, raw) for name in NAMES} if number > 1 else {}
    prior = 0.6 if losses else None
    return Month(number, 1_000, 0.2, losses, prior, EXPOSURES[30 * number - 1], 1.0, 2, 1)


MONTHS = [month(number) for number in range(1, 5)]


def words(figure: Figure) -> str:
    """Everything that is written in a figure."""
    texts = [text.get_text() for text in figure.findobj(lambda each: hasattr(each, "get_text"))]
    return " ".join(texts)


def area(corners: np.ndarray) -> float:
    x, y = corners.T
    return 0.5 * abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))


def test_all_plots_are_pictures_of_a_decent_size(tmp_path: Path) -> None:
    drawn = plots.drawn(tmp_path, MONTHS, EXPOSURES, LIVES, retention=60)
    assert sorted(path.name for path in drawn) == ["exposure.png", "loss.png", "pyramid.png"]
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 20_000


@pytest.mark.parametrize("found", [Exposure(364, 120, 1_370, 1_780), Exposure(0, 5, 995, 9_000)])
def test_the_areas_of_the_pyramid_are_numbers_of_flights(found: Exposure) -> None:
    (axes,) = plots.pyramid(found, 1.0).axes
    areas = np.array([area(patch.get_xy()[:4]) for patch in axes.patches])
    rows = np.array([found.hot, found.counted, found.gone])
    np.testing.assert_allclose(areas / areas.sum(), rows / rows.sum(), rtol=1e-9)


def test_the_pyramid_says_what_an_attacker_would_see() -> None:
    told = words(plots.pyramid(Exposure(364, 120, 1_370, 1_780), 1.0))
    assert "120 raw flights" in told
    assert "1,370 flights as counts" in told
    assert "1,780 flights gone" in told
    assert "3,270 flights collected by the end of December" in told
    assert "ε = 1" in told


def test_a_pyramid_of_which_nothing_is_gone_has_two_layers() -> None:
    (axes,) = plots.pyramid(Exposure(30, 10, 20, 0), 1.0).axes
    assert len(axes.patches) == 2


def test_without_privacy_the_pyramid_says_so() -> None:
    assert "no privacy" in words(plots.pyramid(EXPOSURES[-1], np.inf))


def test_losses_are_drawn_as_they_are() -> None:
    panels = plots.losses(MONTHS[1:]).axes
    for axes, name in zip(panels, NAMES, strict=True):
        _, raw, private = (line.get_ydata() for line in axes.lines)
        assert list(raw) == [m.losses[name].raw for m in MONTHS[1:]]
        assert list(private) == [m.losses[name].private for m in MONTHS[1:]]
        assert f"{name}: +2.0% on average" in axes.get_title(loc="left")


def test_names_of_lines_do_not_touch() -> None:
    for axes in plots.losses([month(2, ratio=1.001), month(3, ratio=1.0001)]).axes:
        ends = sorted(text.xy[1] for text in axes.texts)
        low, high = axes.get_ylim()
        assert min(np.diff(ends)) > 0.05 * (high - low)


def test_the_bands_of_exposure_add_up_to_all_that_was_collected() -> None:
    upper, _ = plots.exposure(EXPOSURES, LIVES, 60).axes
    bands = [each for each in upper.collections if isinstance(each, FillBetweenPolyCollection)]
    assert len(bands) == 3
    tops = [band.get_paths()[0].vertices[:, 1].max() for band in bands]
    assert tops[-1] == EXPOSURES[-1].collected


def test_erased_windows_end_with_a_cross() -> None:
    _, lower = plots.exposure(EXPOSURES, LIVES, 60).axes
    crosses = [line.get_xdata()[0] for line in lower.lines if line.get_marker() == "x"]
    assert crosses == [60.0, 80.0, 100.0]
