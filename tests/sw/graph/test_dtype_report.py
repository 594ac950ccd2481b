"""Conversions and bytes before and after the data-type pass: by hand, and of networks that others trained."""

import re
from pathlib import Path

import pytest

from concord.frontend import import_model
from concord.graph.passes.dtype_report import rows, size, total
from concord.spec.presets import ECP5_85F, TINY
from support.dtype_graphs import N, W, graph
from support.trained import DATA, needs_data


def test_size_of_tensors():
    assert size(6, W, TINY) == 12
    assert size(6, N, TINY) == 6 + 2  # two vectors of four, an exponent of 8 bits each
    assert size(5, N, TINY.replace(act_mant=5)) == 6  # 41 bits


def test_traffic_by_hand():
    """Three readers of one tensor of eight elements: 16 bytes wide, 10 narrow."""
    lines = ["Dense q x > a", "Dense q1 a > y1", "Dense q2 a > y2", "Softmax p a > y3"]
    net = graph(*lines, outputs=["y1", "y2", "y3"])
    found = {row.name: row for row in rows(net, TINY)}
    x, a, y = found["x"], found["a"], found["y1"]
    assert (x.conversions_before, x.conversions_after, x.bytes_before, x.bytes_after) == (1, 1, 32, 20)
    assert (a.conversions_before, a.conversions_after) == (2, 1)
    assert (a.bytes_before, a.bytes_after) == (16 * 4, 16 + 16 + 10 + 16 + 10 + 10)
    assert (y.conversions_before, y.conversions_after, y.bytes_before, y.bytes_after) == (0, 0, 32, 32)
    whole = total("net", found.values())
    assert (whole.name, whole.elements, whole.conversions_before, whole.conversions_after) == ("net", 40, 3, 2)
    assert (whole.bytes_before, whole.bytes_after) == (32 + 64 + 96, 20 + 78 + 96)


PAGE = Path(__file__).parents[3] / "docs" / "compiler-design.md"
#: Rows of the page: conversions and bytes, before and after, with the formats of ecp5-85f.
FIGURES = {
    name: tuple(int(number.replace(",", "")) for number in numbers.split("|"))
    for name, numbers in re.findall(r"^\| (\w+) \| ([\d,]+ \| [\d,]+ \| [\d,]+ \| [\d,]+) \|$", PAGE.read_text(), re.M)
}


@needs_data
@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_the_page(name):
    net = import_model(DATA / "models" / f"{name}.onnx")
    found = total(name, rows(net, ECP5_85F))
    assert FIGURES[name] == (
        found.conversions_before, found.conversions_after, found.bytes_before, found.bytes_after
    )  # fmt: skip


@needs_data
def test_the_page_has_every_network():
    assert set(FIGURES) == {path.stem for path in (DATA / "models").glob("*.onnx")}
