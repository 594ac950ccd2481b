"""What messages advise is done here, with a small network each: it must work, and give what onnxruntime gives."""

import numpy as np
import onnx
import pytest

import concord
from concord.frontend import UnsupportedModel, import_model
from concord.frontend.selection import Selection
from support.onnx_models import model, node, onnxruntime_results

RNG = np.random.default_rng(6)
pytestmark = pytest.mark.slow


def floats(*shape):
    return RNG.normal(0, 0.3, shape).astype(np.float32)


def works(proto):
    """It compiles, and results differ by no more than 8 bits leave."""
    net = concord.compile(proto)
    shapes = {item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in proto.graph.input}
    x = {name: np.random.default_rng(1).normal(0, 1, shape) for name, shape in shapes.items()}
    got = net.run({name: values.reshape(1, *net.inputs[name]) for name, values in x.items()})
    for name, want in zip(net.outputs, onnxruntime_results(proto, x), strict=True):
        assert np.abs(got[name].reshape(want.shape) - want).max() < 0.04 * np.abs(want).max()


def advice(proto):
    with pytest.raises(UnsupportedModel) as caught:
        import_model(proto)
    return str(caught.value)


def test_open_sizes():
    proto = model(
        [node("Conv", ["x", "w"], ["y"])], {"x": ["n", 3, "height", None]}, constants={"w": floats(4, 3, 3, 3)}
    )
    option, _, text = advice(proto).partition("must be fixed; ")[2].removesuffix(" does so").partition(" ")
    assert (option, text) == ("--shape", "x=1,3,SIZE,SIZE")
    choice = Selection.parse(["x=1,3,8,6"], None, None, [])
    works(onnx.load_from_string(choice.of(proto.SerializeToString())))
