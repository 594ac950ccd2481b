"""Conversions and bytes before and after the data-type pass: by hand, and of networks that others trained."""

import re
from pathlib import Path

import pytest

from concord.frontend import import_model
from concord.graph.ops import OperatorKind
from concord.graph.passes.dtype_report import graph_rows, rows, size, total
from concord.graph.passes.dtypes import Dataflow, DataflowNode, assign
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
    found = {row.name: row for row in graph_rows(net, TINY)}
    x, a, y = found["x"], found["a"], found["y1"]
    assert (x.conversions_before, x.conversions_after, x.bytes_before, x.bytes_after) == (1, 1, 32, 20)
    assert (a.conversions_before, a.conversions_after) == (2, 1)
    assert (a.bytes_before, a.bytes_after) == (16 * 4, 16 + 16 + 10 + 16 + 10 + 10)
    assert (y.conversions_before, y.conversions_after, y.bytes_before, y.bytes_after) == (0, 0, 32, 32)
    assert (a.entries, a.factors, a.type, a.forms) == (((1.0, 2), (0.0, 2)), "1, 1, 0, 0", "wide", ("narrow to wide",))
    assert [(c.factor, c.readers, c.shared, c.text) for c in a.conversions] == [
        (1.0, ("q1", "q2"), True, "once for q1, q2")
    ]
    assert (x.type, x.factors, x.conversions, x.forms) == ("narrow", "1", (), ())
    whole = total("net", found.values())
    assert (whole.name, whole.elements, whole.conversions_before, whole.conversions_after) == ("net", 40, 3, 2)
    assert (whole.bytes_before, whole.bytes_after) == (32 + 64 + 96, 20 + 78 + 96)


def test_readers_that_convert_for_themselves():
    """With a set number of 2, two readers read the wide tensor and each converts: no bytes of a conversion."""
    net = graph("Dense q x > a", "Dense q1 a > y1", "Dense q2 a > y2", "Softmax p a > y3", outputs=["y1", "y2", "y3"])
    a = graph_rows(net, TINY, assign(net, conversions_from=2))[1]
    assert (a.name, a.conversions_after, a.bytes_after) == ("a", 2, 16 * 4)
    assert [c.text for c in a.conversions] == ["by q1", "by q2"]


def test_factors_and_conversions_in_words():
    net = graph("Conv q x > a", *(f"Dense q{k} a > y{k}" for k in range(7)))
    factors = {(f"q{k}", 0): 4.0 if k < 4 else 2.0 if k < 6 else 0.5 for k in range(7)}
    a = graph_rows(net, TINY, assign(net, factors))[1]
    assert a.factors == "4 (4x), 2, 2, 0.5"
    assert [c.text for c in a.conversions] == [
        "once with the factor 4 for q0, q1, q2, q3", "once with the factor 2 for q4, q5", "by q6 with the factor 0.5"
    ]  # fmt: skip


def test_very_many_ways_have_a_short_text():
    lines = [line for k in range(30) for line in (f"Slice a{k} t{k} > u{k}", f"Concat k{k} u{k} t{k} > t{k + 1}")]
    (first, *_) = graph_rows(graph(*lines, "Dense q t30 > y"), TINY)
    assert first.entries == ((1.0, 2**30),) and first.factors == "1 (over 1,000,000x)"


def test_an_output_that_leaves_narrow():
    flow = Dataflow(("x",), (DataflowNode("q", OperatorKind.QUANTISED, ("x",), ("y",)),), (("y", 1.0),))
    (_, y) = rows(assign(flow), {"x": 8, "y": 8}, TINY)
    assert (y.type, y.bytes_before, y.bytes_after) == ("narrow", 32, 20)


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
    found = total(name, graph_rows(net, ECP5_85F))
    assert FIGURES[name] == (
        found.conversions_before, found.conversions_after, found.bytes_before, found.bytes_after
    )  # fmt: skip


@needs_data
def test_the_page_has_every_network():
    assert set(FIGURES) == {path.stem for path in (DATA / "models").glob("*.onnx")}
