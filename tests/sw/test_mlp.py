"""The compiler for multilayer perceptrons."""

import numpy as np
import pytest

from concord.compiler.formats import relative_error
from concord.mlp import OUTPUT, Narrow, compile_mlp, tap_names
from concord.sheet import CapacityError
from concord.spec.presets import ECP5_85F, TINY
from networks import network
from reference_runs import run_reference


def run(image, x):
    """Outputs of the reference machine by name."""
    return run_reference(image, x)[0]


@pytest.mark.parametrize(
    ("net", "limit"),
    [
        (network(7, 9, 5), 0.03),
        (network(4, 4, 4, 4), 0.03),
        (network(1, 1), 0.03),
        (network(8, 8, 3, activations=["Sigmoid", "Tanh"]), 0.1),
        (network(6, 5, 4, activations=[None, "Relu"]), 0.03),
    ],
)
def test_close_to_float(net, limit):
    x = np.random.default_rng(1).normal(0, 1, (4, net.inputs))
    assert relative_error(run(compile_mlp(net, TINY).image, x)[OUTPUT], net(x)) < limit


def test_taps_are_the_layers_in_between():
    net = network(7, 9, 5, 3)
    x = np.random.default_rng(2).normal(0, 1, (3, net.inputs))
    results = run(compile_mlp(net, TINY).tapped, x)
    assert list(results) == [*tap_names(net), OUTPUT] == ["input", "fc1.out", "fc2.out", "y"]
    for name, reference in zip(results, [x, *net.trace(x)], strict=True):
        assert results[name].shape == reference.shape
        assert relative_error(results[name], reference) < 0.03


def test_static_exponents():
    net = network(7, 9, 5)
    x = np.random.default_rng(3).normal(0, 1, (4, net.inputs))
    image = compile_mlp(net, TINY, (Narrow(-5), Narrow(-4))).tapped
    results = run(image, x)
    assert np.array_equal(results["input"], np.clip(np.rint(x.astype(np.float16) * 32.0), -127, 127) / 32)
    assert np.array_equal(results["fc1.out"] * 16, np.rint(results["fc1.out"] * 16))
    assert image.metadata["layers"][0] == {"name": "fc1", "input": "static exponent -5"}


def test_everything_that_does_not_fit_is_named():
    with pytest.raises(CapacityError) as caught:
        compile_mlp(network(64, 400, 400, 10), TINY)
    message = str(caught.value)
    assert "tiny" in message
    assert "matrix memory has 256 words, but 23800 are needed (fc2.weight 20000, fc1.weight 3200" in message
    assert "wide memory has 64 vectors" in message and "narrow memory has 64 vectors" in message
    assert "fc1.bias 100" in message


def test_formats_must_match_the_layers():
    with pytest.raises(ValueError, match="formats must be 2, one for the input of every layer, not 1"):
        compile_mlp(network(4, 4, 4), TINY, (Narrow(),))


def test_large_preset_compiles_an_autoencoder():
    image = compile_mlp(network(640, 128, 128, 8, 128, 640), ECP5_85F).image
    assert image.inputs[0].shape == (640,) and len(image.program) < 60
