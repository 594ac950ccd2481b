"""Depthwise convolutions that the NPU trains have the bits of training on the host, after every step."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from concord.graph.ir import Node
from concord.host.emulated import EmulatedDevice
from concord.program.integers import IntegerChain
from concord.program.trace import trace
from concord.program.verify import verify_phases
from concord.train import Samples, Settings, Trainer
from concord.train.npu import NpuTrainer
from concord.train.npu.window_steps import DepthwiseSteps
from support.npu_training import (
    LARGE,
    SEPARABLE,
    assert_same_steps,
    network_of,
    pair,
    phases_of,
    random_depthwise,
    some_digits,
)

#: A network for digits: convolution, two pairs of a depthwise and a 1 x 1 convolution, classes.
SEEDS = [seed for seed in range(32) if seed != 24]  # that one needs more memory than there is


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [Fraction(0), Fraction(9, 10)])
def test_digits_have_the_bits_of_the_host(momentum):
    samples, test = some_digits(72)
    host, npu = pair(Settings(1, 32, momentum=momentum), SEPARABLE, samples=samples, test=test, config=LARGE)
    assert npu.memory.sizes == (32, 8), "the last batch is a short one"
    assert_same_steps(host, npu)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed < 16 else pytest.mark.deep) for seed in SEEDS]
)
def test_any_network_has_the_bits_of_the_host(seed):
    layers, shape, samples, settings = random_depthwise(seed)
    assert_same_steps(*pair(settings, layers, shape, samples, config=LARGE))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:12])
def test_programs_are_sound(seed):
    layers, shape, samples, settings = random_depthwise(seed)
    _, npu = pair(settings, layers, shape, samples, config=LARGE)
    constants, phases = phases_of(npu)
    assert verify_phases(npu.program.words, LARGE, phases, constants=constants) == []


def test_random_networks_have_every_kind():
    seen = Counter()
    for seed in SEEDS[:15]:
        layers, shape, samples, settings = random_depthwise(seed)
        kinds = [layer for layer in layers if layer["op"] == "depthwise"]
        seen.update([settings.loss, f"batch {settings.batch}", *{layer["op"] for layer in layers}])
        seen.update(
            {f"kernel {layer['kernel']}" for layer in kinds} | {f"stride {layer.get('stride')}" for layer in kinds}
        )
        seen.update({"wide pad" for layer in kinds if layer["pad"] >= layer["kernel"]})
        seen.update(["tiles"] * (shape[0] > 16) + ["short"] * bool(len(samples) % settings.batch))
    kinds = "depthwise relu conv add global_average flatten mse cross_entropy tiles short".split()
    kinds += ["kernel 1", "kernel 2", "kernel 3", "kernel 4", "stride 1", "stride 2", "stride 3", "wide pad"]
    assert min(seen[kind] for kind in [*kinds, "batch 1", "batch 7", "batch 33"]) > 1


def _windows(channels, kernel, strides, pads, dilations):
    """A depthwise convolution, a Relu, another one, and means, as an imported network has them."""
    rank, nodes, last = len(kernel), [], "x"
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": channels}
    for name in ("c1", "c2"):
        weight = np.zeros((channels, 1, *kernel))
        nodes.append(Node("Conv", name, (last,), (name,), {"weight": weight, "bias": np.zeros(channels), **attrs}))
        nodes.append(Node("Relu", f"{name}r", (name,), (f"{name}r",)))
        last = f"{name}r"
    nodes.append(Node("ReduceMean", "m", (last,), ("m",), {"axes": tuple(range(2, 2 + rank)), "keepdims": False}))
    return network_of(nodes, (1, channels, *(11, 12)[:rank]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "dilations"),
    [
        ((3,), (1,), (1, 1), (1,)),
        ((2,), (2,), (0, 3), (2,)),
        ((3, 2), (1, 2), (2, 0, 1, 1), (1, 1)),
        ((2, 3), (2, 1), (0, 4, 3, 2), (2, 3)),
        ((3, 1), (2, 1), (2, 0, 1, 0), (2, 1)),
    ],
)
def test_windows_of_any_kind_have_the_bits_of_the_host(kernel, strides, pads, dilations):
    rng = np.random.default_rng(8)
    graph = _windows(5, kernel, strides, pads, dilations)
    samples = Samples(rng.normal(size=(14, *graph.shapes["x"][1:])), rng.integers(0, 5, 14))
    settings = Settings(2, 8)
    npu = NpuTrainer(EmulatedDevice(LARGE), graph, samples, settings, random=True)
    assert_same_steps(Trainer(graph, samples, settings, random=True), npu)


@pytest.mark.slow
@pytest.mark.parametrize(("native", "lanes"), [(8, 8), (16, 4), (32, 4)])
def test_any_shape_of_the_npu_has_the_same_bits(native, lanes):
    config = LARGE.replace(native=native, lanes=lanes, mfu_lanes=4)
    assert_same_steps(*pair(Settings(1, 12), SEPARABLE, samples=some_digits(20)[0], config=config))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_gradients_of_zero_leave_the_exponents_of_the_host(loss):
    y = np.zeros((20, 10)) if loss == "mse" else np.zeros(20, np.int64)
    layers = [
        {"op": "depthwise"},
        {"op": "relu"},
        {"op": "depthwise"},
        {"op": "flatten"},
        {"op": "dense", "outputs": 10},
    ]
    samples = Samples(np.zeros((20, 2, 6, 7)), y)
    assert_same_steps(*pair(Settings(2, 8, loss=loss), layers, (2, 6, 7), samples, config=LARGE))


@pytest.mark.slow
@pytest.mark.parametrize("relu", [True, False])
def test_sums_of_many_bits_are_taken_in_parts(monkeypatch, relu):
    """Behind a Relu gradients have 16 bits; without one they have 32, and so do their sums."""
    parts = []
    gradient_of_parts = DepthwiseSteps._gradient_of_parts

    def noted(self, *args):
        parts.append(self.step.name)
        gradient_of_parts(self, *args)

    monkeypatch.setattr(DepthwiseSteps, "_gradient_of_parts", noted)
    layers = [{"op": "depthwise", "pad": 1}, *([{"op": "relu"}] if relu else []), {"op": "global_average"}]
    rng = np.random.default_rng(4)
    samples = Samples(rng.normal(size=(40, 18, 4, 5)), 2.0**12 * rng.normal(size=(40, 5)))
    layers += [{"op": "dense", "outputs": 5}]
    settings = Settings(2, 20, loss="mse", rate=Fraction(1, 1 << 14))
    host, npu = pair(settings, layers, (18, 4, 5), samples, config=LARGE)
    assert parts == ([] if relu else ["depthwise1"])
    assert_same_steps(host, npu)


@pytest.mark.parametrize(("count", "steps"), [(2, 2), (7, 2), (16, 0)])
def test_gradients_of_weights_have_up_to_46_bits(count, steps):
    """Gradients of almost 31 bits and inputs of 7, all alike, at 72, 252 and 576 positions."""
    shape = 2, 6, 6
    samples = Samples(np.full((count, *shape), 1.0), np.full((count, *shape), 1e6))
    settings = Settings(2, count, loss="mse", rate=Fraction(1, 1 << 20), momentum=Fraction(0))
    host, npu = pair(settings, [{"op": "depthwise", "kernel": 1}], shape, samples, config=LARGE)
    assert_same_steps(host, npu, steps)
    if not steps:
        with pytest.raises(OverflowError, match="keep integers and exponents within its range"):
            npu.step()


@pytest.mark.slow
@pytest.mark.parametrize("size", [12, 18])
def test_gradients_of_16_bits_have_sums_of_more_than_32(size):
    """Gradients behind a Relu and inputs that are all alike; parts have two digits at 1,152 positions, one at 2,592."""
    layers = [{"op": "depthwise", "kernel": 1}, {"op": "relu"}, {"op": "average_pool", "kernel": 2}]
    samples = Samples(np.full((8, 2, size, size), -1.0), np.full((8, 2, size // 2, size // 2), 14800.0))
    settings = Settings(2, 8, loss="mse", rate=Fraction(1, 1 << 20), momentum=Fraction(0))
    assert_same_steps(*pair(settings, layers, (2, size, size), samples, config=LARGE))


def test_tiles_of_the_weights_are_diagonal():
    _, npu = pair(Settings(1, 8), [{"op": "depthwise"}, {"op": "flatten"}, {"op": "dense", "outputs": 2}], (18, 4, 4),
                  Samples(np.ones((8, 18, 4, 4)), np.arange(8) % 2), config=LARGE)  # fmt: skip
    own = npu.memory.products["depthwise1"]
    assert own.weight.value.features.vectors == 9 * 2 and own.transposed_tiles is None
    chains = trace(npu.program.words, LARGE, npu.program.load).integers
    masked = [chain for chain in chains if isinstance(chain, IntegerChain) and chain.steps.mask]
    assert [chain.vectors for chain in masked] == [16 * own.weight.value.features.vectors]


def test_gradients_that_no_chain_reaches_are_refused():
    samples = Samples(np.zeros((2, 3, 40, 40)), np.zeros(2, np.int64))
    layers = [{"op": "depthwise"}, {"op": "global_average"}, {"op": "dense", "outputs": 2}]
    with pytest.raises(
        ValueError, match=r"smaller layers or batches: in i_planes, col must be in -8192\.\.8191, not 23104"
    ):
        pair(Settings(1, 2), layers, (3, 40, 40), samples, config=LARGE)
