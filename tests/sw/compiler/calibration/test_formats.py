"""Formats chosen by calibration."""

import numpy as np
import pytest

from concord.compiler.calibration.calibration import relative_error
from concord.compiler.calibration.formats import Evidence, static_exponent, static_exponents
from concord.compiler.calibration.formats import choose_formats as compared
from concord.compiler.calibration.preference import GAIN, rank
from concord.compiler.ir.activations import domain_of
from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.host import connect
from concord.networks.calibrated import calibration_of, choose_formats, emulate
from concord.spec.formats import Flag
from concord.spec.presets import TINY
from support.compiled_nets import residual
from support.expressions import network, tensor


def inputs(scale=1.0, samples=8):
    return {"x": scale * np.random.default_rng(4).normal(0, 1, (samples, 2, 4, 4))}


@pytest.mark.parametrize(
    ("largest", "exponent"), [(1.0, -6), (127 / 64, -6), (127.5 / 64, -5), (2.0, -5), (0.0, -15), (1e9, 9)]
)
def test_static_exponent_saturates_nothing(largest, exponent):
    assert static_exponent(largest, TINY) == exponent


def test_relative_errors():
    want = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert relative_error(want, want) == 0
    assert relative_error(1.1 * want, want) == pytest.approx(0.1)
    assert relative_error(np.full(2, 1e-30), np.zeros(2)) == pytest.approx(np.sqrt(2)), "a reference of zeros"
    assert relative_error(np.zeros(2), np.zeros(2)) == 0


def test_static_exponents_hold_the_largest_value():
    graph = residual()
    compiled = compile_graph(graph, TINY)
    values = execute.run(graph, inputs(), keep="all")
    exponents = static_exponents(compiled, values)
    assert set(exponents) == {layer.tensor for layer in compiled.lowered.layers}
    for name, exponent in exponents.items():
        largest = np.abs(values[name]).max()
        assert TINY.act.q_max * 2.0 ** (exponent - 1) < largest <= TINY.act.q_max * 2.0**exponent
    tighter = static_exponents(compiled, values, margin=1)
    assert tighter == {tensor: exponent - 1 for tensor, exponent in exponents.items()}


@pytest.mark.slow
def test_a_static_exponent_that_is_far_too_small_saturates():
    graph = residual()
    compiled = compile_graph(graph, TINY)
    exponents = static_exponents(compiled, execute.run(graph, inputs(), keep="all"))
    good = emulate(compile_graph(graph, TINY, Formats(exponents)), inputs())["y"]
    small = Formats({name: e - 6 for name, e in exponents.items()})
    bad = emulate(compile_graph(graph, TINY, small), inputs())["y"]
    want = execute.run(graph, inputs())["y"]
    assert np.abs(good - want).max() < 0.05 < np.abs(bad - want).max()


@pytest.mark.slow
def test_the_candidate_with_the_least_error_is_chosen():
    graph = residual()
    evidence = choose_formats(graph, TINY, inputs())
    ranks = [rank(candidate) for candidate in evidence.candidates[1:]]
    assert ranks == sorted(ranks) and evidence.chosen.error < 0.05
    dynamic, static = "dynamic exponents", "static exponents"
    kept = ", weights and biases as they are"
    assert evidence.chosen.label == dynamic + kept
    assert {candidate.label for candidate in evidence.candidates} == {
        dynamic, dynamic + kept, f"{dynamic}, channels as they are", static + kept, f"{static}{kept}, one bit tighter"
    }  # fmt: skip
    assert evidence.chosen is evidence.candidates[0] and evidence.chosen.agreement >= 0.8

    def spoilt(compiled, given):
        """What comes of dynamic exponents is made wrong."""
        outputs = emulate(compiled, given)
        dynamic = all(layer["output"] == "dynamic exponent" for layer in compiled.image.metadata["layers"])
        return {name: values + 10 * dynamic for name, values in outputs.items()}, []

    other = compared(calibration_of(graph, inputs(), spoilt), TINY)
    assert isinstance(other, Evidence) and other.candidates[-1].label.startswith("dynamic exponents")
    assert "static" in other.chosen.compiled.image.metadata["layers"][0]["output"]


def function(name):
    """One function of eight inputs."""
    return network(tensor(1, 8).function(name))


@pytest.mark.parametrize(("name", "low", "high"), [("log", 300, 420), ("reciprocal", -20, -16), ("sqrt", 100, 140)])
def test_tables_cover_the_calibration_data(name, low, high):
    x = {"x": np.random.default_rng(5).uniform(low, high, (40, 8))}
    graph = function(name)
    (want,) = execute.run(graph, x).values()
    covered = choose_formats(graph, TINY, x).chosen.compiled
    error, without = (np.abs(emulate(c, x)["y"] / want - 1).max() for c in (covered, compile_graph(graph, TINY)))
    assert error < 0.01 and error < without


@pytest.mark.slow
def test_tables_that_follow_the_data_are_compared_with_those_that_do_not():
    x = {"x": np.random.default_rng(5).uniform(8.5, 10, (40, 8))}
    found = {c.label: c.compiled.package.formats.ranges for c in choose_formats(function("sqrt"), TINY, x).candidates}
    assert found["dynamic exponents, tables as they are"] == {} and set(found["dynamic exponents"]) == {"x"}
    sigmoid = choose_formats(function("sigmoid"), TINY, x).candidates  # its table never depends on the data
    assert not any("tables" in candidate.label or candidate.compiled.package.formats.ranges for candidate in sigmoid)


def test_a_table_without_calibration_data_has_both_sides_of_zero():
    x = np.array([[-4, -2, -1, -0.5, 0.5, 1, 2, 4]])
    for name, want in (("exp", np.exp(x)), ("reciprocal", 1 / x)):
        assert np.allclose(emulate(compile_graph(function(name), TINY), {"x": x})["y"], want, rtol=0.05)


def test_ranges_of_tables():
    exp, sigmoid, log = (("exp", ()),), (("sigmoid", ()),), (("log", ()),)
    assert domain_of(exp, (-8, 8)) == (-10, 10)
    assert domain_of(log, (1, 5)) == (0.5, 5.5) and domain_of((("sqrt", ()),), (0.25, 8.25)) == (0, 9.25)
    assert domain_of(exp, (3, 3)) == (3 - 2**-10, 3 + 2**-10)
    assert domain_of(sigmoid, (-90, 90)) is None and domain_of(log, None) is None


@pytest.mark.parametrize("name", ["reciprocal", "rsqrt", "log"])
@pytest.mark.parametrize("least", [0.25, 2.0**-20, 0.0])
def test_no_table_has_the_number_at_a_pole(name, least):
    """Inputs next to zero would have 65,504 in the place of their own number, which may be 2; a flag tells of them."""
    graph = function(name)
    low, _ = domain_of(graph.nodes[0].attrs["functions"], (least, 8.25))
    compiled = compile_graph(graph, TINY, Formats(ranges={"x": (least, 8.25)}))
    assert 0 < low < 1e-6
    with connect("emulator", TINY) as device:
        device.load(compiled.image)
        y = compiled.run(device, {"x": np.array([[0.01, *np.linspace(0.5, 8, 7)]])})["y"]
        assert np.abs(y).max() < 40 and set(device.flags().values()) == {(Flag.TABLE_CLAMPED,)}
        compiled.run(device, {"x": np.linspace(0.5, 8, 8)[None]})
        assert device.flags() == {}


def test_inputs_are_checked():
    arrangement = compile_graph(residual(), TINY).package.arrangement
    assert isinstance(arrangement, Arrangement)
    with pytest.raises(ValueError, match=r"inputs must be \['x'\], not \['z'\]"):
        arrangement.pack({"z": np.zeros((1, 2, 4, 4))})
    with pytest.raises(ValueError, match=r"input 'x' must have the shape \(samples, 2, 4, 4\), not \(2, 4, 4\)"):
        arrangement.pack({"x": np.zeros((2, 4, 4))})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "chosen"), [(0.95, "dynamic exponents, weights to the nearest"), (0.85, "dynamic exponents")]
)
def test_weights_for_samples_have_to_be_worth_it(share, chosen):
    """They were made for these samples, so that some of what they gain is not there for others."""
    graph, rng = residual(), np.random.default_rng(8)
    alike = {"x": rng.normal(0, 1, (40, 1, 1, 1)) + rng.normal(0, 0.1, (40, 2, 4, 4))}

    def run(compiled, given):
        formats = compiled.package.formats
        error = (share if formats.weights else 1.0) * (0.1 if formats.means and not formats.exponents else 0.5)
        return {name: values * (1 + error) for name, values in execute.run(graph, given).items()}, []

    evidence = compared(calibration_of(graph, alike, run), TINY)
    assert evidence.chosen.label == chosen
    assert f"{GAIN:.0%}" in evidence.table().caption
