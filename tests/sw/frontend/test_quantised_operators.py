"""Models on integers, as ONNX Runtime's quantiser writes them, against ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper, load
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic

import concord
from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from concord.prove import prove
from support.integer_nets import quantised, small_network
from support.onnx_models import exact_sums, floats, info, ints, model, node, ops

SHAPE = (1, 3, 8, 8)


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(16, *SHAPE[1:])).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
def test_a_network_of_integers(tmp_path, x, kind, per_channel):
    """Results are those of ONNX Runtime but for a step of the codes; on the NPU they are near."""
    options = {"activation_type": kind, "weight_type": QuantType.QInt8, "quant_format": QuantFormat.QOperator}
    proto = quantised(tmp_path, small_network(), x, per_channel=per_channel, **options)
    kinds = {item.op_type for item in proto.graph.node}
    assert {"QLinearConv", "QLinearAdd", "QGemm", "QLinearGlobalAveragePool", "QLinearSigmoid"} <= kinds
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    graph = import_model(proto)
    assert "Conv" in ops(graph) and graph.weight_quantization
    assert np.abs(run(graph, {"x": x})["y"] - want).max() < 0.02
    results = concord.compile(proto, preset="ecp5-85f", calibrate=x[:8], quick=True).run(x)["y"]
    assert np.abs(results - want).max() < 0.04


@pytest.mark.slow
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
def test_a_network_that_is_quantised_while_it_runs(tmp_path, x, kind, per_channel):
    """Products are those of the floats: the NPU rounds inputs by exponents of their own, instead of scales."""
    (tmp_path / "floats.onnx").write_bytes(small_network().SerializeToString())
    quantize_dynamic(tmp_path / "floats.onnx", tmp_path / "net.onnx", weight_type=kind, per_channel=per_channel)
    proto = load(tmp_path / "net.onnx")
    kinds = {item.op_type for item in proto.graph.node}
    assert {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"} <= kinds
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    assert np.abs(run(import_model(proto), {"x": x})["y"] - want).max() < 0.02
    results = concord.compile(proto, preset="ecp5-85f", calibrate=x[:8], quick=True).run(x)["y"]
    assert np.abs(results - want).max() < 0.04


def test_a_product_of_integers():
    constants = {
        "s": np.float32(0.02), "z": np.uint8(128), "w": np.arange(-12, 12, dtype=np.int8).reshape(6, 4) % 7,
        "ws": np.float32([0.1, 0.2, 0.05, 0.1]), "wz": np.zeros(4, np.int8), "t": np.float32(0.04), "u": np.uint8(100),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "t", "u"], ["p"]),
        node("DequantizeLinear", ["p", "t", "u"], ["y"]),
    ]
    proto = model(nodes, {"x": (1, 6)}, constants=constants, opset=12)
    x = np.random.default_rng(2).normal(size=(8, 6)).astype("f4")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    assert np.abs(run(import_model(proto), {"x": x})["y"] - want).max() < 0.041


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("axis", [None, 1, 2])
def test_a_softmax_of_integers(opset, axis):
    """Before opset 13 it is over all axes from one on."""
    constants = {"s": np.float32(0.05), "z": np.uint8(128), "t": np.float32(1 / 256), "u": np.uint8(0)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearSoftmax", ["q", "s", "z", "t", "u"], ["p"], domain="com.microsoft", opset=opset,
             **({} if axis is None else {"axis": axis})),
        node("DequantizeLinear", ["p", "t", "u"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, {"x": (1, 3, 4)}, constants=constants, opset=opset, domains=["com.microsoft"])
    x = np.random.default_rng(2).normal(size=(8, 3, 4)).astype("f4")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    assert np.abs(run(import_model(proto), {"x": x})["y"] - want).max() < 0.02


def test_integers_in_a_row():
    """Each operand has its own scale."""
    constants = {"s": np.float32(0.05), "z": np.uint8(128), "t": np.float32(0.03), "u": np.uint8(120)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("QuantizeLinear", ["x", "t", "u"], ["r"]),
        node("QLinearConcat", ["s", "z", "q", "s", "z", "r", "t", "u"], ["p"], domain="com.microsoft", axis=1),
        node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, {"x": (1, 6)}, constants=constants, domains=["com.microsoft"])
    x = np.random.default_rng(2).normal(size=(8, 6)).astype("f4")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    assert np.abs(run(import_model(proto), {"x": x})["y"] - want).max() < 0.051


def integers_at_both_ends(kind):
    """A convolution from codes of an input to codes of the result, in QDQ form, with another result beside it."""
    constants = {"s": np.float32(0.05), "z": kind(3), "t": np.float32(0.1), "w": floats(4, 3, 3, 3) / 4}
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]), node("Conv", ["a", "w"], ["b"]),
        node("QuantizeLinear", ["b", "t", "z"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, {"x": SHAPE}, constants=constants)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    proto.graph.input[0].CopyFrom(info("x", SHAPE, number))
    proto.graph.output[0].CopyFrom(info("y", None, number))
    return proto


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_integers_as_inputs_and_results(kind, tmp_path):
    """The host makes codes of results; they are those of ONNX Runtime but for one of them."""
    proto = integers_at_both_ends(kind)
    ends = np.iinfo(kind)
    x = np.random.default_rng(1).integers(ends.min, ends.max, (12, *SHAPE[1:]), kind, endpoint=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), exact_sums(kind == np.uint8))
    want = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    graph = import_model(proto)
    assert graph.element_types == {"x": want.dtype.name, "y": want.dtype.name}
    assert np.abs(run(graph, {"x": x})["y"] - want).max() <= 1
    net = concord.compile(proto, preset="ecp5-85f", calibrate={"x": x}, quick=True)
    results = net.run({"x": x})["y"]
    assert results.dtype == want.dtype and np.abs(results.astype(int) - want.astype(int)).max() <= 3
    net.save(tmp_path / "net")
    proof = prove(tmp_path / "net", {"x": x[:2]}, machine_samples=1, only=["numpy", "onnx"])
    assert proof.count.values > 0 and proof.count.different == 0


def test_operators_that_move_codes():
    constants = {"s": np.float32(0.1), "z": np.int8(4), "shape": ints(1, 6)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("Transpose", ["q"], ["t"], perm=[0, 2, 1]),
        node("Reshape", ["t", "shape"], ["r"]), node("DequantizeLinear", ["r", "s", "z"], ["d"]),
        node("Relu", ["d"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, {"x": (1, 2, 3)}, constants=constants)
    x = np.random.default_rng(2).normal(size=(3, 2, 3)).astype("f4")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    assert np.abs(run(import_model(proto), {"x": x})["y"] - want).max() < 0.051


def test_what_is_refused():
    constants = {"s": np.float32([0.1, 0.2]), "z": np.zeros(2, np.int8), "shape": ints(1, 6)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1), node("Reshape", ["q", "shape"], ["r"]),
        node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]  # fmt: skip
    with pytest.raises(UnsupportedModel, match="codes must have one scale"):
        import_model(model(nodes, {"x": (1, 2, 3)}, constants=constants))
