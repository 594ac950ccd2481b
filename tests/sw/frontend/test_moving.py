"""Operators that move elements, against onnxruntime; forms of operators that are refused."""

import itertools

import numpy as np
import pytest

from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, floats, ints, ops, unary

RESHAPES = [
    ("Reshape", {"shape": ints(1, -1)}, {}), ("Reshape", {"shape": ints(0, 2, 0, -1)}, {}),
    ("Flatten", {}, {"axis": 2}), ("Flatten", {}, {"axis": 0}), ("Flatten", {}, {"axis": -1}),
    ("Squeeze", {}, {}), ("Squeeze", {"axes": ints(-1)}, {}), ("Unsqueeze", {"axes": ints(0, -1)}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "constants", "attrs"), RESHAPES)
def test_reshape(name, constants, attrs):
    assert ops(agrees(unary(name, shape=(1, 4, 3, 1), constants=constants, **attrs))) == ["Reshape"]


@pytest.mark.parametrize("name", ["Squeeze", "Unsqueeze"])
def test_axes_were_attributes(name):
    assert ops(agrees(unary(name, 11, shape=(1, 4, 1, 3), axes=[2]))) == ["Reshape"]


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (3, 2, 1, 0), None])
def test_transpose(perm):
    assert ops(agrees(unary("Transpose", shape=(1, 2, 3, 4), **({"perm": perm} if perm else {})))) == ["Transpose"]


@pytest.mark.parametrize("axis", [1, -1])
def test_concat(axis):
    x = given(1, 3, 3)
    assert ops(agrees(op.Concat(x, given(1, 3, 3, name="z"), x, axis=axis))) == ["Concat"]


SLICES = [
    ((1,), (3,), (1,), None), ((-2,), (1000,), (2,), None), ((0, 1), (2, -1), None, None), ((4,), (0,), (2,), (-2,)),
    ((-1,), (-1000,), (1,), (-1,)), ((0, 0), (9, 9), (1, 2), (3, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), SLICES)
def test_slice(starts, ends, axes, steps):
    constants = {"starts": ints(*starts), "ends": ints(*ends)}
    constants |= {} if axes is None else {"axes": ints(*axes)}
    constants |= {} if steps is None else {"steps": ints(*steps)}
    shape = (2, 4, 5) if axes is None else (1, 4, 5)
    assert ops(agrees(unary("Slice", shape=shape, constants=constants))) == ["Slice"]
    if steps is None:
        attrs = {name: value.tolist() for name, value in constants.items()}
        assert ops(agrees(unary("Slice", 9, shape=shape, **attrs))) == ["Slice"]


@pytest.mark.parametrize("case", ["attribute", "input", "even", "outputs"])
def test_split(case):
    constants = [[1, 2, 4]] if case == "input" else []
    attrs = {"attribute": {"split": [1, 2, 4]}, "outputs": {"num_outputs": 3}}.get(case, {})
    opset = {"attribute": 11, "outputs": 18}.get(case, 13)
    a, b, c = op.Split(given(1, 2, 6 if case == "even" else 7), *constants, axis=-1, outputs=3, **attrs)
    assert ops(agrees(model_of(a=a, b=b, c=c, opset=opset))) == ["Slice"] * 3
    assert ops(agrees(model_of(op.Relu(b), opset=opset))) == ["Slice", "Relu"]


@pytest.mark.parametrize(
    "indices",
    [ints(2)[0], ints(-1)[0], ints(1, 2), ints(0, 2), ints(3, 1), ints(2, 1, 0), ints(3), ints([0, 1], [2, 3])],
)
def test_gather(indices):
    graph = agrees(unary("Gather", shape=(1, 5, 3), constants={"indices": indices}, axis=1))
    assert ops(graph) == ["Slice"] + ["Reshape"] * (indices.ndim != 1)


@pytest.mark.parametrize(
    ("indices", "slices"),
    [(ints(0, 1, 3), 2), (ints(0, -4, -5), 2), (ints(2, 2), 2), (ints([4, 2], [0, 1]), 2), (ints(0, 4, 3, 2, 0, 1), 3)],
)
def test_gather_at_unequal_distances(indices, slices):
    graph = agrees(unary("Gather", shape=(1, 5, 3), constants={"indices": indices}, axis=1))
    assert ops(graph) == ["Slice"] * slices + ["Concat"] + ["Reshape"] * (indices.ndim != 1)


@pytest.mark.parametrize(
    ("mode", "opset"), [*itertools.product(["constant", "reflect", "edge"], [8, 13, 18]), ("wrap", 19)]
)
def test_pad(mode, opset):
    pads = [0, 1, 2, 0, 0, 1]
    if opset == 8:
        proto = unary("Pad", 8, shape=(1, 3, 4), pads=pads, mode=mode, value=0.5)
    else:
        constants = {"pads": ints(*pads), "value": np.float32(0.5)}
        constants |= {"pads": ints(2, 1, 1, 0), "axes": ints(-1, 1)} if opset >= 18 else {}
        proto = unary("Pad", opset, shape=(1, 3, 4), constants=constants, mode=mode)
    assert ops(agrees(proto)) == ["Pad"]


def test_negative_pads_cut():
    proto = unary("Pad", 13, shape=(1, 3, 4), constants={"pads": ints(0, -1, 2, 0, 0, -2)})
    assert ops(agrees(proto)) == ["Slice", "Pad"]


def test_what_changes_nothing_disappears():
    x = op.Dropout(op.Identity(given(1, 3, 5)))
    x = op.Reshape(op.Cast(op.Cast(x, to=11), to=1), [1, 3, 5])
    graph = agrees(op.Identity(op.Relu(op.Transpose(x, perm=[0, 1, 2]))))
    assert [(n.op, n.inputs, n.outputs) for n in graph.nodes] == [("Relu", ("x",), ("y",))]


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("names", ["cx", "xc", "xcz", "cxzc", "xccz", "cxczc"])
def test_concatenation_with_constants(names, axis):
    operands = {"x": given(1, 3, 3), "z": given(1, 3, 3, name="z"), "c": floats(1, 3, 3)}
    graph = agrees(op.Concat(*(operands[name] for name in names), axis=axis))
    assert ops(graph)[-1] == "Add"


@pytest.mark.parametrize("repeats", [(1, 2, 1, 1), (1, 1, 3, 2), (1, 1, 1, 1), (1, 3, 2, 2)])
def test_tile(repeats):
    agrees(unary("Tile", shape=(1, 2, 3, 2), constants={"r": ints(*repeats)}))


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((1, 3, 1), (1, 3, 4)), ((1, 1, 4), (5, 1)), ((1, 3, 1, 1), (1, 1, 4, 2)), ((1, 3), (2, 1, 3)), ((1, 3), (1,))],
)
def test_expand(shape, wanted):
    agrees(unary("Expand", shape=shape, constants={"s": ints(*wanted)}))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("size", [2, 3])
def test_depth_to_space_and_back(size, mode):
    shape = (1, 2 * size**2, 3, 2)
    agrees(unary("DepthToSpace", shape=shape, blocksize=size, mode=mode))
    agrees(unary("SpaceToDepth", shape=(1, 2, 3 * size, 2 * size), blocksize=size))
