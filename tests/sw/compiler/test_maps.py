"""Images that come in a batch, in parts or with three axes, on small integers, which every format holds exactly."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.expressions import ROOMY, check
from support.onnx_expressions import given, model_of, op

CONFIGS = {"tiny": ROOMY, "ecp5-85f": ECP5_85F.replace(narrow_depth=4096, wide_depth=4096)}


def compiled(name="tiny", **outputs):
    return check(import_model(model_of(opset=19, **outputs)), np.random.default_rng(5), CONFIGS[name])


def weights(*shape):
    return np.random.default_rng(6).integers(-1, 2, shape).astype(np.float32)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("spatial", [(7,), (5, 6)])
def test_a_batch_of_fixed_size(name, group, spatial):
    weight = weights(4, 4 // group, *(3,) * len(spatial))
    c = op.Conv(given(3, 4, *spatial), weight, weights(4), group=group, pads=[1, 0] * len(spatial))
    compiled(name, y=op.MaxPool(c, kernel_shape=[2] * len(spatial)))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("pool", "kernel"), [("MaxPool", [3, 2, 2]), ("AveragePool", [2, 2, 4]), ("MaxPool", [1, 2, 1])]
)
def test_pooling_of_volumes(name, pool, kernel):
    geometry = {"kernel_shape": kernel, "strides": [2, 1, 2], "dilations": [1, 2, 1]}
    compiled(name, y=getattr(op, pool)(given(1, 2, 5, 6, 7), **geometry))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(("axis", "spatial", "state"), [(2, (8,), (3,)), (2, (6, 5), (2, 5)), (1, (4, 5), (4, 5))])
@pytest.mark.parametrize("kept", [False, True])
def test_a_convolution_of_a_stream(name, images, axis, spatial, state, kept):
    """Inputs that lie one behind the other: what is new, and what is kept of the last run, which is a result, too."""
    c = op.Concat(given(images, 4, *state, name="state"), given(images, 4, *spatial), axis=axis)
    group = 8 if axis == 1 else 4
    y = op.Conv(c, weights(group, 1, *(3,) * len(spatial)), group=group)
    compiled(name, y=y, **({"next": op.Slice(c, [-2], [1000], [axis])} if kept else {}))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("first", [True, False])
def test_an_output_that_is_part_of_another_one(name, axis, first):
    """Its vectors lie in those of the whole, at distances of their own."""
    x = given(1, 6, 3, 4)
    y = op.Abs(x)
    compiled(name, y=y, z=op.Concat(*((y, x) if first else (x, y)), axis=axis))


def test_a_slice_of_a_part_is_an_output():
    x = given(1, 6, 4)
    a = op.Abs(x)
    compiled(y=op.Slice(a, [2], [4], [1]), z=op.Concat(a, x, axis=2))


def test_an_output_that_is_a_part_of_a_part():
    x = given(1, 6, 4)
    y, n = op.Abs(x), op.Neg(x)
    z = op.Concat(n, y, axis=2)
    compiled(y=y, z=z, v=op.Concat(given(1, 3, 8, name="u"), z, axis=1))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("last", [False, True])
def test_two_positions_are_read_as_one_and_lie_beside_others(name, last):
    """A map, what reads two positions of it as one, and the map beside another one, in this order or the other."""
    a = op.MatMul(given(1, 2, 7), weights(7, 4))

    def flat():
        return {"b": op.MatMul(op.Reshape(a, [1, 8]), weights(8, 4))}

    def beside():
        return {"y": op.Neg(op.Concat(a, op.Abs(given(1, 2, 4, name="u")), axis=2))}

    compiled(name, **(beside() | flat() if last else flat() | beside()))


def test_an_operand_of_several_positions_that_lie_beside_others():
    """Four vectors of two positions meet those of one position of a product."""
    a = op.MatMul(given(1, 2, 7), weights(7, 8))
    y = op.Neg(op.Concat(a, given(1, 2, 8, name="u"), axis=2))
    b = op.Add(op.MatMul(given(1, 3, name="q"), weights(3, 16)), op.Reshape(a, [1, 16]))
    compiled(y=y, b=b)


def test_an_input_of_which_nothing_is_read_is_no_port():
    j = op.Concat(given(1, 3, name="z"), op.Relu(given(1, 4)), axis=1)
    made = compile_graph(import_model(model_of(op.Slice(j, [3], [5], [1]))), ROOMY)
    assert [port.name for port in made.image.inputs] == list(made.package.arrangement.inputs) == ["x"]
    assert emulate(made, {"x": np.ones((1, 4))})["y"].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_input_that_gets_another_axis(axis, swapped):
    """What moves elements of a sum counts axes of the sum: all elements of the input are stored."""
    x, z = given(1, 6), given(1, 1, 6, name="z")
    y = op.Slice(op.Sub(x, z) if swapped else op.Sub(z, x), [-1], [-100], [axis], [-1])
    compiled(p=op.AveragePool(z, kernel_shape=[2], strides=[2]), y=y)
