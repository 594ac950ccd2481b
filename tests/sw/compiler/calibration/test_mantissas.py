"""Narrower mantissas of the weights of single layers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.memory.footprint import weight_bits
from concord.compiler.model import compile_graph
from concord.golden.blocks import dequantize, quantize_float
from concord.image.packing import pack_depthwise, pack_matrix, quantize_depthwise, quantize_matrix
from concord.networks.calibrated import emulate
from concord.networks.folder import load_package, recompile
from concord.report import analyse, render
from concord.spec.presets import ECP5_85F, TINY, with_mantissas
from support.commands import run, two_products
from support.compiled_nets import gru, residual
from support.expressions import network, tensor

WIDTHS = range(3, 9)


def samples(graph, count=4):
    rng = np.random.default_rng(6)
    return {name: rng.normal(0, 1, (count, *graph.sample_shape(name))) for name in graph.inputs}


@pytest.mark.slow
@given(st.data(), st.integers(3, 8))
def test_narrow_blocks_are_held_exactly(data, width):
    """Whatever the magnitude of a block: also where exponents are clamped to the least one, and up to the largest."""
    scale = 2.0 ** data.draw(st.integers(-24, 6))
    values = scale * np.array(data.draw(st.lists(st.floats(-1.9, 1.9, allow_subnormal=False), min_size=4, max_size=4)))
    narrow = quantize_float(values, TINY.wgt.narrowed(width))
    want = dequantize(narrow.mant, narrow.exp)
    held = quantize_matrix(values[None], TINY, mant=width)
    np.testing.assert_array_equal(dequantize(held.mant, held.exp)[0, 0, 0], want)
    deep = quantize_depthwise(values.reshape(1, 2, 2), TINY, mant=width)
    np.testing.assert_array_equal(dequantize(deep.mant, deep.exp)[0], want)
    assert np.abs(narrow.mant).max() <= 2 ** (width - 1) - 1


def test_the_width_of_the_configuration_changes_nothing():
    weight = np.random.default_rng(1).normal(0, 1, (5, 6))
    assert pack_matrix(weight, TINY, mant=8) == pack_matrix(weight, TINY) != pack_matrix(weight, TINY, mant=7)
    kernels = weight.reshape(5, 2, 3)
    assert (
        pack_depthwise(kernels, TINY, mant=8) == pack_depthwise(kernels, TINY) != pack_depthwise(kernels, TINY, mant=7)
    )


@pytest.mark.parametrize("width", [2, 9])
def test_widths_are_checked(width):
    with pytest.raises(ValueError, match=rf"mant must be in 3\.\.8, not {width}"):
        pack_matrix(np.ones((2, 2)), TINY, mant=width)
    with pytest.raises(ValueError, match=rf"mantissas of dense must have 3\.\.8 bits, not {width}"):
        compile_graph(residual(), TINY, Formats(mantissas={"dense": width}))
    with pytest.raises(ValueError, match="must be among first, depthwise, mean, dense, not sum"):
        compile_graph(residual(), TINY, Formats(mantissas={"sum": 5}))


def exact(weight):
    """A product whose inputs and outputs are exact, so that only the weights are rounded."""
    return network(tensor(1, weight.shape[1]).dense(weight, name="dense"))


@pytest.mark.parametrize("width", WIDTHS)
def test_results_are_those_of_rounded_weights(width):
    weight = np.random.default_rng(2).normal(0, 1, (8, 4))
    blocks = quantize_float(weight, TINY.wgt.narrowed(width))
    x = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    got = emulate(compile_graph(exact(weight), TINY, Formats(mantissas={"dense": width})), {"x": x})["y"]
    np.testing.assert_array_equal(got, dequantize(blocks.mant, blocks.exp).T)
    assert np.abs(got - weight.T).max() <= np.abs(weight).max() * 2.0 ** (2 - width)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "name", "config"), [(residual, "dense", TINY), (residual, "depthwise", TINY),
                                                      (gru, "cell", ECP5_85F)])  # fmt: skip
def test_only_the_weights_of_the_layer_change(make, name, config):
    graph = make()
    plain, narrow = (compile_graph(graph, config, Formats(mantissas=widths)) for widths in ({}, {name: 4}))
    assert plain.image.program == narrow.image.program and plain.allocations == narrow.allocations
    layer = next(layer for layer in plain.lowered.layers if layer.name == name)
    mine = {
        row
        for item in layer.weights
        for row in range(
            plain.allocations[item].addr * config.rows,
            (plain.allocations[item].addr + plain.allocations[item].count) * config.rows,
        )
    }
    changed = set()
    for one, other in zip(plain.image.segments, narrow.image.segments, strict=True):
        changed |= {one.start + k for k in np.flatnonzero((one.array() != other.array()).any(axis=1))}
    assert changed and changed <= mine
    results = [emulate(compiled, samples(graph))["y"] for compiled in (plain, narrow)]
    assert 0 < np.abs(results[0] - results[1]).max() < 0.3


def test_bits_of_the_weights_are_named():
    compiled = compile_graph(residual(), TINY, Formats(mantissas={"dense": 5}))
    layers = {entry["name"]: entry for entry in compiled.image.metadata["layers"]}
    assert layers["dense"]["weights"].startswith("5 bits (") and layers["first"]["weights"].startswith("8 bits (")
    assert "weights" not in layers["pool"]
    dense = compiled.lowered.layers[-1]
    analysis = analyse(compiled, samples(compiled.graph))
    first, *_, last = analysis.layers
    assert "with mantissas of 5 bits" in render(analysis)
    assert (first.space.mantissa, last.space.mantissa) == (8, 5)
    assert last.space.weight_bits == weight_bits(dense, compiled.allocations, TINY, 5)
    # Two tiles of four rows, one column tile of two words: each row two mantissas and an exponent of 4 bits.
    assert weight_bits(dense, compiled.allocations, TINY, 5) == 2 * 4 * 2 * (2 * 5 + 4)


@pytest.fixture
def model(tmp_path):
    """A network as ONNX."""
    return two_products(tmp_path) / "net.onnx"


@pytest.mark.parametrize("calibrate", [False, True])
def test_widths_from_the_command_line(model, tmp_path, calibrate):
    more = ("--calibrate", tmp_path / "x.npz") if calibrate else ()
    options = ("--preset", "tiny", "--mantissa", "6", "--mantissa", "second=4", *more)
    assert run("compile", model, *options, "-o", tmp_path / "net")[0] == 0
    package = load_package(tmp_path / "net")
    assert package.config == with_mantissas(TINY, 6) and package.formats.mantissas == {"second": 4}
    output = run("inspect", tmp_path / "net")[1]
    assert "for tiny-m6," in output
    assert "6 bits (" in output and "4 bits (" in output
    assert recompile(tmp_path / "net").package.formats == package.formats
    assert run("run", tmp_path / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")[0] == 0


@pytest.mark.parametrize(
    ("mantissas", "message"),
    [
        (["x"], "mantissa must be auto, one width, and one layer=width per layer, not 'x'"),
        (["5", "6"], "per layer, not '6'"),
        (["first=5", "first=6"], "per layer, not 'first=6'"),
        (["=5"], "per layer, not '=5'"),
        (["third=5"], "layers with a mantissa width must be among first, second, not third"),
        (["first=9"], "mantissas of first must have 3..8 bits, not 9"),
        (["13"], "act_mant must be in 3..12"),
    ],
)
def test_widths_that_are_wrong(model, mantissas, message):
    code, output = run("compile", model, "--preset", "tiny", *(part for m in mantissas for part in ("--mantissa", m)))
    assert code == 1 and message in output
