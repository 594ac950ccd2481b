"""Networks that others trained, on real inputs, compiled for ecp5-85f.

They lie in the folder ``CONCORD_DATA``: ``models/*.onnx`` in float32, and ``data/*.npz``. The figures these tests
compare with are those that onnxruntime reaches on the same files.

Two bounds on the error against double precision follow from the number formats alone. A value of a block whose last
mantissa bit is worth ``step`` is stored with an error of at most ``step``: half of it by rounding, all of it where the
largest mantissa saturates. A value in binary16 has a relative error of at most 2^-11.

*Every layer*, from the mantissas it really reads: weights are off by at most ``step`` each, and the sum, the bias and
their sum are rounded to binary16 once each. Nothing is assumed, so no value may be beyond the bound.

*The whole network*: bounds of layers multiply to something useless within a few layers, so errors are taken as
independent and uniform, with the variance ``step^2 / 12``; variances of independent errors add. They are not quite
independent, so the measured error may be up to ``MARGIN`` times what follows.
"""

import numpy as np
import onnxruntime
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.cost import macs
from concord.host import connect
from concord.report.prefixes import prefixes
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_85F_256
from support.reference_runs import run_reference
from support.trained import DATA, needs_data

pytestmark = needs_data

BINARY16_ERROR = 2.0**-11
#: Share of test images that onnxruntime gets right, and area under the curve of its anomaly scores.
DIGITS_ACCURACY, TOYCAR_AUC = 0.9833, 0.8891
MARGIN = 1.25
FRAMES = 5


def given(graph, x):
    """Rows as the input of a network."""
    (name,) = graph.inputs
    return {name: x.reshape(len(x), *graph.sample_shape(name))}


def in_double(graph, x):
    """The result in double precision."""
    return execute.run(graph, given(graph, x))[graph.outputs[0]]


def on_emulator(image, ports):
    """Outputs by port; nothing may saturate, overflow or be infinite."""
    with connect("emulator", image.config) as device:
        device.load(image)
        outputs = device.run(ports)
        assert device.flags() == {}
        return outputs


def emulate(graph, config, x):
    """The result on the NPU."""
    package = compile_graph(graph, config).package
    outputs = on_emulator(package.image, package.arrangement.pack(given(graph, x)))
    return package.finish(given(graph, x), outputs)[graph.outputs[0]]


def layers_of(graph):
    """Name, weights, bias, and whether ReLU follows, of every product."""
    products = [node for node in graph.nodes if node.op == "Dense"]
    following = [[reader.op for reader in graph.consumers(node.outputs[0])] for node in products]
    return [
        (node.name, node.attrs["weight"], node.attrs["bias"], ops == ["Relu"])
        for node, ops in zip(products, following, strict=True)
    ]


@pytest.fixture(scope="module")
def digits():
    """The network, and images with their labels."""
    with np.load(DATA / "data" / "digits.npz") as file:
        x, y = file["x"], file["y"]
    return import_model(DATA / "models" / "digits_mlp.onnx"), x.reshape(-1, 64) / 16.0, y


@pytest.fixture(scope="module")
def toycar():
    """Windows of five frames ``[clip, window, 640]`` and which clips are anomalous."""
    with np.load(DATA / "data" / "ad_toycar.npz") as file:
        x, y = file["x"], file["y"]
    windows = np.lib.stride_tricks.sliding_window_view(x, FRAMES, axis=1).swapaxes(2, 3)
    return windows.reshape(*windows.shape[:2], -1), y


@pytest.fixture(scope="module")
def autoencoder():
    return import_model(DATA / "models" / "ad_fc_autoencoder.onnx")


@pytest.fixture(params=["digits", "autoencoder"])
def example(request, digits, autoencoder, toycar):
    """A network and 50 or more inputs."""
    return digits[:2] if request.param == "digits" else (autoencoder, toycar[0][:, ::28].reshape(-1, 640))


def in_float(x):
    """The autoencoder in float32, by onnxruntime."""
    session = onnxruntime.InferenceSession(DATA / "models" / "ad_fc_autoencoder.onnx")
    return session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})[0]


def step(values, fmt):
    """Worth of the last mantissa bit for every value; blocks lie along the last axis."""
    count = values.shape[-1]
    padded = np.pad(np.abs(values), ((0, 0), (0, -count % fmt.block)))
    largest = padded.reshape(len(values), -1, fmt.block).max(axis=2)
    exponent = np.where(largest > 0, np.frexp(largest)[1] - 1 - fmt.headroom, fmt.exp_min)
    return np.repeat(2.0 ** np.maximum(exponent, fmt.exp_min), fmt.block, axis=1)[:, :count]


def layer_bound(weight, bias, relu, config, x):
    """What a layer computes from ``x`` in double precision, and how far its output may be from that."""
    exact = x @ weight.T + bias
    bound = np.abs(x) @ step(weight, config.wgt).T
    bound += BINARY16_ERROR * (2 * (np.abs(exact) + bound) + 2 * np.abs(bias))
    bound *= 1 + 4 * BINARY16_ERROR  # what is rounded is itself off by this
    return np.maximum(exact, 0) if relu else exact, bound


def expected_rms(graph, config, x):
    """Root mean square error of the result, if the errors of all roundings are independent."""
    variance = np.zeros_like(x)
    for _, weight, bias, relu in layers_of(graph):
        variance = variance + step(x, config.act) ** 2 / 12
        weight_variance = step(weight, config.wgt) ** 2 / 12
        variance = variance @ (weight**2).T + (x**2 + variance) @ weight_variance.T
        x = x @ weight.T + bias
        variance = variance + (BINARY16_ERROR * x) ** 2 / 3
        if relu:
            variance, x = variance * (x > 0), np.maximum(x, 0)
    return float(np.sqrt(variance.mean()))


def rms(values):
    return float(np.sqrt(np.mean(values**2)))


def auc(scores, anomalous):
    """Share of pairs of an anomalous and a normal clip in which the anomalous one has the higher score."""
    high, low = scores[anomalous == 1][:, None], scores[anomalous == 0]
    return float(np.mean((high > low) + 0.5 * (high == low)))


def test_digits_are_as_accurate_as_in_float(digits):
    graph, x, y = digits
    assert np.mean(in_double(graph, x).argmax(axis=1) == y) == pytest.approx(DIGITS_ACCURACY, abs=5e-5)
    result = emulate(graph, ECP5_85F_256, x)
    assert np.mean(result.argmax(axis=1) == y) >= DIGITS_ACCURACY - 0.005


def test_the_autoencoder_fits(autoencoder):
    config = ECP5_85F_256
    image = compile_graph(autoencoder, config).image
    assert macs(autoencoder) == 264_192
    rows = sum(part.count for part in image.segments if part.region is RegionId.MATRIX)
    assert 264_192 <= rows * config.lanes <= config.matrix_depth * config.rows * config.lanes


def test_the_converters_output_is_the_same_network(autoencoder, toycar):
    raw = import_model(DATA / "models" / "raw" / "ad_fc_autoencoder.onnx")
    x = toycar[0][::8, 0]
    assert macs(raw) == macs(autoencoder)
    want = in_double(autoencoder, x)
    assert rms(in_double(raw, x) - want) < 1e-4 * rms(want)


@pytest.mark.slow
def test_reconstruction_is_within_the_bound(autoencoder, toycar):
    x = toycar[0][:, ::28].reshape(-1, 640)
    reference = in_float(x)
    bound = MARGIN * expected_rms(autoencoder, ECP5_85F_256, x.astype(float))
    error = rms(emulate(autoencoder, ECP5_85F_256, x) - reference)
    assert bound / 2 < error < bound
    coarse = ECP5_85F_256.replace(act_mant=ECP5_85F_256.act_mant - 1)
    assert rms(emulate(autoencoder, coarse, x) - reference) > bound, "a bit less must show"


@pytest.mark.slow
def test_anomalies_are_found_as_in_float(autoencoder, toycar):
    windows, anomalous = toycar
    x = windows.reshape(-1, 640)
    scores = [np.mean((result - x) ** 2, axis=1).reshape(windows.shape[:2]).mean(axis=1)
              for result in (in_float(x), emulate(autoencoder, ECP5_85F_256, x))]  # fmt: skip
    assert auc(scores[0], anomalous) == pytest.approx(TOYCAR_AUC, abs=5e-4)
    assert auc(scores[1], anomalous) > TOYCAR_AUC - 0.01


@pytest.mark.slow
def test_every_layer_is_within_its_bound(example):
    graph, x = example
    compiled = compile_graph(graph, ECP5_85F_256)
    ports = compiled.package.arrangement.pack(given(graph, x))
    (port,), (values,) = compiled.image.inputs, ports.values()
    source = np.stack([port.decode(port.encode(value, ECP5_85F_256), ECP5_85F_256) for value in values])
    source = source.reshape(len(x), -1)[:, : x.shape[1]].astype(float)  # as the host converts it
    for (name, *layer), prefix in zip(layers_of(graph), prefixes(compiled), strict=True):
        exact, bound = layer_bound(*layer, ECP5_85F_256, source)
        (result,) = prefix.results(on_emulator(prefix.image, ports), len(x))
        if Mem.NARROW in result.values:
            bound = bound + step(np.abs(exact) + bound, ECP5_85F_256.act)
        error = np.abs(result.best - exact)
        assert (error <= bound).all(), name
        assert (error > bound / 16).any(), "a bound far away shows nothing"
        source = result.best


@pytest.mark.slow
def test_emulator_equals_the_reference_machine(example):
    graph, x = example
    compiled = compile_graph(graph, ECP5_85F_256)
    ports = compiled.package.arrangement.pack(given(graph, x[:2]))
    (values,) = ports.values()
    for image in (compiled.image, *(prefix.image for prefix in prefixes(compiled))):
        want, _ = run_reference(image, values)
        got = on_emulator(image, ports)
        assert list(got) == list(want) and want
        for name, found in want.items():
            assert got[name].tobytes() == found.tobytes(), name
