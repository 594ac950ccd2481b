"""Models on integers, as ONNX Runtime's quantiser writes them, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper, load
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic

import concord
from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from concord.prove import prove
from support.integer_nets import quantised, small_network
from support.onnx_expressions import given, model_of, op
from support.onnx_models import exact_sums, floats, ops, sample_results

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
    (want,) = sample_results(proto, x=x)
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
    (want,) = sample_results(proto, x=x)
    assert np.abs(run(import_model(proto), {"x": x})["y"] - want).max() < 0.02
    results = concord.compile(proto, preset="ecp5-85f", calibrate=x[:8], quick=True).run(x)["y"]
    assert np.abs(results - want).max() < 0.04


def near(proto, shape, limit):
    """Compare a model with ONNX Runtime on samples of a shape."""
    x = np.random.default_rng(2).normal(size=(8, *shape)).astype("f4")
    (want,) = sample_results(proto, x=x)
    assert np.abs(run(import_model(proto), {"x": x})["y"] - want).max() < limit


def test_a_product_of_integers():
    codes, result = (0.02, np.uint8(128)), (0.04, np.uint8(100))
    weight, scales = np.arange(-12, 12, dtype=np.int8).reshape(6, 4) % 7, np.float32([0.1, 0.2, 0.05, 0.1])
    q = op.QuantizeLinear(given(1, 6), *codes)
    product = op.QLinearMatMul(q, *codes, weight, scales, np.zeros(4, np.int8), *result)
    near(model_of(op.DequantizeLinear(product, *result), opset=12), (6,), 0.041)


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("axis", [None, 1, 2])
def test_a_softmax_of_integers(opset, axis):
    """Before opset 13 it is over all axes from one on."""
    codes, result = (0.05, np.uint8(128)), (1 / 256, np.uint8(0))
    attrs = {"opset": opset} if axis is None else {"opset": opset, "axis": axis}
    q = op.QuantizeLinear(given(1, 3, 4), *codes)
    y = op.DequantizeLinear(op.QLinearSoftmax(q, *codes, *result, domain="com.microsoft", **attrs), *result)
    near(model_of(y, opset=opset, domains=["com.microsoft"]), (3, 4), 0.02)


def test_integers_in_a_row():
    """Each operand has its own scale."""
    first, second, x = (0.05, np.uint8(128)), (0.03, np.uint8(120)), given(1, 6)
    parts = op.QuantizeLinear(x, *first), *first, op.QuantizeLinear(x, *second), *second
    row = op.QLinearConcat(*first, *parts, domain="com.microsoft", axis=1)
    near(model_of(op.DequantizeLinear(row, *first), domains=["com.microsoft"]), (6,), 0.051)


def integers_at_both_ends(kind):
    """A convolution from codes of an input to codes of the result, in QDQ form, with another result beside it."""
    x = given(*SHAPE, kind=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    product = op.Conv(op.DequantizeLinear(x, 0.05, kind(3)), floats(4, 3, 3, 3) / 4)
    return model_of(op.QuantizeLinear(product, 0.1, kind(3)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_integers_as_inputs_and_results(kind, tmp_path):
    """The host makes codes of results; they are those of ONNX Runtime but for one of them."""
    proto = integers_at_both_ends(kind)
    ends = np.iinfo(kind)
    x = np.random.default_rng(1).integers(ends.min, ends.max, (12, *SHAPE[1:]), kind, endpoint=True)
    (want,) = sample_results(proto, exact_sums(kind == np.uint8), x=x)
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
    codes = 0.1, np.int8(4)
    moved = op.Reshape(op.Transpose(op.QuantizeLinear(given(1, 2, 3), *codes), perm=[0, 2, 1]), [1, 6])
    near(model_of(op.Relu(op.DequantizeLinear(moved, *codes))), (2, 3), 0.051)


def test_what_is_refused():
    codes = np.float32([0.1, 0.2]), np.zeros(2, np.int8)
    moved = op.Reshape(op.QuantizeLinear(given(1, 2, 3), *codes, axis=1), [1, 6])
    with pytest.raises(UnsupportedModel, match="codes must have one scale"):
        import_model(model_of(op.DequantizeLinear(moved, *codes)))
