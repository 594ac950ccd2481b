"""All that one configuration computes, one after the other on the same compiled RTL, loaded over its link.

A network in block floating point, one with attention, one on codes, and a training: every output, every code and every
parameter, all flags and all counters are those of the emulator.
"""

from fractions import Fraction

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from concord.compiler.codes.package import compile_codes
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.frontend.codes import load
from concord.host import connect
from concord.host.rtl import find_library
from concord.train import Samples, Settings, Trainer, described
from concord.train.npu import NpuTrainer
from support.compiled_nets import heads, residual
from support.integer_contents import EVERYTHING_85F, TRAIN_SMALL
from support.integer_nets import SHAPE, quantised, small_network
from support.npu_training import MLP, numbers, some_digits
from support.npu_training import SHAPE as SHAPE_OF_DIGITS
from support.trained import DATA, needs_data

RNG = np.random.default_rng(5)


def both(config):
    """The compiled RTL behind its link, and the emulator."""
    return connect("rtl", config, library=find_library(config)), connect("emulator", config)


def assert_same_runs(run, rtl, emulator):
    """``run`` gives the same arrays on both, and leaves the same flags and counters."""
    found, want = run(rtl), run(emulator)
    assert found.keys() == want.keys() and all(np.array_equal(found[name], want[name]) for name in want)
    assert rtl.flags() == emulator.flags() and rtl.counters() == emulator.counters()


def check_network(graph, config, rtl, emulator, samples=2):
    compiled = compile_graph(graph, config)
    inputs = {name: RNG.normal(0, 1, (samples, *graph.shapes[name][1:])) for name in graph.inputs}
    for device in (rtl, emulator):
        device.load(compiled.image)
    assert_same_runs(lambda device: compiled.run(device, inputs), rtl, emulator)
    return compiled


def check_codes(network, inputs, config, rtl, emulator):
    codes = compile_codes(network, config)
    for device in (rtl, emulator):
        device.load(codes.image)
    assert_same_runs(lambda device: codes.run(device, inputs), rtl, emulator)
    want = codes.package.expected(inputs)
    assert all(np.array_equal(codes.run(rtl, inputs)[name], want[name]) for name in want)


def check_training(layers, shape, samples, settings, rtl, emulator):
    graph = described(layers, shape)
    host = Trainer(graph, samples, settings, random=True)
    npus = [NpuTrainer(device, graph, samples, settings, random=True) for device in (rtl, emulator)]
    steps = 0
    while not host.finished:
        for trainer in (host, *npus):
            trainer.step()
        assert rtl.counters() == emulator.counters()
        steps += 1
    npus[0].synchronise()
    assert numbers(npus[0]) == numbers(host)
    return steps


@pytest.mark.slow
def test_four_images_one_after_the_other(tmp_path):
    config, draw = TRAIN_SMALL, np.random.default_rng(2)
    rtl, emulator = both(config)
    x = draw.normal(size=(3, *SHAPE)).astype(np.float32)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    network = load(quantised(tmp_path, small_network(), x, **options))
    dense = [{"op": "dense", "outputs": 9}, {"op": "relu"}, {"op": "dense", "outputs": 4}]
    samples = Samples(draw.normal(size=(24, 11)).astype(np.float32), draw.integers(0, 4, 24))
    with rtl, emulator:
        compiled = check_network(heads(6, 2, 4), config, rtl, emulator)
        assert any(layer.rows is not None for layer in compiled.lowered.layers), "a matrix is written"
        check_codes(network, {"x": x}, config, rtl, emulator)
        settings = Settings(batch=8, epochs=2, rate=Fraction(1, 8), seed=3)
        assert check_training(dense, (11,), samples, settings, rtl, emulator) == 6
        check_network(residual(), config, rtl, emulator)


@pytest.mark.deep
@needs_data
def test_trained_networks_one_after_the_other(tmp_path):
    """A transformer, a network on codes, 50 steps of a training, and ResNet-8, with the memories of a preset."""
    models, rng = DATA / "models", np.random.default_rng(7)
    rtl, emulator = both(EVERYTHING_85F)
    proto = onnx.load(models / "kws_dscnn.onnx")
    shape = [size.dim_value or 1 for size in proto.graph.input[0].type.tensor_type.shape.dim]
    x = rng.normal(size=(4, *shape[1:])).astype(np.float32)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    network = load(quantised(tmp_path, proto, x, **options))
    train, _ = some_digits(32 * 25)
    settings = Settings(batch=32, epochs=2, rate=Fraction(1, 8), seed=3)
    with rtl, emulator:
        compiled = check_network(import_model(models / "digits_transformer.onnx"), EVERYTHING_85F, rtl, emulator, 1)
        assert any(layer.rows is not None for layer in compiled.lowered.layers), "a matrix is written"
        check_codes(network, {proto.graph.input[0].name: x[:1]}, EVERYTHING_85F, rtl, emulator)
        assert check_training(MLP, SHAPE_OF_DIGITS, train, settings, rtl, emulator) == 50
        check_network(import_model(models / "ic_resnet8.onnx"), EVERYTHING_85F, rtl, emulator, 1)
