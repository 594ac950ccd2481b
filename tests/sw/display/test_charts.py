"""The geometry of charts: every value is inside the field, as high as it is large."""

import re

import pytest

from concord.display.charts import HEIGHT, WIDTH, Steps, histogram, steps


def test_a_histogram_holds_every_bin():
    drawn = histogram(-3, (1, 0, 4), (-2, 5))
    assert len(drawn.bars) == 2 and drawn.bars[1][3] == HEIGHT == 4 * drawn.bars[0][3]
    assert all(0 <= x and x + width <= WIDTH for x, _, width, _ in drawn.bars)
    assert 0 < drawn.window[0] < drawn.window[1] < WIDTH
    assert [tick.exponent for tick in drawn.x_ticks] == ["0", "4"]
    assert histogram(0, (0,), (0, 7)).bars == ()


def points(path):
    """Corners of a curve: x where a step begins and ends, and its y."""
    found = re.findall(r"[ML] ([\d.]+) ([\d.]+) H ([\d.]+)", path)
    return [tuple(map(float, step)) for step in found]


def test_curves_fall_from_step_to_step():
    drawn = steps([Steps((1000, 10, 1), limit=5, colour=2), Steps((), limit=7, colour=0)], stop=9)
    corners = points(drawn.curves[0].path)
    assert [(x, end) for x, _, end in corners] == [(46 * k, 46 * (k + 1)) for k in range(3)]
    heights = [y for _, y, _ in corners]
    assert heights[0] == 0 and heights == sorted(heights) and heights[-1] < HEIGHT
    assert heights[1] == pytest.approx(heights[2] + (heights[0] - heights[2]) / 3, abs=0.02)
    assert [(curve.limit, curve.colour) for curve in drawn.curves] == [(230, 2), (322, 0)]
    assert drawn.curves[1].path == ""


def test_the_axis_of_counts_has_their_decades():
    drawn = steps([Steps((1000,), limit=1, colour=0)], stop=16)
    assert [(tick.text, tick.exponent) for tick in drawn.y_ticks] == [("10", f"{k}") for k in range(4)]
    assert [tick.text for tick in drawn.x_ticks] == ["8", "16"]
    assert drawn.y_ticks[-1].at == 0
    assert len(steps([Steps((10**15,), limit=1, colour=0)], stop=16).y_ticks) <= 6
