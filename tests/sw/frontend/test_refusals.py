"""Operators in forms that are not supported, and operands that do not fit."""

import numpy as np
import pytest

from concord.frontend import UnsupportedModel, import_model
from support.onnx_models import agrees, floats, ints, model, node, unary

OPERANDS = [
    ("Celu", {}, {"alpha": 0.0}, "alpha must be greater than 0, not 0"),
    ("Conv", {"w": floats(2, 2, 1, 1), "b": floats(1)}, {}, r"bias must have the shape \[2\], not \[1\]"),
    ("Conv", {"w": floats(2, 3, 1, 1)}, {}, "3 channels"),
    ("Conv", {"w": floats(2, 2, 1, 1)}, {"strides": [1]}, "must go with 2 axes"),
    ("Conv", {"w": floats(2, 2, 1, 1)}, {"strides": [0, 1]}, "must go with 2 axes"),
    ("Conv", {"w": floats(2, 2, 1, 1)}, {"kernel_shape": [2, 2]}, r"kernel \[1, 1\] must go with"),
    ("Conv", {"w": floats(2, 2, 7, 7)}, {}, "must fit into the padded input"),
    ("Gemm", {"w": floats(4)}, {}, "do not fit|must have"),
    ("BatchNormalization", {name: np.abs(floats(3)) for name in "sbmv"}, {}, "broadcast"),
    ("BatchNormalization", {name: -np.abs(floats(2)) for name in "sbmv"}, {}, "positive variance"),
    ("Add", {"c": floats(3)}, {}, "broadcast"),
    ("Reshape", {"s": ints(1, 7)}, {}, "as many elements"),
    ("Reshape", {"s": ints(3, -1)}, {}, "as many elements"),
    ("Unsqueeze", {"a": ints(7)}, {}, "axes must be inside"),
    ("Transpose", {}, {"perm": [0, 1]}, "permutation"),
    ("Slice", {"s": ints(9), "e": ints(11), "a": ints(1)}, {}, "takes no elements"),
    ("Slice", {"s": ints(0, 1), "e": ints(2)}, {}, "must go together"),
    ("Pad", {"p": ints(0, 1)}, {}, "two pads per axis"),
    ("Split", {"s": ints(1, 2)}, {"axis": 1}, "must be 1 and fill"),
    ("Softmax", {}, {"axis": 4}, "axes must be inside"),
    ("Concat", {"c": floats(2, 4, 4)}, {"axis": 1}, "operands must have 4 axes"),
    ("Tile", {"r": ints(1, 2)}, {}, r"repeats must be at least 1 for each of 4 axes, not \[1, 2\]"),
    ("Tile", {"r": ints(1, 0, 1, 1)}, {}, r"repeats must be at least 1 for each of 4 axes"),
    ("Expand", {"s": ints(1, 3, 4, 4)}, {}, "broadcast"),
    ("DepthToSpace", {}, {"blocksize": 2}, "channels must be a multiple of 4, not 2"),
    ("SpaceToDepth", {}, {"blocksize": 3}, "height and width must be multiples of 3, not 4 and 4"),
    ("LpNormalization", {}, {"p": 3}, "p must be 1 or 2, not 3"),
    ("Einsum", {"c": floats(4, 4)}, {"equation": "ncij->nc"}, "must have 2 terms"),
    ("Einsum", {"c": floats(4, 4)}, {"equation": "ncij,jkl->nc"}, "a letter for each axis"),
    ("Einsum", {}, {"equation": "ncij->ncii"}, "the result of .* must not name an axis twice"),
    ("Einsum", {}, {"equation": "nnij->nij"}, "axes of the same letter must have the same size"),
    ("Einsum", {}, {"equation": "ncij->ncijk"}, "must have axes of its operands"),
    ("Einsum", {"c": floats(1, 2, 4)}, {"equation": "ncij,cij->nci"}, "same size"),
    ("MaxPool", {}, {"kernel_shape": [2]}, "must go with the input"),
    ("MaxPool", {}, {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}, "windows that lie in the padding"),
]


@pytest.mark.parametrize(("op", "constants", "attrs", "message"), OPERANDS)
def test_operands_that_do_not_fit(op, constants, attrs, message):
    proto = model([node(op, ["x", *constants], ["y"], name="here", **attrs)], {"x": [1, 2, 4, 4]}, constants=constants)
    with pytest.raises(UnsupportedModel, match=message) as caught:
        import_model(proto)
    (reason,) = caught.value.reasons
    assert reason.startswith(f"{op} 'here': ")


REFUSED = [
    (unary("Det", shape=(1, 5, 5)), "must have matrices of at most 4 rows, not 5: pivots depend on values"),
    (unary("Det", shape=(1, 3, 2)), "must have matrices of at most 4 rows"),
    (unary("CumProd", opset=26, shape=(1, 65), constants={"a": np.int64(1)}), "must multiply at most 64 elements"),
    (unary("Pow", constants={"e": np.zeros(5, "f")}), "exponent must not be zero"),
    (
        unary("Gather", shape=(1, 4, 3), constants={"i": ints(0, 1, 4)}, axis=1),
        "must be inside the 4 of axis 1",
    ),
    (unary("Conv", shape=(1, 1, 4, 4, 4, 4), constants={"w": floats(1, 1, 2, 2, 2, 2)}), "1 to 3 spatial axes, not 4"),
    (unary("MaxPool", shape=(1, 1, 4, 4, 4, 4), kernel_shape=[2] * 4), "1 to 3 spatial axes, not 4"),
    (unary("Cast", to=8), "makes integers"),
    (unary("ReduceProd", shape=(1, 65), axes=[1]), "must multiply at most 64 elements, not 65"),
    (unary("Div", constants={"c": np.zeros(1, "f")}), "must not be zero"),
    (unary("MatMul", shape=(1, 3, 4), constants={"w": floats(65, 4, 3)}), "must have at most 64 matrices .* not 65"),
    (
        model(
            [node("BatchNormalization", ["x", "m", "m", "m", "x"], ["y"])], {"x": (4, 4)}, constants={"m": floats(4)}
        ),
        "variance must be constant, not computed",
    ),
]


@pytest.mark.parametrize(("proto", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_refused_form(proto, reason):
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        import_model(proto)
    assert len(caught.value.reasons) == 1


def test_results_nothing_computes_are_refused():
    proto = model([node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2])], {"x": (1, 1, 4)}, ["y"])
    agrees(proto)
    both = model([*proto.graph.node, node("Cast", ["i"], ["z"], to=1)], {"x": (1, 1, 4)}, ["y", "z"])
    with pytest.raises(UnsupportedModel, match="MaxPool 'y': output 1 'i' is not supported"):
        import_model(both)
