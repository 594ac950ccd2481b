"""Control flow, sequences and functions of ONNX: they become plain nodes, compared with onnxruntime."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from concord.frontend import UnsupportedModel, import_model
from support.onnx_models import agrees, floats, info, ints, model, node, ops


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
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "last"], ["width"]),
        node("Greater", ["width", "limit"], ["c"]),
        node("If", ["c"], ["h"], **branches()),
        node("Sigmoid", ["h"], ["y"]),
    ]
    constants = {"last": np.int64(1), "limit": np.int64(4)}
    for width, count in ((6, 3), (3, 2)):
        assert len(ops(agrees(model(nodes, {"x": ["n", width]}, constants=constants)))) == count


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
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["s"], axis=1),
        node("Relu", ["x"], ["r"]),
        node("SequenceInsert", ["s", "r"], ["more"]),
        node("SequenceInsert", ["more", "r", "zero"], ["most"]),
        node("SequenceErase", ["most", "minus"], ["rest"]),
        node("SequenceAt", ["rest", "one"], ["a"]),
        node("SequenceConstruct", ["a", "r"], ["two"]),
        node("ConcatFromSequence", ["two"], ["b"], axis=1),
        node("SequenceLength", ["rest"], ["count"]),
        node("Cast", ["count"], ["number"], to=1),
        node("Mul", ["b", "number"], ["y"]),
    ]
    constants = {"sizes": ints(2, 3), "zero": np.int64(0), "one": np.int64(1), "minus": np.int64(-1)}
    assert agrees(model(nodes, {"x": [1, 5]}, constants=constants)).shapes["y"] == (1, 7)


def test_a_tensor_is_inserted_where_it_belongs():
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Neg", ["x"], ["n"]),
        node("SequenceConstruct", ["x", "r"], ["s"]),
        node("SequenceInsert", ["s", "n", "one"], ["more"]),
        node("ConcatFromSequence", ["more"], ["y"], axis=1),
    ]
    assert agrees(model(nodes, {"x": [1, 5]}, constants={"one": np.int64(1)})).shapes["y"] == (1, 15)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("keep", [0, 1])
def test_sequences_of_single_indices(keep, opset):
    nodes = [
        node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=keep),
        node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
    ]
    graph = agrees(model(nodes, {"x": [1, 4, 3]}, opset=opset))
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
    nodes = [
        node("Optional", ["x"], ["o"]),
        node("OptionalHasElement", ["o"], ["c"]),
        node("OptionalGetElement", ["o"], ["e"]),
        node("If", ["c"], ["h"], **branches()),
        node("Add", ["h", "e"], ["y"]),
    ]
    assert ops(import_model(model(nodes, {"x": [1, 3]}, opset=18)))[:2] == ["Mul", "Relu"]


def test_functions_that_onnx_defines():
    """None of these has a handler: their definition is taken."""
    for nodes, constants, opset in (
        ([node("MeanVarianceNormalization", ["x"], ["y"], axes=[2, 3])], {}, 17),
        ([node("CenterCropPad", ["x", "size"], ["y"], axes=[2, 3])], {"size": ints(2, 7)}, 18),
    ):
        agrees(model(nodes, {"x": [1, 4, 3, 5]}, constants=constants, opset=opset), tolerance=1e-4)


@pytest.mark.parametrize("opset", range(7, 13))
def test_networks_of_old_opsets(opset):
    """Operators whose operands were attributes once."""
    bounds = {"min": 0.0, "max": 6.0}
    limits = ["h1", "low", "high"] if opset >= 11 else ["h1"]
    pads = [0, 0, 1, 1, 0, 0, 1, 1]
    cut = {"starts": [0, 1], "ends": [4, 5], "axes": [2, 3]}
    scales = np.array([1, 1, 2, 2], np.float32)
    constants = {
        "w": floats(4, 2, 3, 3), "s": np.abs(floats(4)) + 1, "b": floats(4), "m": floats(4), "v": np.abs(floats(4)) + 1,
        "low": np.float32(0), "high": np.float32(6), "pads": ints(*pads), "scales": scales, "roi": np.zeros(0, "f"),
        "starts": ints(0, 1), "ends": ints(4, 5), "axes": ints(2, 3), "flat": ints(0, -1), "fc": floats(64, 5),
        "c": floats(5),
    }  # fmt: skip
    up = {7: node("Upsample", ["h4"], ["h5"], scales=scales.tolist()), 9: node("Upsample", ["h4", "scales"], ["h5"]),
          10: node("Resize", ["h4", "scales"], ["h5"]), 11: node("Resize", ["h4", "roi", "scales"], ["h5"],
          coordinate_transformation_mode="asymmetric", nearest_mode="floor")}  # fmt: skip
    nodes = [
        node("Conv", ["x", "w"], ["h0"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["h0", "s", "b", "m", "v"], ["h1"]),
        node("Clip", limits, ["h2"], **(bounds if opset < 11 else {})),
        node("Pad", ["h2", "pads"] if opset >= 11 else ["h2"], ["h3"], **({} if opset >= 11 else {"pads": pads})),
        node(
            "Slice", ["h3", "starts", "ends", "axes"] if opset >= 10 else ["h3"], ["h4"], **({} if opset >= 10 else cut)
        ),
        up[max(version for version in up if version <= opset)],
        node("Dropout", ["h5"], ["h6"]),
        node("AveragePool", ["h6"], ["h7"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Unsqueeze", ["h7"], ["h8"], axes=[4]),
        node("Squeeze", ["h8"], ["h9"], axes=[4]),
        node("Reshape", ["h9", "flat"], ["h10"]),
        node("Gemm", ["h10", "fc", "c"], ["h11"]),
        node("Split", ["h11"], ["p", "q"], axis=1, split=[2, 3]),
        node("ReduceSum", ["q"], ["r"], axes=[1], keepdims=1),
        node("Softmax", ["p"], ["t"], axis=1),
        node("Mul", ["t", "r"], ["y"]),
    ]
    used = {name for item in nodes for name in item.input}
    proto = model(nodes, {"x": [1, 2, 6, 6]}, constants={k: v for k, v in constants.items() if k in used}, opset=opset)
    agrees(proto)


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
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["s"], axis=1),
        node("SplitToSequence", ["z", "sizes"], ["u"], axis=1),
        node("SequenceMap", ["s", "u", "k"], ["m", "n"], body=inner),
        node("ConcatFromSequence", ["m"], ["q"], axis=1),
        node("ConcatFromSequence", ["n"], ["v"], axis=1),
        node("Add", ["q", "v"], ["y"]),
    ]
    constants = {"sizes": np.array([2, 2, 2]), "k": np.float32([[0.5]])}
    agrees(model(nodes, {"x": [1, 6], "z": [1, 6]}, constants=constants))


def test_a_state_that_only_goes_through():
    """Scan as scikit-learn's converter writes distances: the state is the same in every turn, and nobody reads it."""
    inner = body([node("Identity", ["a"], ["b"]), node("Sub", ["a", "row"], ["d"]),
                  node("ReduceSumSquare", ["d"], ["r"], axes=[1], keepdims=0)], ["a", "row"], ["b", "r"])  # fmt: skip
    nodes = [
        node("Scan", ["x", "known"], ["end", "distances"], body=inner, num_scan_inputs=1),
        node("Transpose", ["distances"], ["y"], perm=[1, 0]),
    ]
    agrees(model(nodes, {"x": [1, 4]}, constants={"known": floats(5, 4)}))
