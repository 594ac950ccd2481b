"""Bounds carried through a network: nothing beyond the worst case, statistics as samples have them."""

import numpy as np
import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.bounds import bounds
from concord.compiler.lowering.input_assumptions import DEVIATIONS, assumed
from concord.compiler.model import compile_graph
from concord.graph.execute import run
from concord.networks.folder import load_package, recompile
from concord.spec.presets import ECP5_85F
from support import onnx_expressions as onnx
from support.commands import run as command
from support.compiled_nets import recurrent
from support.expressions import network, tensor

RNG = np.random.default_rng(5)


def graph():
    """Something of every kind."""
    c = tensor(1, 2, 4, 4).conv(RNG.normal(size=(4, 2, 3, 3)), RNG.normal(size=4), pads=1)
    r = c.relu()
    g = c.function("gelu")
    s = g.clip(-0.1, 3.0).with_constant("Sub", 2.0, reversed=True)
    q = s * s
    m = q * r
    d = m.reduce("Mean", 2, 3, keep=False).dense(RNG.normal(size=(3, 4)), RNG.normal(size=3))
    pool = r.pool("MaxPool", 2, 2)
    return network(y=d.softmax(1), l=d.then("LogSoftmax", axis=1), c=c, r=r, g=g, q=q, m=m, p=pool)


@pytest.mark.parametrize("given", [None, (0.0, 255.0), (-0.01, 0.02)])
def test_nothing_is_beyond_the_worst_case(given):
    made = graph()
    low, high = given or (-DEVIATIONS, DEVIATIONS)
    found = bounds(made, {"x": given} if given else {})
    corners = np.where(RNG.random((200, 2, 4, 4)) < 0.5, low, high)
    inside = RNG.uniform(low, high, (200, 2, 4, 4))
    values = run(made, {"x": np.concatenate([corners, inside])}, keep="all")
    for name, x in values.items():
        slack = 1e-9 * np.abs(x).max()
        assert found[name].worst[0] - slack <= x.min() and x.max() <= found[name].worst[1] + slack
        assert found[name].worst[0] <= found[name].low <= found[name].high <= found[name].worst[1]
    assert found["y"].worst == (0.0, 1.0) and found["l"].worst[1] == 0.0 and found["q"].worst[0] >= 0


def test_statistics_are_those_of_samples():
    made = graph()
    found = bounds(made)
    values = run(made, {"x": RNG.normal(size=(500, 2, 4, 4))}, keep="all")
    for name in ("x", "c", "r", "g", "m"):
        assert values[name].std() / 2 <= found[name].sigma <= 2 * values[name].std()
        assert found[name].low <= values[name].min() and values[name].max() <= found[name].high
    assert found["x"].source == "worst case" and found["c"].source == "statistics" and found["r"].source == "both"


def test_wide_sums_are_bounded_by_statistics_and_narrow_ones_by_the_worst_case():
    found = bounds(network(tensor(1, 400).dense(np.ones((1, 400)))))["y"]
    assert found.worst == (-3200, 3200) and -3200 <= found.low < -100
    assert bounds(network(tensor(1, 1).dense(np.ones((1, 1)))), {"x": (0, 2)})["y"].domain == (0, 2)


def test_recurrent_layers_have_statistics():
    found = bounds(recurrent("LSTM", 4, 3, 5))["y"]
    assert found.worst == (-np.inf, np.inf) and 0.1 < found.sigma < 1 and found.source == "statistics"


def test_what_is_assumed_of_inputs():
    made = graph()
    text = "normal, deviation 1, within -8 to 8 (default for floats, as there are no samples)"
    assert assumed(made)["x"].text == text
    assert assumed(made, {"x": (0, 255)})["x"].text == "values in 0 to 255 (given)"
    with pytest.raises(ValueError, match="input with a range must be one of x, not 'z'"):
        assumed(made, {"z": (0, 1)})
    for wrong in ((1, 1), (2, 1), (0, np.inf), (np.nan, 1)):
        with pytest.raises(ValueError, match="range of x must be two finite numbers low < high"):
            assumed(made, {"x": wrong})


@pytest.mark.slow
def test_tables_without_samples_cover_what_bounds_say(tmp_path):
    """The range of the input reaches the table behind a product, and is kept in the folder."""
    path = tmp_path / "net.onnx"
    roots = onnx.op.Sqrt(onnx.op.Gemm(onnx.given(1, 4), np.full((3, 4), 2.0), transB=1, name="a"))
    path.write_bytes(onnx.model_of(roots).SerializeToString())
    for given, message in (("1",), "input-range must be"), (("z=1,2",), "input-range must be"), (
        ("1,2", "--calibrate", path), "without --calibrate"
    ):  # fmt: skip
        code, output = command("compile", path, "--input-range", *given)
        assert code == 1 and message in output
    command("compile", path, "--input-range", "x=3,100", "-o", tmp_path / "net")
    formats = load_package(tmp_path / "net").formats
    low, high = formats.bounds["a"]
    assert formats.inputs == {"x": (3.0, 100.0)} and low == 24 and high == 800
    recompile(tmp_path / "net")


def test_ranges_of_samples_come_first():
    root = network(tensor(1, 4).function("sqrt"))
    assert compile_graph(root, ECP5_85F, Formats(ranges={"x": (0, 2)})).package.formats.ranges == {"x": (0, 2)}
    assert compile_graph(root, ECP5_85F, Formats(inputs={"x": (1, 5)})).package.formats.bounds == {"x": (1, 5)}
    with pytest.raises(ValueError, match="must be one of x"):
        compile_graph(root, ECP5_85F, Formats(inputs={"z": (1, 5)}))
