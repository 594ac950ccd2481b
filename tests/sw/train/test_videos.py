"""Convolutions and poolings over three axes: as sums over frames, and what is trained with them."""

from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

import concord
from concord.cli.main import main
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Node
from concord.host import connect
from concord.spec.presets import ECP5_85F
from concord.spec.training import TrainingFormat, TrainingFormats
from concord.train import CannotTrain, Settings, Trainer, described, export_onnx, fitted
from concord.train.layers.base import PassContext, channels
from concord.train.layers.conv import Conv
from concord.train.layers.pooling import MaxPool
from concord.train.network import TrainableNetwork
from concord.train.npu import NpuTrainer
from concord.train.overflow_settings import OverflowSettings
from concord.train.tensor import Tensor
from concord_bench.evidence.videos import DIRECTIONS, FRAMES, SIDE, moving_digits
from support.expressions import network, tensor
from support.train_digits import FORMATS, assert_a_break_changes_nothing

LAYERS = [
    {"op": "conv", "channels": 6, "pad": 1, "name": "first"}, {"op": "relu"}, {"op": "max_pool", "kernel": [1, 2, 2]},
    {"op": "conv", "channels": 8, "kernel": [2, 3, 3], "stride": [1, 2, 2], "name": "second"}, {"op": "relu"},
    {"op": "average_pool", "kernel": [3, 1, 1]}, {"op": "flatten"}, {"op": "dense", "outputs": len(DIRECTIONS)},
]  # fmt: skip
SHAPE = (1, FRAMES, SIDE, SIDE)
FORMAT = TrainingFormats()


def trainer(train=None, test=None, layers=LAYERS, **settings):
    samples = moving_digits().train.part(slice(60)) if train is None else train
    return Trainer(described(layers, SHAPE), samples, Settings(**settings), test, random=True)


def whole(rng, top, exp, *shape):
    mant = rng.integers(-top, top + 1, shape)
    mant.reshape(-1)[0] = top
    return Tensor(mant.astype(np.float32), exp, top)


def conv(weight, bias, shape, **window):
    """A convolution behind one that leaves everything as it is, so that its input is trained."""
    ones = np.eye(shape[1]).reshape(shape[1], shape[1], *[1] * (weight.ndim - 2))
    return TrainableNetwork(network(tensor(*shape).conv(ones).conv(weight, bias, **window)), FORMAT).layers[1]


# Layers ----------------------------------------------------------------------------------------------------


def test_a_convolution_of_single_frames_has_the_bits_of_one_of_images():
    rng, context = np.random.default_rng(1), PassContext(FORMAT)
    weight, bias = rng.normal(size=(5, 3, 3, 2)), rng.normal(size=5)
    of_frames = conv(weight[:, :, None], bias, (1, 3, 4, 6, 5), pads=(0, 1, 0, 0, 1, 0))
    image = conv(weight, bias, (1, 3, 6, 5), pads=(1, 0, 1, 0))
    x, g = whole(rng, 127, -6, 2, 1, 3, 4, 6, 5), whole(rng, 32767, -9, 2, 1, 5, 4, 6, 4)

    def frames(video):
        """``[samples, 1, C, frames, H, W]`` as so many images."""
        mant = np.moveaxis(video.mant[:, 0], 2, 1)
        return video.with_mant(mant.reshape(-1, 1, *mant.shape[2:]))

    (y,), memory = of_frames.forward([x], context)
    (of_images,), other_memory = image.forward([frames(x)], context)
    assert y.exp == of_images.exp and np.array_equal(frames(y).mant, of_images.mant)
    (back,), changes = of_frames.backward([g], memory, context)
    (other,), other_changes = image.backward([frames(g)], other_memory, context)
    assert back.exp == other.exp and np.array_equal(frames(back).mant, other.mant)
    assert np.array_equal(changes["weight"].values[:, :, 0], other_changes["weight"].values)
    assert np.array_equal(changes["bias"].values, other_changes["bias"].values)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_is_the_sum_of_those_of_its_frames(stride):
    rng, context = np.random.default_rng(2), PassContext(FORMAT)
    weight = rng.normal(size=(4, 2, 3, 2, 2))
    layer = conv(weight, np.zeros(4), (1, 2, 7, 5, 4), strides=(stride, 1, 1))
    kept = layer.weight.tensor.values
    x = whole(rng, 127, -6, 2, 1, 2, 7, 5, 4)
    (y,), _ = layer.forward([x], context)
    for at in range(y.mant.shape[3]):
        parts = 0
        for tap in range(3):
            graph = network(tensor(1, 2, 5, 4).conv(kept[:, :, tap]))
            parts = parts + execute.run(graph, {"x": x.values[:, 0, :, at * stride + tap]})["y"].reshape(2, 4, 4, 3)
        assert np.array_equal(y.values[:, 0, :, at], parts)


def test_the_gradient_of_a_maximum_goes_to_the_first_greatest_of_all_frames():
    rng = np.random.default_rng(3)
    window = {"strides": (1, 2, 1), "pads": (0,) * 6, "dilations": (1, 1, 1)}
    layer = MaxPool(Node("MaxPool", "pool", ("x",), ("y",), {"kernel": (2, 2, 3), **window}))
    x = Tensor(rng.integers(-2, 3, (2, 1, 2, 4, 4, 5)).astype(np.float32), 0, 2)
    (y,), memory = layer.forward([x], PassContext(FORMAT))
    g = whole(rng, 99, 0, *y.mant.shape)
    (back,), _ = layer.backward([g], memory, PassContext(FORMAT))
    want = np.zeros(x.mant.shape)
    for s, c, d, h, w in np.ndindex(2, 2, *y.mant.shape[3:]):
        block = x.mant[s, 0, c, d : d + 2, 2 * h : 2 * h + 2, w : w + 3]
        assert y.mant[s, 0, c, d, h, w] == block.max()
        at = np.unravel_index(block.argmax(), block.shape)
        want[s, 0, c, d + at[0], 2 * h + at[1], w + at[2]] += g.mant[s, 0, c, d, h, w]
    assert np.array_equal(back.values, want)


def test_blocks_are_along_the_channels_of_a_video():
    x = Tensor(np.ones((2, 1, 3, 4, 5, 6), np.float32), 0, 1)
    assert x.mant.shape[channels(x)] == 3
    formats, rng = TrainingFormats(activation=TrainingFormat(4, 3)), np.random.default_rng(4)
    mant = rng.integers(-7, 8, (1, 1, 3, 2, 2, 2)) << np.arange(8).reshape(2, 2, 2)
    mant[:, :, 0] = 7 << np.arange(8).reshape(2, 2, 2)
    pixels = Tensor(mant.astype(np.float32), 0, 7 << 7)
    assert np.array_equal(PassContext(formats).activation(pixels).values, pixels.values)  # a block is a pixel


# Training ------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_directions_are_learned_and_compile():
    split = moving_digits()
    test = split.test.part(slice(200))
    one = trainer(split.train, test, epochs=4)
    accuracy = one.fit()[-1].test_accuracy
    assert accuracy > 0.8
    still = split.train.part(slice(None))
    still = type(still)(np.repeat(still.x[:, :, :1], FRAMES, axis=2), still.y, still.scale)
    assert trainer(still, test, epochs=4).fit()[-1].accuracy < 0.6  # of one frame, only where the digit can be
    file, inputs = export_onnx(one.trained()), test.inputs(slice(None))
    (want,) = execute.run(one.trained(), {"x": inputs}).values()
    for volumes in (True, False):
        graph = import_model(file, volumes=volumes)
        assert ("Transpose" in {node.op for node in graph.nodes}) != volumes
        (got,) = execute.run(graph, {graph.inputs[0]: inputs}).values()
        assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
    assert (want.reshape(200, -1).argmax(axis=1) == test.y).mean() == pytest.approx(accuracy, abs=0.02)
    (y,) = concord.compile(file, preset="ecp5-85f").run(inputs).values()
    assert (y.reshape(200, -1).argmax(axis=1) == test.y).mean() == pytest.approx(accuracy, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("formats", FORMATS)
def test_a_break_and_shards_change_nothing(formats, tmp_path):
    layers = [LAYERS[0], {"op": "batch_norm"}, *LAYERS[1:]]
    test = moving_digits().test.part(slice(20))
    settings = {"epochs": 2, "batch": 16, "shards": 2, "formats": FORMATS[formats], "decay": Fraction(1, 100)}
    assert_a_break_changes_nothing(lambda: trainer(test=test, layers=layers, **settings), tmp_path / "c.npz")


@pytest.mark.slow
def test_a_file_is_trained_with_its_convolutions(tmp_path):
    begun = trainer(epochs=1)
    begun.fit()
    file, samples = export_onnx(begun.trained()), moving_digits().train.part(slice(60))
    (tmp_path / "net.onnx").write_bytes(file)
    np.savez(tmp_path / "x.npz", x_train=samples.x, y_train=samples.y)
    (tmp_path / "net.toml").write_text(f"""
[model]
file = "net.onnx"
[data]
file = "x.npz"
scale = {samples.scale}
[train]
epochs = 1
seed = 2
""")
    done = CliRunner().invoke(main, ["train", str(tmp_path / "net.toml"), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    graph = import_model(file, volumes=True)
    again = Trainer(graph, samples, Settings(epochs=1, seed=2))
    convolutions = [layer for layer in again.network.layers if isinstance(layer, Conv)]
    assert [layer.weight.blocks.shape for layer in convolutions] == [(6, 1, 3, 3, 3), (8, 6, 2, 3, 3)]
    assert np.array_equal(convolutions[0].weight.values, begun.network.parameters["first.weight"].values)
    again.fit()
    assert export_onnx(again.trained()) == (tmp_path / "out" / "network.onnx").read_bytes()


def test_weights_are_rounded_for_samples_of_videos():
    graph = trainer(epochs=1).trained()
    narrow = TrainingFormats(weight=TrainingFormat(4))
    x = moving_digits().train.inputs(slice(8))
    rounded = fitted(graph, narrow, x)
    weights = [next(n.attrs["weight"] for n in g.nodes if n.name == "second") for g in (graph, rounded)]
    assert weights[0].shape == weights[1].shape and not np.array_equal(*weights)
    network = TrainableNetwork(rounded, narrow)
    assert np.array_equal(network.parameters["second.weight"].values, weights[1])


# What is refused -------------------------------------------------------------------------------------------


def test_what_cannot_be_done_with_volumes_is_refused():
    samples = moving_digits().train.part(slice(20))
    with pytest.raises(ValueError, match=r"must be over one or two axes with \[overflow\]: first, second"):
        Trainer(described(LAYERS, SHAPE), samples, Settings(overflow=OverflowSettings(accumulator_bits=16)))
    with pytest.raises(ValueError, match=r"Conv 'first': must be \[1, channels, \(height,\) width\], not \[1, 1, 4, "):
        compile_graph(trainer().trained(), ECP5_85F)
    small = [LAYERS[0], {"op": "relu"}, {"op": "flatten"}, {"op": "dense", "outputs": len(DIRECTIONS)}]
    with (
        connect("emulator", ECP5_85F) as device,
        pytest.raises(CannotTrain, match=r"needs windows over images, not over \[1, 4, 14, 14\] as first"),
    ):
        NpuTrainer(device, described(small, SHAPE), samples, Settings(), random=True)


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        ({"kernel": [3, 3]}, SHAPE, r"kernel must be a whole number, or one for each of 3 spatial axes, not \[3, 3\]"),
        ({"stride": [1, 2, 3]}, (1, 8, 8), r"stride must be a whole number, or one for each of 2 spatial axes, not \["),
        ({"pad": 0.5}, SHAPE, "pad must be a whole number, or one for each of 3 spatial axes, not 0.5"),
        ({"kernel": [3, "3", 3]}, SHAPE, "kernel must be a whole number, or one for each of 3 spatial axes"),
        ({}, (1, 8), r"it must have images or videos, a sample of three or four axes, not \[1, 8\]"),
    ],
)
def test_descriptions_that_are_refused(options, shape, message):
    with pytest.raises(ValueError, match=f"layer conv1 must fit what is in front of it: {message}"):
        described([{"op": "conv", "channels": 2, **options}], shape)
