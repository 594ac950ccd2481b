"""Reading multilayer perceptrons from ONNX."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from concord.network import Network
from concord.onnx_import import UnsupportedModel, import_onnx

RNG = np.random.default_rng(1)


def model(nodes, constants, inputs=("x",), width=4):
    """A model with one input per name and the last node's output as its output."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in inputs],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def onnxruntime_result(proto, x):
    """What onnxruntime computes."""
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_all_supported_operators_agree_with_onnxruntime():
    constants = {
        "shape": np.array([-1, 4], np.int64), "w1": floats(6, 4), "b1": floats(6), "w2": floats(6, 5),
        "b2": floats(5), "w3": floats(5, 3), "b3": floats(3),
    }  # fmt: skip
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Gemm", ["b", "w1", "b1"], ["c"], transB=1, alpha=0.5, beta=2.0),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "w2"], ["e"]),
        helper.make_node("Add", ["b2", "e"], ["f"]),
        helper.make_node("Tanh", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("Gemm", ["h", "w3", "b3"], ["i"]),
        helper.make_node("Relu", ["i"], ["y"]),
    ]
    x = floats(7, 4)
    network = import_onnx(model(nodes, constants))
    assert np.allclose(network(x), onnxruntime_result(model(nodes, constants), x), atol=1e-5)
    assert [layer.activation for layer in network.layers] == ["Sigmoid", "Tanh", "Relu"]
    assert network.macs == 6 * 4 + 6 * 5 + 5 * 3
    assert (network.inputs, network.outputs) == (4, 3)


def test_normalization_becomes_part_of_the_layer():
    constants = {
        "w": floats(4, 6), "b": floats(6), "scale": floats(6), "shift": floats(6), "mean": floats(6),
        "variance": np.abs(floats(6)), "factor": floats(1, 6), "late": floats(6), "w2": floats(6, 3),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["c"], epsilon=0.01),
        helper.make_node("Mul", ["factor", "c"], ["d"]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Mul", ["d", "half"], ["e"]),
        helper.make_node("Add", ["e", "late"], ["f"]),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", "w2"], ["y"]),
    ]
    x = floats(7, 4)
    network = import_onnx(model(nodes, constants))
    assert [layer.activation for layer in network.layers] == ["Relu", None]
    assert np.allclose(network(x), onnxruntime_result(model(nodes, constants), x), atol=1e-5)


def test_layers_have_different_names():
    nodes = [helper.make_node("MatMul", [a, "w"], [b], name="fc") for a, b in (("x", "a"), ("a", "b"), ("b", "y"))]
    names = [layer.name for layer in import_onnx(model(nodes, {"w": floats(4, 4)})).layers]
    assert names == ["fc", "fc#1", "fc#2"]


def test_file_and_constant_node(tmp_path):
    weight = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(floats(4, 2)))
    proto = model([weight, helper.make_node("MatMul", ["x", "w"], ["y"])], {})
    onnx.save(proto, tmp_path / "m.onnx")
    network = import_onnx(tmp_path / "m.onnx")
    assert isinstance(network, Network) and network.layers[0].weight.shape == (2, 4)
    assert not network.layers[0].bias.any()


def test_every_unsupported_node_is_listed_once():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Softplus", ["b"], ["c"], name="soft"),
        helper.make_node("Flatten", ["c"], ["d"], name="flat", axis=2),
    ]
    with pytest.raises(UnsupportedModel) as caught:
        import_onnx(model(nodes, {"w": floats(1, 1)}))
    reasons = caught.value.reasons
    assert [reason.split(":")[0] for reason in reasons] == ["Conv 'conv'", "Softplus 'soft'", "Flatten 'flat'"]
    assert "axis must be 1, not 2" in reasons[2]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([("Relu", ["x"], ["y"])], "must follow a matrix product"),
        ([("MatMul", ["x", "x"], ["y"])], "second operand must be a constant matrix"),
        ([("MatMul", ["w", "x"], ["y"])], "second operand must be a constant matrix"),
        ([("Gemm", ["x", "w", "nowhere"], ["y"])], "weight and bias must be constant"),
        ([("Add", ["x", "x"], ["y"])], "one operand must be constant"),
        ([("MatMul", ["x", "w"], ["a"]), ("Mul", ["a", "a"], ["y"])], "one operand must be constant"),
        (
            [("MatMul", ["x", "w"], ["a"]), ("Add", ["a", "bad"], ["y"])],
            r"must have 1 or 4 elements, not \[3\]",
        ),
        ([("MatMul", ["x", "w"], ["a"]), ("Mul", ["a", "column"], ["y"])], r"1 or 4 elements, not \[4, 1\]"),
        ([("Gemm", ["x", "w", "bad"], ["y"])], r"1 or 4 elements, not \[3\]"),
        ([("Relu", ["x"], ["a"]), ("BatchNormalization", ["a", "m", "m", "m", "m"], ["y"])], "follow a matrix product"),
        ([("MatMul", ["x", "w"], ["a"]), ("BatchNormalization", ["a", "m", "m", "m", "x"], ["y"])], "for inference"),
        ([("MatMul", ["x", "w3"], ["y"])], r"y reads 3 elements, but a sample of 'x' has the shape \[4\]"),
        ([("MatMul", ["x", "w"], ["a"]), ("MatMul", ["a", "w3"], ["y"])], "reads 3 elements"),
        ([("MatMul", ["x", "w"], ["a"]), ("Relu", ["x"], ["y"])], "not on the single path"),
        ([("Reshape", ["x", "deep"], ["y"])], "must flatten to batch by elements"),
        ([("Identity", ["x"], ["y"])], "no matrix product"),
    ],
)
def test_reasons(nodes, reason):
    constants = {
        "w": floats(4, 4), "w3": floats(3, 2), "bad": floats(3), "column": floats(4, 1), "m": np.ones(4),
        "deep": np.array([1, 2, 2], np.int64),
    }  # fmt: skip
    made = [helper.make_node(op, inputs, outputs) for op, inputs, outputs in nodes]
    with pytest.raises(UnsupportedModel, match=reason):
        import_onnx(model(made, constants))


def test_inputs_are_counted():
    with pytest.raises(UnsupportedModel, match="one input and one output, not 2 and 1"):
        import_onnx(model([helper.make_node("Add", ["x", "z"], ["y"])], {}, inputs=("x", "z")))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# A page\n")
    with pytest.raises(ValueError, match=r"page\.md must be an ONNX file"):
        import_onnx(path)


def test_wrong_sample_size():
    network = import_onnx(model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": floats(4, 2)}))
    with pytest.raises(ValueError, match="must have 4 elements, not 5"):
        network(np.zeros((1, 5)))
