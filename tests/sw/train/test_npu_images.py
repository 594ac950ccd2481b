"""Training of convolutional networks on the NPU has the bits of training on the host, after every step."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from concord.compiler.ir.layers import LayerWindow
from concord.graph.ir import Node
from concord.graph.ops.windows import WindowAttributes
from concord.host.emulated import EmulatedDevice
from concord.program.integers import IntegerChain
from concord.program.trace import trace
from concord.train import Samples, Settings, Trainer, described
from concord.train.layers.windows import Geometry
from concord.train.npu import NpuTrainer
from concord.train.npu.plan import has_samples_as_lanes
from concord.train.npu.tensors import Features
from support.npu_training import CNN, LARGE, SHAPE, assert_same_steps, network_of, pair, random_images, some_digits

SEEDS = [seed for seed in range(40) if seed not in (0, 39)]  # those need more memory than there is
CONV = {"op": "conv", "channels": 6, "pad": 1}
RELU, FLATTEN, DENSE = {"op": "relu"}, {"op": "flatten"}, {"op": "dense", "outputs": 10}
RESIDUAL = [
    CONV, RELU, {**CONV, "name": "a"}, RELU, CONV, {"op": "add", "to": "a"}, RELU, {"op": "global_average"}, DENSE
]  # fmt: skip


@pytest.mark.slow
def test_a_short_last_batch_has_the_bits_of_the_host():
    host, npu = pair(Settings(1, 32), CNN, samples=some_digits(72)[0], config=LARGE)
    assert npu.memory.sizes == (32, 8)
    assert_same_steps(host, npu)


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [Fraction(0), Fraction(9, 10)])
def test_digits_have_the_bits_of_the_host(momentum):
    samples, test = some_digits(312)
    host, npu = pair(Settings(2, 32, momentum=momentum), CNN, samples=samples, test=test, config=LARGE)
    assert npu.memory.sizes == (32, 24), "the last batch is a short one"
    assert_same_steps(host, npu, 20)
    assert host.done + host.epoch * host.steps == 20


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed < 16 else pytest.mark.deep) for seed in SEEDS]
)
def test_any_network_has_the_bits_of_the_host(seed):
    layers, shape, samples, settings = random_images(seed)
    assert_same_steps(*pair(settings, layers, shape, samples, config=LARGE))


def test_random_networks_have_every_kind():
    seen = Counter()
    for seed in SEEDS:
        layers, _, _, settings = random_images(seed)
        convs = [layer for layer in layers if layer["op"] == "conv"]
        seen.update([settings.loss, *{layer["op"] for layer in layers}])
        seen.update(
            {f"kernel {layer['kernel']}" for layer in convs} | {f"stride {layer.get('stride')}" for layer in convs}
        )
        seen.update({"wide pad" for layer in convs if layer["pad"] >= layer["kernel"]})
        seen.update({"gaps" for layer in layers if "pool" in layer["op"] and layer["stride"] > layer["kernel"]})
    kinds = "conv relu max_pool average_pool global_average flatten dense add mse cross_entropy".split()
    kinds += ["kernel 1", "kernel 2", "kernel 3", "stride 1", "stride 2", "wide pad", "gaps"]
    assert min(seen[kind] for kind in kinds) > 3


LAYERS = {
    "strides": [{**CONV, "stride": 2}, RELU, {**CONV, "channels": 18, "stride": 2}, RELU, FLATTEN, DENSE],
    "residual": RESIDUAL,
    "pool before relu": [CONV, {"op": "max_pool"}, RELU, {**CONV, "pad": 0, "kernel": 2}, RELU, FLATTEN, DENSE],
    "relu and pool of a sum": [
        {**CONV, "name": "a"}, RELU, {"op": "add", "to": "a"}, {"op": "max_pool"}, FLATTEN, DENSE
    ],
    "two relus": [CONV, RELU, RELU, {"op": "average_pool"}, RELU, FLATTEN, RELU, DENSE],
    "relu of the input": [RELU, CONV, FLATTEN, DENSE],
    "pool of the input": [{"op": "max_pool"}, CONV, RELU, FLATTEN, DENSE],
    "products of pixels": [{**CONV, "kernel": 1, "pad": 0}, RELU, {**CONV, "kernel": 1, "pad": 0}, FLATTEN, DENSE],
    "an average at the end": [CONV, RELU, {**CONV, "channels": 10}, {"op": "global_average"}],
    "linear": [CONV, CONV, FLATTEN, DENSE],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_networks_have_the_bits_of_the_host(name):
    samples = some_digits(20)[0]
    host, npu = pair(Settings(2, 12, decay=Fraction(1, 100)), LAYERS[name], samples=samples, config=LARGE)
    assert_same_steps(host, npu)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "size"), [(1, 12), (2, 12), (3, 12), (3, 18)])
def test_gradients_of_16_bits_have_sums_of_more_than_32(kernel, size):
    """Gradients behind a Relu and inputs that are all alike."""
    layers = [{**CONV, "kernel": kernel, "pad": kernel // 2}, RELU, {"op": "global_average"}]
    samples = Samples(np.full((8, 3, size, size), -1.0), np.full((8, 6), 1e4))
    settings = Settings(2, 8, loss="mse", rate=Fraction(1, 1 << 20), momentum=Fraction(0))
    assert_same_steps(*pair(settings, layers, (3, size, size), samples, config=LARGE))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_gradients_of_zero_leave_the_exponents_of_the_host(loss):
    y = np.zeros((20, 10)) if loss == "mse" else np.zeros(20, np.int64)
    layers = [CONV, RELU, {"op": "max_pool"}, FLATTEN, DENSE]
    host, npu = pair(Settings(2, 8, loss=loss), layers, SHAPE, Samples(np.zeros((20, *SHAPE)), y), config=LARGE)
    assert_same_steps(host, npu)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 16, 17])
def test_lanes_of_gradients_are_what_takes_fewer_cycles(size):
    """Samples where these fill tiles, or else positions of all samples; both have the bits of the host."""
    layers = [{**CONV, "channels": 20}, RELU, {**CONV, "channels": 17, "stride": 2}, RELU, FLATTEN, DENSE]
    host, npu = pair(Settings(1, size), layers, samples=some_digits(min(2 * size, 20))[0], config=LARGE)
    _, second, _ = npu.memory.operations.products
    assert has_samples_as_lanes(second, size, LARGE) == (size == 16)
    assert_same_steps(host, npu, 2)


@pytest.mark.slow
def test_lanes_of_gradients_may_be_those_that_fit():
    """Sums over all positions of large images have more terms than the NPU adds, or take longer than a vector may."""
    samples = Samples(np.zeros((16, 2, 14, 14)), np.zeros(16, np.int64))
    npu = pair(Settings(1, 16), [CONV, {"op": "global_average"}, DENSE], (2, 14, 14), samples, config=LARGE)[1]
    step, _ = npu.memory.operations.products
    assert has_samples_as_lanes(step, 16, LARGE)
    assert not has_samples_as_lanes(step, 16, LARGE.replace(max_terms=512)), "980 terms with five digits"
    assert has_samples_as_lanes(step, 32, LARGE.replace(max_terms=4096)), "3,920 cycles"
    assert not has_samples_as_lanes(step, 48, LARGE.replace(max_terms=4096)), "5,880 cycles"


@pytest.mark.slow
def test_a_step_of_images_takes_few_cycles():
    _, npu = pair(Settings(1, 32, momentum=Fraction(0)), CNN, config=LARGE)
    npu.step()
    assert npu.device.counters()["CYCLES"] <= 233_700


@pytest.mark.slow
@pytest.mark.parametrize("where", ["host", "npu"])
def test_windows_of_samples_are_gathered(where):
    """By the host where nobody else reads the samples; the NPU then has no tiles for it."""
    first = [{**CONV, "stride": 2, "kernel": 3}] if where == "host" else [RELU, {**CONV, "stride": 2}]
    samples = some_digits(20)[0]
    host, npu = pair(Settings(1, 16), [*first, RELU, FLATTEN, DENSE], samples=samples, config=LARGE)
    own, _ = npu.memory.products.values()
    packed = npu.memory.operations.packed_samples
    assert (packed is own.step, own.selection is None) == (where == "host",) * 2 and own.step.packed
    assert npu.memory.source == Features(LARGE.native, *((9, 4, 4) if where == "host" else (1, 8, 8)))
    assert_same_steps(host, npu)


@pytest.mark.slow
def test_samples_with_two_readers_stay_as_they_are():
    """A convolution of windows that a vector holds, and a sum with the samples themselves."""
    layers = [
        {"op": "relu", "name": "in"}, {"op": "conv", "channels": 1, "pad": 1}, {"op": "add", "to": "in"}, FLATTEN, DENSE
    ]  # fmt: skip
    graph = described(layers, SHAPE)
    (source,) = graph.inputs
    graph.nodes = [
        replace(node, inputs=tuple(source if name == "in" else name for name in node.inputs))
        for node in graph.nodes[1:]
    ]
    samples, settings = some_digits(20)[0], Settings(1, 16)
    host, npu = (
        Trainer(graph, samples, settings, random=True),
        NpuTrainer(EmulatedDevice(LARGE), graph, samples, settings, random=True),
    )
    own, _ = npu.memory.products.values()
    assert npu.memory.operations.packed_samples is None and own.step.packed and own.selection is not None
    assert_same_steps(host, npu)


@pytest.mark.parametrize("seed", range(12))
def test_what_windows_meet(seed):
    rng, sides = np.random.default_rng(seed), [0]
    while min(sides) < 1:  # a window must fit the image
        channels, *size = (int(number) for number in rng.integers(1, (4, 9, 9)))
        kernel, strides, dilations = (tuple(int(n) for n in rng.integers(1, 4, 2)) for _ in range(3))
        pads = tuple(int(n) for n in rng.integers(0, 3, 4))
        sides = [
            (n + pads[k] + pads[k + 2] - (kernel[k] - 1) * dilations[k] - 1) // strides[k] + 1
            for k, n in enumerate(size)
        ]
    attributes = WindowAttributes(strides=strides, pads=pads, dilations=dilations)
    window, values = LayerWindow.of(attributes, kernel, tuple(size)), rng.integers(-9, 9, (3, channels, *size))
    got = Geometry(kernel, attributes).met(values)
    assert got.shape == (3, window.taps * channels, *sides)
    outside = False
    for sample, lane, y, x in np.ndindex(got.shape):
        tap, channel = divmod(lane, channels)
        row, column = (place + n * step for place, n, step in zip(window.place(tap), (y, x), strides, strict=True))
        inside = 0 <= row < size[0] and 0 <= column < size[1]
        outside |= not inside
        assert got[sample, lane, y, x] == (values[sample, channel, row, column] if inside else 0)
    assert window.padded(tuple(sides)) == outside


@pytest.mark.slow
def test_images_of_an_output_are_trained():
    rng = np.random.default_rng(5)
    samples = Samples(rng.normal(size=(10, 3, 5, 4)), rng.normal(size=(10, 2, 5, 4)))
    layers = [{**CONV, "channels": 17}, RELU, {**CONV, "channels": 2}]
    assert_same_steps(*pair(Settings(2, 8, loss="mse"), layers, (3, 5, 4), samples, config=LARGE))


@pytest.mark.slow
@pytest.mark.parametrize(("native", "lanes"), [(8, 8), (16, 4), (32, 4)])
def test_any_shape_of_the_npu_has_the_same_bits(native, lanes):
    config = LARGE.replace(native=native, lanes=lanes, mfu_lanes=4)
    host, npu = pair(Settings(1, 12), RESIDUAL, samples=some_digits(20)[0], config=config)
    assert_same_steps(host, npu)


@pytest.mark.slow
def test_distances_beyond_the_fields_take_several_chains():
    rng = np.random.default_rng(6)
    samples = Samples(rng.normal(size=(3, 17, 32, 32)), rng.integers(0, 4, 3))
    layers = [{**CONV, "stride": 4}, RELU, CONV, {"op": "global_average"}, {"op": "dense", "outputs": 4}]
    host, npu = pair(Settings(1, 2), layers, (17, 32, 32), samples, config=LARGE)
    chains = trace(npu.program.words, LARGE, npu.program.batches[2].forward).integers
    rows = [
        chain.rows for chain in chains if isinstance(chain, IntegerChain) and chain.steps.add and chain.window.taps == 9
    ]
    assert rows == [1, 1, 2], "each sample of the first convolution has a chain of its own"
    assert_same_steps(host, npu)


def _windows(weight, strides, pads, dilations):
    """A convolution, a Relu, a pooling, and classes of what is left, as an imported network has them."""
    rank = weight.ndim - 2
    attrs = {"strides": strides, "pads": pads, "dilations": dilations}
    pool = {"kernel": (2,) * rank, "strides": (2,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}
    second = np.zeros((5, len(weight), *weight.shape[2:]))
    nodes = [
        Node("Conv", "c1", ("x",), ("c1",), {"weight": weight, "bias": np.zeros(len(weight)), "group": 1, **attrs}),
        Node("Relu", "r", ("c1",), ("r",)),
        Node("Conv", "c2", ("r",), ("c2",), {"weight": second, "bias": np.zeros(5), "group": 1, **attrs}),
        Node("MaxPool", "p", ("c2",), ("p",), pool),
        Node("ReduceMean", "m", ("p",), ("m",), {"axes": tuple(range(2, 2 + rank)), "keepdims": True}),
    ]
    return network_of(nodes, (1, weight.shape[1], *(13, 12)[:rank]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "dilations"),
    [
        ((3,), (1,), (1, 1), (1,)),
        ((2,), (2,), (0, 3), (1,)),
        ((3, 2), (1, 2), (2, 0, 1, 1), (1, 1)),
        ((2, 3), (2, 1), (0, 4, 3, 2), (2, 3)),
        ((3, 1), (2, 1), (2, 0, 1, 0), (2, 1)),
    ],
)
def test_windows_of_any_kind_have_the_bits_of_the_host(kernel, strides, pads, dilations):
    rng = np.random.default_rng(8)
    graph = _windows(np.zeros((4, 18, *kernel)), strides, pads, dilations)
    samples = Samples(rng.normal(size=(14, *graph.shapes["x"][1:])), rng.integers(0, 5, 14))
    settings = Settings(2, 8)
    npu = NpuTrainer(EmulatedDevice(LARGE), graph, samples, settings, random=True)
    assert_same_steps(Trainer(graph, samples, settings, random=True), npu)
