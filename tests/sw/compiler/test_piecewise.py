"""Functions made of straight lines: exact but for the rounding of binary16, for every number there is."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.golden import binary16
from concord.graph.execute import run
from concord.host import connect
from concord.spec.presets import TINY
from support.onnx_expressions import given, op
from support.onnx_models import agrees, unary

#: All finite numbers of both signs, a few of each size, and the largest.
HALVES = binary16.decode(np.concatenate([np.arange(0, 0x7C00, 61), [0x7BFF], np.arange(0x8000, 0xFC00, 61), [0xFBFF]]))
X = np.resize(HALVES, (-(-HALVES.size // 16), 16))


def computed(proto, x=X, config=TINY):
    """What the emulator gives, which must raise no flag, and what it should be."""
    graph = import_model(proto)
    compiled = compile_graph(graph, config)
    assert not any(
        layer.table_specs for layer in compiled.lowered.layers if layer.table_specs != [((("relu", ()),), None)]
    )
    with connect("emulator", config) as device:
        device.load(compiled.image)
        got = compiled.run(device, {"x": x})["y"]
        assert device.flags() == {}
    return got.reshape(x.shape), run(graph, {"x": x})["y"].reshape(x.shape)


def operator(name, **attrs):
    return unary(name, opset=18, shape=(1, 16), **attrs)


CASES = [
    ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 1.0}), ("LeakyRelu", {"alpha": -0.5}), ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 0.001, "beta": 0.9}), ("HardSwish", {}), ("Abs", {}), ("Relu", {}), ("Neg", {}),
    ("HardSigmoid", {"alpha": -0.5, "beta": 0.5}), ("HardSigmoid", {"alpha": 40.0, "beta": 3.0}),
    ("HardSigmoid", {"alpha": -2000.0, "beta": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs"), CASES)
def test_every_size_of_number(name, attrs):
    got, want = computed(operator(name, **attrs))
    # Constants and every result are rounded, by 2**-11 at most of what is added.
    summed = {"HardSigmoid": 1 + abs(attrs.get("beta", 0.5)), "HardSwish": np.abs(want) + np.minimum(np.abs(X), 4)}
    scale = summed.get(name, np.abs(want))
    assert (np.abs(got - want) <= 2.0**-9 * scale + 2.0**-24).all()


@pytest.mark.parametrize("alpha", [2.0, -3.0])
def test_steep_slopes_do_not_overflow_where_they_do_not_count(alpha):
    x = np.where(X < 0, X / 8, X)
    got, want = computed(operator("LeakyRelu", alpha=alpha), x)
    np.testing.assert_allclose(got, want, rtol=2.0**-10, atol=2.0**-22)


@pytest.mark.parametrize("steep", [1.0, 1.5])
def test_slopes_of_channels(steep):
    slope = np.linspace(-1, steep, 16).astype(np.float32)
    proto = unary("PRelu", shape=(1, 16), constants={"slope": slope})
    agrees(proto)
    got, want = computed(proto, X / 2)
    np.testing.assert_allclose(got, want, rtol=2.0**-9, atol=2.0**-22)


def test_limits():
    constants = {"low": np.float32(-0.1), "high": np.float32(6)}
    got, want = computed(unary("Clip", shape=(1, 16), constants=constants))
    np.testing.assert_allclose(got, want, rtol=2.0**-11)


def test_a_hard_sigmoid_becomes_part_of_the_product_in_front():
    y = op.HardSigmoid(op.MatMul(given(1, 16), np.random.default_rng(2).normal(size=(16, 16))))
    assert len(compile_graph(agrees(y), TINY).lowered.layers) == 1
