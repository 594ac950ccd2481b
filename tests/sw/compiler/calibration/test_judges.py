"""How calibration judges: before a final sigmoid, single results by their threshold, and on samples it has not seen."""

import numpy as np
import pytest

from concord.compiler.calibration import formats
from concord.compiler.calibration.calibration import before_sigmoids, decides, relative_error, threshold
from concord.compiler.calibration.preference import TIE
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.networks.calibrated import calibration_of, choose_formats, emulate, observe
from concord.report import analyse
from concord.spec.presets import TINY
from support.compiled_nets import residual
from support.expressions import network, tensor


def detector(*functions, outputs=1):
    """A product with few results, and functions behind it."""
    y = tensor(1, 8).dense(np.random.default_rng(0).normal(0, 1, (outputs, 8)), name="fc")
    for name in functions:
        y = y.function(name)
    return network(y)


def samples(count=20, scale=1.0):
    return {"x": scale * np.random.default_rng(1).normal(0, 1, (count, 8))}


def test_the_error_is_that_before_the_final_sigmoid():
    """Behind it large errors of clear decisions do not show."""
    graph, x = detector("sigmoid"), samples(scale=10)
    logits = execute.run(graph, x, keep=["fc.out"])["fc.out"]

    def run(compiled, given):
        (name,) = compiled.lowered.graph.outputs
        return {name: 1.25 * execute.run(graph, given, keep="all")[name]}, []

    one = calibration_of(graph, x, run).measure("", TINY, Formats())
    assert one.error == pytest.approx(0.25)
    np.testing.assert_allclose(one.outputs["y"], 1 / (1 + np.exp(-1.25 * logits)))
    real = calibration_of(graph, x).measure("", TINY, Formats())
    assert 0 < real.error < 0.05
    assert "Errors are those before the final sigmoid." in choose_formats(graph, TINY, x).table().caption


@pytest.mark.parametrize(
    "functions, read", [(["sigmoid"], "fc.out"), ([], None), (["tanh"], None), (["sigmoid", "tanh"], None)]
)
def test_only_a_sigmoid_at_the_end_is_left_out(functions, read):
    graph = detector(*functions)
    short, found = before_sigmoids(graph)
    short.check()
    assert found == ({read: graph.outputs[0]} if read else {})
    assert short.outputs == ([read] if read else graph.outputs)


def test_several_results_of_which_one_is_behind_a_sigmoid():
    graph = detector("sigmoid")
    graph.outputs.append("fc.out")
    assert before_sigmoids(graph)[1] == {}, "what is an output itself stays one"
    graph = residual()
    short, found = before_sigmoids(graph)
    assert found == {"g": "y"} and short.batched >= {"g"}


@pytest.mark.parametrize("functions, side", [(["sigmoid"], 0.5), (["hardsigmoid"], 0.5), ([], 0.0), (["tanh"], 0.0)])
def test_a_single_result_is_decided_by_its_threshold(functions, side):
    """Agreement of where the largest of one number is would be 100 %, whatever it is."""
    graph, x = detector(*functions), samples()
    assert threshold(graph) == side

    def run(compiled, given):
        """Every fourth sample comes out on the other side."""
        (name,) = compiled.lowered.graph.outputs
        middle = side if name == graph.outputs[0] else 0.0
        values = execute.run(graph, given, keep="all")[name]
        values[::4] = 2 * middle - values[::4]
        return {name: values}, []

    labels = (execute.run(graph, x)[graph.outputs[0]][:, 0] > side).astype(int)
    assert 0 < labels.sum() < len(labels)
    one = calibration_of(graph, x, run, labels).measure("", TINY, Formats())
    assert one.agreement == one.accuracy == 0.75
    exact = calibration_of(graph, x, labels=labels).measure("", TINY, Formats())
    assert exact.agreement == exact.accuracy >= 0.9
    table = choose_formats(graph, TINY, x).table()
    columns = ["candidate", "agreement", "error of the result", "on the other half"]
    if side:
        assert f"on the same side of {side:g}." in table.caption
    else:  # a number as of a regression decides nothing
        assert "same side" not in table.caption
        columns.remove("agreement")
    assert [column.header for column in table.columns] == columns
    assert calibration_of(graph, x, run, labels).decides and decides(graph) == (side > 0)


def test_several_results_are_decided_by_the_largest():
    calibration = calibration_of(detector(outputs=3), samples())
    assert calibration.decided(np.array([[1.0, 3, 2], [5, 4, 1]])).tolist() == [1, 0]


@pytest.mark.parametrize("share, static", [(0.999, False), (0.9, True)])
def test_a_tie_keeps_dynamic_exponents(share, static):
    graph, x = detector(outputs=3), samples()

    def run(compiled, given):
        error = 0.1 * (share if compiled.package.formats.exponents else 1.0)
        return {name: values * (1 + error) for name, values in execute.run(graph, given).items()}, []

    assert (share < TIE) == static
    assert formats.choose_formats(calibration_of(graph, x, run), TINY).chosen.label.startswith(
        "static" if static else "dynamic"
    )


def test_what_is_worse_on_the_other_half_is_not_taken():
    """A runner that flatters static exponents on all samples, and biases on both halves."""
    graph, x = detector(outputs=3), samples(20)
    graph.nodes[0].attrs["bias"][:] = 1.0

    def run(compiled, given):
        formats, whole = compiled.package.formats, len(given["x"]) == 20
        error = (0.05 if whole else 0.5) if formats.exponents else 0.1 if formats.means else 0.2
        return {name: values * (1 + error) for name, values in execute.run(graph, given).items()}, []

    evidence = formats.choose_formats(calibration_of(graph, x, run), TINY)
    assert evidence.chosen.label == "dynamic exponents"
    assert evidence.candidates[1].label.startswith("static exponents")
    assert evidence.held["static exponents"] == pytest.approx(0.5)
    assert evidence.held["dynamic exponents"] == pytest.approx(0.1)
    assert "on the other half" in [column.header for column in evidence.table().columns]


def test_each_half_is_measured_with_what_the_other_one_says():
    """One half of the samples is ten times the other: a table, or an exponent, for either does not suit both."""
    graph = detector("exp", outputs=3)
    seen = []

    def run(compiled, given):
        seen.append((compiled.package.formats.ranges.get("fc.out"), np.abs(given["x"]).max()))
        return observe(compiled, given)

    x = samples(20, scale=0.02)
    x["x"][1::2] *= 10
    evidence = formats.choose_formats(calibration_of(graph, x, run), TINY)
    halves = [(given, largest) for given, largest in seen[-12:] if given is not None]
    assert any((high - low < 0.5) and largest > 0.2 for (low, high), largest in halves)
    assert evidence.held


def test_too_few_samples_for_halves():
    graph = detector(outputs=3)
    assert choose_formats(graph, TINY, samples(3)).held == {}
    assert choose_formats(graph, TINY, samples(4)).held


def test_halves_of_samples():
    calibration = calibration_of(residual(), {"x": np.random.default_rng(2).normal(0, 1, (9, 2, 4, 4))})
    part = calibration.some(1, 2, 3)
    np.testing.assert_array_equal(part.inputs["x"], calibration.inputs["x"][[1, 3, 5]])
    whole = calibration_of(residual(), part.inputs)
    assert part.count == 3 and part.best.tolist() == whole.best.tolist()
    assert part.means.keys() == whole.means.keys() and part.ranges == whole.ranges
    for name, values in whole.values.items():
        assert relative_error(part.values[name], values) < 1e-12


def test_the_report_decides_in_the_same_way():
    """With weights of three bits some single results come out on the other side."""
    graph, x = detector("sigmoid"), samples(200)
    compiled = compile_graph(graph, TINY, Formats(mantissas={"fc": 3}))
    got, want = emulate(compiled, x)[graph.outputs[0]], execute.run(graph, x)[graph.outputs[0]]
    agreement = analyse(compiled, x).agreement
    assert agreement == np.mean((got > 0.5) == (want > 0.5)) < 1
