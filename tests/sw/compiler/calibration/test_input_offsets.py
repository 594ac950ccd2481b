"""What the host takes off inputs, and biases that make up for it."""

import numpy as np
import pytest

from concord.compiler.calibration.calibration import ALL, Follow
from concord.compiler.calibration.input_offsets import input_offsets
from concord.compiler.ir.layout import BORDER, PAD
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.golden.codes import CodeRange, Codes
from concord.graph import execute
from concord.networks.calibrated import calibration_of, emulate
from concord.spec.presets import TINY
from support.expressions import concat, network, tensor


def conv(x, pads=(0, 0, 1, 1), strides=1, group=1, bias=(1.0, -2.0, 0.5)):
    """Weights that are held exactly."""
    weight = np.random.default_rng(3).choice([-0.5, 0.25, 0.0, 1.0], (3, x.shape[1] // group, 2, 2))
    return x.conv(weight, np.array(bias), strides, pads, group=group, name="first")


def one_layer(size=5, channels=1, **options):
    return network(conv(tensor(1, channels, size, size), **options))


def pixels(graph, samples=6, most=254):
    """From 0 to 254: with 127 taken off, mantissas of 8 bits hold all of them."""
    x = np.random.default_rng(5).integers(0, most + 1, (samples, *graph.sample_shape("x"))).astype(float)
    x[:, 0, 0, :2] = 0, most
    return {"x": x}


@pytest.mark.parametrize("options", [{}, {"pads": (0, 1, 1, 0)}, {"strides": (2, 2)}, {"pads": (0, 0, 0, 0)}])
def test_pixels_are_exact_at_the_border_too(options):
    graph = one_layer(**options)
    x = pixels(graph)
    want = execute.run(graph, x)["y"].astype(np.float16)
    plain, centred = (compile_graph(graph, TINY, Formats(input_offsets=c)) for c in ({}, {"x": 127.0}))
    assert plain.lowered.offsettable == {"x"}
    assert np.array_equal(emulate(centred, x)["y"], want)
    assert not np.array_equal(emulate(plain, x)["y"], want)
    assert plain.image.program == centred.image.program
    port = centred.package.arrangement.pack(x)["x"]
    assert port.min() == -127 and port.max() == 127
    order = centred.package.arrangement.inputs["x"]
    assert (port[:, order == PAD] == 0).all() and (port[:, order == BORDER] == -127).all()
    assert (order == BORDER).any() == (options.get("pads") != (0, 0, 0, 0))


@pytest.mark.parametrize("mant", [3, 8])
def test_the_bias_makes_up_for_the_weights_that_are_there(mant):
    """Not for those that were asked for, when they are not held exactly: results stay where they were."""
    weight = np.random.default_rng(8).uniform(-1, 1, (3, 1, 2, 2))
    graph = network(tensor(1, 1, 5, 5).conv(weight, np.array([1.0, -2.0, 0.5]), name="first"))
    x = pixels(graph, most=127)  # held exactly with and without 64 taken off
    plain, centred = (
        emulate(compile_graph(graph, TINY, Formats(input_offsets=c, mantissas={"first": mant})), x)["y"].astype(float)
        for c in ({}, {"x": 64.0})
    )
    lost = np.abs(execute.run(graph, x)["y"] - plain).max()
    assert lost > 0.3
    # Bias and results are rounded to binary16, below 256 in steps of an eighth.
    assert np.abs(centred - plain).max() <= 0.2


def behind_a_transpose():
    """Channels last, as they come out of a camera."""
    return network(conv(tensor(1, 5, 5, 1, name="i").transpose(0, 3, 1, 2)))


def test_what_moves_elements_is_looked_through():
    graph = behind_a_transpose()
    x = {"i": pixels(one_layer())["x"].transpose(0, 2, 3, 1)}
    centred = compile_graph(graph, TINY, Formats(input_offsets={"i": 127.0}))
    assert np.array_equal(emulate(centred, x)["y"], execute.run(graph, x)["y"].astype(np.float16))


def two_readers():
    x = tensor(1, 1, 5, 5)
    return network(y=concat(1, conv(x), x.relu()))


@pytest.mark.parametrize(
    "graph",
    [one_layer(channels=3, group=3), one_layer(channels=2), two_readers()],
    ids=["groups", "padded by the NPU", "two readers"],
)
def test_other_inputs_stay_as_they_are(graph):
    config = TINY.replace(wide_depth=256)
    plain, other = (compile_graph(graph, config, Formats(input_offsets=c)) for c in ({}, {"x": 127.0}))
    assert plain.lowered.offsettable == set()
    assert (plain.image.program, plain.image.segments) == (other.image.program, other.image.segments)
    assert other.package.arrangement.input_offsets == {} and "offset" not in other.image.metadata
    assert input_offsets(plain, pixels(graph)) == {}


@pytest.mark.parametrize(("most", "scale"), [(254, 1.0), (255, 1.0), (255, 1 / 255)])
def test_calibration_finds_the_middle(most, scale):
    graph = one_layer()
    x = {name: scale * values for name, values in pixels(graph, 40, most).items()}
    (offset,) = input_offsets(compile_graph(graph, TINY), x).values()
    assert abs(offset / scale - most / 2) <= 0.51


def test_pixels_that_begin_above_zero():
    """The middle of a range, not half its width."""
    graph = one_layer()
    x = {name: values / 2 + 120 for name, values in pixels(graph, 40).items()}
    (offset,) = input_offsets(compile_graph(graph, TINY), x).values()
    assert abs(offset - (120 + 254 / 4)) <= 0.51


def test_inputs_around_zero_stay():
    graph = one_layer()
    x = {"x": np.random.default_rng(6).normal(0, 1, (40, *graph.sample_shape("x")))}
    assert input_offsets(compile_graph(graph, TINY), x) == {}
    few = {"x": np.random.default_rng(7).exponential(1, (40, *graph.sample_shape("x"))) ** 4}
    assert input_offsets(compile_graph(graph, TINY), few) == {}, "most are small, which dynamic exponents are good for"


def test_codes_of_a_quantised_model_stay():
    graph = one_layer()
    graph.quantization["x"] = Codes(8, 1.0, 0, CodeRange.UNSIGNED)
    compiled = compile_graph(graph, TINY)
    assert "x" in compiled.package.arrangement.grids and input_offsets(compiled, pixels(graph)) == {}


def test_calibration_measures_what_it_is_good_for():
    graph = one_layer()
    calibration = calibration_of(graph, pixels(graph, 30))
    follow = Follow.BIASES | Follow.INPUTS
    centred = calibration.measure("", TINY, Formats(), follow)
    assert centred.error < 0.2 * calibration.measure("", TINY, Formats(), follow & ~Follow.INPUTS).error
    assert centred.compiled.package.formats.input_offsets == centred.compiled.package.arrangement.input_offsets != {}
    (text,) = centred.compiled.image.metadata["offset"]
    assert text.startswith("the host subtracts 12") and "from x" in text
    assert calibration.measure("", TINY, Formats(), ALL).compiled.package.formats.input_offsets


def test_without_a_bias_none_is_chosen():
    """One that is given is made up for by what follows, as networks on codes do it."""
    graph = one_layer(bias=(0.0, 0.0, 0.0))
    plain = compile_graph(graph, TINY.replace(wide_depth=256))
    assert plain.lowered.offsettable == set() and input_offsets(plain, pixels(graph)) == {}
