"""Control flow, sequences and functions of ONNX: they become plain nodes, compared with onnxruntime."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from concord.frontend import UnsupportedModel, import_model
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, floats, info, model, node, ops


def body(nodes, inputs, outputs, constants=None):
    values = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    kinds = {"k": (TensorProto.INT64, []), "go": (TensorProto.BOOL, []), "went": (TensorProto.BOOL, [])}
    described = [
        [info(name, kinds.get(name, (0, None))[1], kinds.get(name, (TensorProto.FLOAT, 0))[0]) for name in group]
        for group in (inputs, outputs)
    ]
    return helper.make_graph(nodes, "body", *described, values)


def branches():
    then = body([node("Mul", ["x", "two"], ["t"]), node("Relu", ["t"], ["r"])], [], ["r"], {"two": np.float32(2)})
    other = body([node("Neg", ["x"], ["r"])], [], ["r"])
    return {"then_branch": then, "else_branch": other}


@pytest.mark.parametrize("truth", [True, False])
def test_a_constant_condition_chooses_a_branch(truth):
    graph = agrees(model([node("If", ["c"], ["y"], **branches())], {"x": [1, 3]}, constants={"c": np.array(truth)}))
    assert ops(graph) == (["Mul", "Relu"] if truth else ["Mul"])


def test_a_condition_that_folding_makes_constant():
    def proto(width):
        x = given("n", width)
        c = op.Greater(op.Gather(op.Shape(x), 1), 4)
        return model_of(op.Sigmoid(op.If(c, **branches())))

    for width, count in ((6, 3), (3, 2)):
        assert len(ops(agrees(proto(width)))) == count


def test_branches_in_branches_and_names_that_both_have():
    inner = node("If", ["d"], ["r"], then_branch=body([node("Relu", ["x"], ["r2"])], [], ["r2"]),
                 else_branch=body([node("Neg", ["x"], ["r2"])], [], ["r2"]))  # fmt: skip
    outer = {"then_branch": body([inner], [], ["r"]), "else_branch": branches()["else_branch"]}
    nodes = [node("If", ["c"], ["a"], **outer), node("If", ["d"], ["b"], **branches()), node("Add", ["a", "b"], ["y"])]
    for c, d in ((True, False), (True, True), (False, True)):
        agrees(model(nodes, {"x": [1, 3]}, constants={"c": np.array(c), "d": np.array(d)}))


def test_a_branch_that_only_passes_a_tensor_on():
    same = body([node("Identity", ["h"], ["o"])], [], ["o"])
    nodes = [node("Relu", ["x"], ["h"]), node("If", ["c"], ["y"], then_branch=same, else_branch=same)]
    graph = agrees(model(nodes, {"x": [1, 3]}, constants={"c": np.array(True)}))
    assert ops(graph)[0] == "Relu" and graph.outputs == ["y"]


def turns(extra=(), results=("went", "r"), trips=3, condition=None):
    """A loop that multiplies, whose body reads the number of the turn and a tensor of the model."""
    nodes = [
        node("Cast", ["k"], ["number"], to=1),
        node("Add", ["v", "number"], ["s"]),
        node("Mul", ["s", "w"], ["r"]),
        node(*(condition or ("Identity", ["go"], ["went"]))),
        *extra,
    ]
    loop = node("Loop", ["m", "c", "x"], ["y", *(["rows"] if len(results) > 2 else [])],
                body=body(nodes, ["k", "go", "v"], results, {"limit": np.int64(2)}))  # fmt: skip
    outputs = ["y", "rows"] if len(results) > 2 else ["y"]
    constants = {"m": np.int64(trips), "c": np.array(True), "w": floats(1, 3)}
    return model([loop], {"x": [1, 3]}, outputs, constants=constants)


def test_a_loop_is_unrolled():
    assert ops(agrees(turns())).count("Mul") == 3
    assert ops(agrees(turns(trips=0))) == ["Reshape"]


def test_a_loop_ends_when_its_constant_condition_does():
    assert ops(agrees(turns(trips=9, condition=("Less", ["k", "limit"], ["went"])))).count("Mul") == 3


def test_results_of_every_turn_are_stacked():
    graph = agrees(turns([node("Relu", ["s"], ["row"])], ("went", "r", "row")))
    assert graph.shapes["rows"] == (3, 1, 3)


def test_loops_that_cannot_be_unrolled():
    with pytest.raises(UnsupportedModel, match="must run at least once"):
        import_model(turns([node("Relu", ["s"], ["row"])], ("went", "r", "row"), trips=0))
    step = body([node("Add", ["state", "row"], ["next"])], ["state", "row"], ["next"])
    long = node("Scan", ["start", "x"], ["y"], body=step, num_scan_inputs=1)
    with pytest.raises(UnsupportedModel, match="must run at most 512 times, and unfold to at most 8192 nodes"):
        import_model(model([long], {"x": [513, 3]}, constants={"start": floats(3)}))


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_is_unrolled(backwards):
    step = body(
        [node("Add", ["state", "row"], ["next"]), node("Relu", ["next"], ["kept"])], ["state", "row"], ["next", "kept"]
    )
    scan = node("Scan", ["start", "x"], ["last", "y"], body=step, num_scan_inputs=1,
                scan_input_axes=[1], scan_input_directions=[backwards], scan_output_directions=[1 - backwards],
                scan_output_axes=[1])  # fmt: skip
    graph = agrees(model([scan], {"x": [1, 4, 3]}, ["last", "y"], constants={"start": floats(1, 3)}))
    assert graph.shapes["y"] == (1, 4, 3)


def test_sequences_are_taken_apart():
    x = given(1, 5)
    r, s = op.Relu(x), op.SplitToSequence(x, [2, 3], axis=1)
    most = op.SequenceInsert(op.SequenceInsert(s, r), r, 0)
    rest = op.SequenceErase(most, -1)
    two = op.SequenceConstruct(op.SequenceAt(rest, 1), r)
    number = op.Cast(op.SequenceLength(rest), to=1)
    assert agrees(op.Mul(op.ConcatFromSequence(two, axis=1), number)).shapes["y"] == (1, 7)


def test_a_tensor_is_inserted_where_it_belongs():
    x = given(1, 5)
    more = op.SequenceInsert(op.SequenceConstruct(x, op.Relu(x)), op.Neg(x), 1)
    assert agrees(op.ConcatFromSequence(more, axis=1)).shapes["y"] == (1, 15)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("keep", [0, 1])
def test_sequences_of_single_indices(keep, opset):
    s = op.SplitToSequence(given(1, 4, 3), axis=1, keepdims=keep)
    graph = agrees(model_of(op.ConcatFromSequence(s, axis=0, new_axis=1), opset=opset))
    assert graph.shapes["y"] == ((4, 1, 1, 3) if keep else (4, 1, 3))


def test_sequences_that_stay_are_refused():
    split = node("SplitToSequence", ["x", "two"], ["y"], axis=1)
    proto = model([split], {"x": [1, 4]}, constants={"two": np.int64(2)})
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    proto.graph.output[0].CopyFrom(sequence)
    with pytest.raises(UnsupportedModel, match="output 'y': is a sequence; put SequenceAt or ConcatFromSequence"):
        import_model(proto)
    nodes = [split, node("SequenceAt", ["y", "two"], ["z"])]
    with pytest.raises(UnsupportedModel, match="position must be one of the 2 of the sequence"):
        import_model(model(nodes, {"x": [1, 4]}, ["z"], constants={"two": np.int64(2)}))


def test_optionals_with_an_element():
    x = given(1, 3)
    o = op.Optional(x)
    h = op.If(op.OptionalHasElement(o), **branches())
    assert ops(import_model(model_of(op.Add(h, op.OptionalGetElement(o)), opset=18)))[:2] == ["Mul", "Relu"]


def test_functions_that_onnx_defines():
    """None of these has a handler: their definition is taken."""
    x = given(1, 4, 3, 5)
    agrees(op.MeanVarianceNormalization(x, axes=[2, 3]), tolerance=1e-4)
    agrees(model_of(op.CenterCropPad(x, [2, 7], axes=[2, 3]), opset=18), tolerance=1e-4)


@pytest.mark.parametrize("opset", range(7, 13))
def test_networks_of_old_opsets(opset):
    """Operators whose operands were attributes once."""
    flat = {"starts": [0, 1], "ends": [4, 5], "axes": [2, 3]}
    pads, scales = [0, 0, 1, 1, 0, 0, 1, 1], np.float32([1, 1, 2, 2])
    h = op.Conv(given(1, 2, 6, 6), floats(4, 2, 3, 3), pads=[1, 1, 1, 1])
    h = op.BatchNormalization(h, np.abs(floats(4)) + 1, floats(4), floats(4), np.abs(floats(4)) + 1)
    h = op.Clip(h, 0.0, 6.0) if opset >= 11 else op.Clip(h, min=0.0, max=6.0)
    h = op.Pad(h, pads) if opset >= 11 else op.Pad(h, pads=pads)
    h = op.Slice(h, *flat.values()) if opset >= 10 else op.Slice(h, **flat)
    if opset >= 11:
        mode = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        h = op.Resize(h, np.zeros(0), scales, **mode)
    elif opset == 10:
        h = op.Resize(h, scales)
    else:
        h = op.Upsample(h, scales) if opset == 9 else op.Upsample(h, scales=scales.tolist())
    h = op.AveragePool(op.Dropout(h), kernel_shape=[2, 2], strides=[2, 2])
    h = op.Reshape(op.Squeeze(op.Unsqueeze(h, axes=[4]), axes=[4]), [0, -1])
    p, q = op.Split(op.Gemm(h, floats(64, 5), floats(5)), axis=1, split=[2, 3], outputs=2)
    agrees(model_of(op.Mul(op.Softmax(p, axis=1), op.ReduceSum(q, axes=[1], keepdims=1)), opset=opset))


def test_messages_of_bodies_name_their_node():
    then = body([node("NonZero", ["x"], ["r"], name="inside")], [], ["r"])
    proto = model([node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=then)], {"x": [1, 3, 3]},
                  constants={"c": np.array(True)})  # fmt: skip
    with pytest.raises(UnsupportedModel, match=re.escape("NonZero 'choice/inside': operator is not supported")):
        import_model(proto)


def test_a_body_for_every_element_of_a_sequence():
    """One element goes along with each, a tensor is the same for all."""
    inner = body([node("Mul", ["a", "b"], ["p"]), node("Add", ["p", "c"], ["r"]), node("Relu", ["p"], ["t"])],
                 ["a", "b", "c"], ["r", "t"])  # fmt: skip
    s, u = (op.SplitToSequence(given(1, 6, name=name), [2, 2, 2], axis=1) for name in "xz")
    m, n = op.SequenceMap(s, u, np.float32([[0.5]]), body=inner, outputs=2)
    agrees(op.Add(op.ConcatFromSequence(m, axis=1), op.ConcatFromSequence(n, axis=1)))


def test_a_state_that_only_goes_through():
    """Scan as scikit-learn's converter writes distances: the state is the same in every turn, and nobody reads it."""
    inner = body([node("Identity", ["a"], ["b"]), node("Sub", ["a", "row"], ["d"]),
                  node("ReduceSumSquare", ["d"], ["r"], axes=[1], keepdims=0)], ["a", "row"], ["b", "r"])  # fmt: skip
    _, distances = op.Scan(given(1, 4), floats(5, 4), body=inner, num_scan_inputs=1, outputs=2)
    agrees(op.Transpose(distances, perm=[1, 0]))
