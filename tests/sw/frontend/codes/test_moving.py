"""Operators that only move codes: between pairs, in front of the first one, and on constants."""

import numpy as np
import pytest

from concord.frontend.codes import UnquantisedModel, load
from concord.frontend.resizing import COORDINATES, NEAREST
from support.integer_nets import compared
from support.onnx_models import ints, model, node

SCHEME = {"s": np.float32(0.1), "z": np.uint8(90), "t": np.float32(0.13), "w": np.uint8(70)}


def pair(x, y, scale="s", zero="z"):
    return [node("QuantizeLinear", [x, scale, zero], [f"{y}q"]), node("DequantizeLinear", [f"{y}q", scale, zero], [y])]


def case(op, sizes, attrs, operands=(), count=1, opset=17, first=True):
    """A model of a movement between pairs, behind a pair of the input unless it is the ``first`` one; its outputs."""
    names = [f"operand {k}" if value is not None else "" for k, value in enumerate(operands)]
    constants = {name: value for name, value in zip(names, operands, strict=True) if name}
    parts = [f"part {k}" for k in range(count)]
    nodes = [*pair("x", "a"), node(op, ["a", *names], parts, name="move", **attrs)] if first else [
        node(op, ["x", *names], parts, name="move", **attrs)]  # fmt: skip
    for k, part in enumerate(parts):  # two schemes behind it: that of the codes, and another
        nodes += pair(part, f"y{k}") + (pair(part, f"v{k}", "t", "w") if first else [])
    outputs = [f"{letter}{k}" for k in range(count) for letter in ("yv" if first else "y")]
    return model(nodes, {"x": ["N", *sizes]}, outputs, SCHEME | constants, opset=opset)


def check(*choices, **options):
    """Codes of ONNX Runtime are those of Concord."""
    proto = case(*choices, **options)
    x = np.random.default_rng(4).normal(0, 4, (3, *choices[1])).astype(np.float32)
    count, different = compared(proto, {"x": x}, "UINT8")
    assert count > 3 and different == 0
    load(proto).run({"x": x})


SLICES = [([1], [4], [2], [1]), ([-1], [-9], [1], [-2]), ([0, 3], [99, -99], [1, 3], [2, -1]),
          ([0], [1 << 40], [0], [1]), ([2, 1], [5, 4], [-1, -2], None),
          ([0, 0, 2], [1 << 40, 9, 3], None, None)]  # fmt: skip


@pytest.mark.parametrize("starts, stops, axes, steps", SLICES)
@pytest.mark.parametrize("first", [True, False])
def test_slices(starts, stops, axes, steps, first):
    operands = [ints(*values) if values is not None else None for values in (starts, stops, axes, steps)]
    check("Slice", (6, 5, 7), {}, operands, first=first)


@pytest.mark.parametrize("sizes, parts, attrs, opset", [
    ((7, 4), None, {"num_outputs": 3, "axis": 1}, 18), ((7, 4), ints(1, 4, 2), {"axis": 1}, 17),
    ((7, 4), ints(3, 1), {"axis": -1}, 17), ((7, 4), None, {"axis": 2}, 17), ((6, 4), None, {"axis": -2}, 13),
])  # fmt: skip
def test_parts(sizes, parts, attrs, opset):
    count = attrs.get("num_outputs", 2 if parts is None else len(parts))
    check("Split", sizes, attrs, [] if parts is None else [parts], count, opset)


def test_a_part_that_nothing_reads():
    proto = case("Split", (4,), {"axis": 1}, [ints(1, 3)], 2)
    proto.graph.node[2].output[0] = ""
    del proto.graph.node[3:7], proto.graph.output[:2]
    assert load(proto).run({"x": np.uint8([[1, 2, 3, 4]])})["y1"].tolist() == [[2, 3, 4]]


@pytest.mark.parametrize("indices, axis", [(ints(2, 0, 2, -1), 1), (np.int64(1), 2), (ints(3, 1).reshape(1, 2, 1), -1),
                                           (np.int32([[0, 1], [4, 4]]), 1)])  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_elements_by_index(indices, axis, first):
    check("Gather", (5, 4), {"axis": axis}, [indices], first=first)


@pytest.mark.parametrize("op, sizes, attrs", [
    ("DepthToSpace", (12, 3, 2), {"blocksize": 2}), ("DepthToSpace", (18, 2, 3), {"blocksize": 3, "mode": "CRD"}),
    ("SpaceToDepth", (3, 4, 6), {"blocksize": 2}), ("DepthToSpace", (12, 3, 2), {"blocksize": 2, "mode": "DCR"}),
])  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_depth_and_space(op, sizes, attrs, first):
    check(op, sizes, attrs, first=first)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads, axes", [((0, 0, 1, 2, 0, 0, 3, 0), None), ((2, 1, 0, 2), (2, -1)),
                                        ((0, 1, -1, 0, 0, -2, -1, 2), None), ((0,) * 8, None)])  # fmt: skip
def test_pads(mode, pads, axes):
    operands = [ints(*pads)] if axes is None else [ints(*pads), None, ints(*axes)]
    check("Pad", (4, 5, 6), {"mode": mode}, operands, opset=19)


@pytest.mark.parametrize("value", [0.0, 0.5, -9.0, 16.5])
def test_values_of_pads(value):
    """0 is always exact; others are where a code stands for them."""
    check("Pad", (4, 5), {}, [ints(0, 1, 0, 0, 0, 2), np.float32(value)])


def test_a_quantised_value_of_pads():
    """As ONNX Runtime's quantiser writes it."""
    proto = case("Pad", (4, 5), {}, [ints(0, 1, 0, 0, 0, 2), np.float32(0.5)])
    proto.graph.node[2].input[2] = "value"
    proto.graph.node.insert(0, node("DequantizeLinear", ["code", "s", "z"], ["value"]))
    proto.graph.initializer.append(model([], {}, (), {"code": np.uint8(95)}).graph.initializer[0])
    x = np.random.default_rng(4).normal(0, 4, (3, 4, 5)).astype(np.float32)
    assert compared(proto, {"x": x}, "UINT8")[1] == 0
    assert set(load(proto).run({"x": x})["y0"][:, 0].ravel()) == {95}


def test_elements_are_repeated_before_they_are_quantised():
    check("Pad", (4, 5), {"mode": "edge"}, [ints(0, 1, 0, 0, 0, 2)], first=False)


@pytest.mark.parametrize("where", sorted(COORDINATES))
@pytest.mark.parametrize("nearest", sorted(NEAREST))
@pytest.mark.parametrize("sizes, operands", [
    ((2, 5, 6), [None, np.float32([1, 1, 2, 3])]), ((2, 5, 7), [None, np.float32([1, 1, 0.6, 2.3])]),
    ((2, 5, 7), [None, None, ints(1, 2, 3, 20)]), ((2, 4, 9), [None, np.float32([1, 1, 1.5, 1 / 3])]),
])  # fmt: skip
def test_nearest_elements(where, nearest, sizes, operands):
    attrs = {"coordinate_transformation_mode": where, "nearest_mode": nearest, "mode": "nearest"}
    proto = case("Resize", sizes, attrs, operands, opset=19)
    if proto.graph.initializer[-1].data_type == 7:  # sizes count samples, too
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    x = np.random.default_rng(4).normal(0, 4, (1, *sizes)).astype(np.float32)
    count, different = compared(proto, {"x": x}, "UINT8")
    assert count > 30 and different == 0


@pytest.mark.parametrize("opset, operands", [(10, [np.float32([1, 1, 2, 3])]), (19, [None, np.float32([2.5, 1.5])])])
def test_nearest_elements_of_other_versions(opset, operands):
    attrs = {"mode": "nearest"} | ({"axes": [2, 3]} if opset > 10 else {})
    check("Resize", (2, 5, 6), attrs, operands, opset=opset)
    if opset == 10:
        check("Resize", (2, 5, 6), attrs, operands, opset=opset, first=False)


def test_constants_are_moved():
    """A weight that stands the other way round."""
    constants = SCHEME | {"v": np.arange(12, dtype=np.int8).reshape(3, 4), "places": ints(2, 0), "vs": np.float32(0.2)}
    nodes = [*pair("x", "a"), node("Transpose", ["v"], ["turned"], perm=[1, 0]),
             node("Gather", ["turned", "places"], ["some"], axis=1), node("DequantizeLinear", ["some", "vs"], ["m"]),
             node("MatMul", ["a", "m"], ["p"]), *pair("p", "y")]  # fmt: skip
    x = np.random.default_rng(4).normal(0, 1, (30, 4)).astype(np.float32)
    assert compared(model(nodes, {"x": ["N", 4]}, ("y",), constants), {"x": x}, "UINT8") == (30 * 6, 0)


REFUSED = [
    ("Slice", {}, [ints(0), ints(1), ints(0)], "must leave axis 0 as it is, which is that of the samples; move anot"),
    ("Slice", {}, [ints(4), ints(2), ints(1)], "must take elements, not none; remove it"),
    ("Gather", {"axis": 0}, [ints(0)], "must leave axis 0 as it is, which is that of the samples; move another axis"),
    ("Gather", {"axis": 1}, [ints(4)], "indices must be inside the 4 of axis 1"),
    ("Split", {"axis": 1}, [ints(3, 2)], "parts of [3, 2] must be 2 and fill the 4 of axis 1"),
    ("Split", {"axis": 0}, [], "must take elements, not none"),
    ("DepthToSpace", {"blocksize": 3}, [], "channels must be a multiple of 9, not 4"),
    ("SpaceToDepth", {"blocksize": 4}, [], "height and width must be multiples of 4, not 6"),
    ("Pad", {}, [ints(1, 0, 0, 0, 0, 0, 0, 0)], "must leave axis 0 as it is, which is that of the samples; move"),
    ("Pad", {}, [ints(0, 1, 0, 0)], "mode must be constant, reflect, edge or wrap with two pads per axis, not"),
    ("Pad", {}, [ints(0, 1, 0, 0, 0, 0, 0, 0), np.float32(0.03)],
     "value must be a number that a code stands for, such as 0, not 0.03"),
    ("Pad", {}, [ints(0, 1, 0, 0, 0, 0, 0, 0), np.float32(-np.inf)],
     "value must be a number that a code stands for, such as 0, not -inf"),
    ("Resize", {"mode": "linear"}, [None, np.float32([1, 1, 2, 2])], "mode must be nearest, of the whole tensor, not"),
    ("Resize", {"coordinate_transformation_mode": "tf_crop_and_resize"}, [np.zeros(8, np.float32), np.float32([1] * 4)],
     "mode must be nearest, of the whole tensor, not 'nearest' with tf_crop_and_resize"),
    ("Resize", {"keep_aspect_ratio_policy": "not_larger"}, [None, None, ints(1, 4, 3, 3)],
     "keep_aspect_ratio_policy must be stretch; give it the sizes"),
    ("Resize", {}, [None, np.float32([1, 1])], "must have a scale or a size for each of 4 axes"),
    ("Resize", {"exclude_outside": 1}, [None, np.float32([1, 1, 2, 2])], "mode must be nearest, of the whole tensor"),
    ("Tile", {}, [ints(1, 2)], "repeats must be at least 1 for each of 4 axes, not [1, 2]"),
    ("Tile", {}, [ints(1, 1, 1, 1 << 40)], "result must have at most 16777216 elements, not 158329674399744; make it"),
    ("Expand", {}, [ints(1, 3, 6, 6)], "shapes must be ones that are broadcast to each other, not [1, 4, 6, 6] and ["),
    ("Expand", {}, [ints(1, 1, 1, 1, 1)], "shape must have at most 4 axes, not be [1, 1, 1, 1, 1]; put Unsqueeze"),
    ("Dropout", {}, [np.float32(0.5), np.bool_(True)], "must be in inference mode; export the model for inference"),
    ("Resize", {}, [None, np.float32([2, 1, 1, 1])], "must leave axis 0 as it is, which is that of the samples"),
]  # fmt: skip


@pytest.mark.parametrize("op, attrs, operands, reason", REFUSED)
def test_what_does_not_only_move_is_refused(op, attrs, operands, reason):
    with pytest.raises(UnquantisedModel) as refusal:
        load(case(op, (4, 6, 6), attrs, operands, 1 + (op == "Split"), 19))
    assert refusal.value.reasons[0].startswith(f"{op} 'move': {reason}")


def test_codes_are_padded_and_no_floats():
    with pytest.raises(UnquantisedModel, match="Pad 'move': must read codes, not the floats 'x'; put Quan"):
        load(case("Pad", (4,), {}, [ints(0, 1, 0, 0)], first=False))


@pytest.mark.parametrize("first", [True, False])
def test_sizes_must_be_known(first):
    with pytest.raises(UnquantisedModel, match=r"Slice 'move': must read codes of known sizes; those of .*'x'"):
        load(case("Slice", (None, 4), {}, [ints(0), ints(2), ints(1)], first=first))
