"""Weights with a scale for each block: exact where these are multiples of one of their channel, refused elsewhere."""

import numpy as np
import pytest
from onnx import TensorProto

from concord.frontend.codes import UnquantisedModel, load
from support.onnx_models import model, node, onnxruntime_results


def network(scales, axis=0, block=4, zeros=None, opset=21, kind=np.float32):
    """A dense layer of 10 inputs and 3 outputs, whose last block is shorter, and its weight in floats."""
    rng = np.random.default_rng(2)
    codes = rng.integers(-99, 99, (10, 3) if axis == 0 else (3, 10)).astype(np.int8)
    constants = {"s": np.float32(0.125), "z": np.uint8(128), "t": np.float32(4), "w": codes}
    names = ["w", "ws", *(["wz"] if zeros is not None else [])]
    if zeros is not None:
        constants["wz"] = zeros
    if kind is np.float32:
        constants["ws"] = np.float32(scales)
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"]),
             node("DequantizeLinear", names, ["v"], name="weight", axis=axis, block_size=block),
             node("Gemm", ["d", "v"], ["a"], transB=axis), node("QuantizeLinear", ["a", "t", "z"], ["yq"]),
             node("DequantizeLinear", ["yq", "t", "z"], ["y"])]  # fmt: skip
    proto = model(nodes, {"x": ["N", 10]}, ("y",), constants, opset=opset)
    if kind is not np.float32:
        exponents = (np.log2(scales).astype(int) + 127).astype(np.uint8)
        proto.graph.initializer.append(
            TensorProto(name="ws", data_type=kind, dims=exponents.shape, raw_data=exponents.tobytes())
        )
    return proto


X = np.random.default_rng(1).normal(0, 4, (300, 10)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("zeros", [False, True])
def test_scales_that_are_powers_of_two(axis, zeros):
    """ONNX Runtime computes floats, which are exact for these."""
    rng = np.random.default_rng(3)
    shape = (3, 3)
    zero = rng.integers(-9, 9, shape).astype(np.int8) if zeros else None
    proto = network(2.0 ** rng.integers(-8, -2, shape), axis, zeros=zero)
    codes = load(proto).run({"x": X})["y"]
    (theirs,) = onnxruntime_results(proto, {"x": X})
    assert np.array_equal((codes.astype(int) - 128) * 4, theirs) and len(np.unique(codes)) > 30


def test_scales_of_eight_bits():
    """Floats of 8 bits without a mantissa are the same powers of two."""
    scales = 2.0 ** np.random.default_rng(3).integers(-8, -2, (3, 3))
    same, plain = network(scales, opset=24, kind=TensorProto.FLOAT8E8M0), network(scales)
    assert np.array_equal(load(same).run({"x": X})["y"], load(plain).run({"x": X})["y"])


@pytest.mark.parametrize("scales, reason", [
    (np.array([[0.1] * 3, [0.25] * 3, [0.1] * 3]), "scales of blocks must be whole multiples of the smallest one of"),
    (np.array([[0.1] * 3, [0.0] * 3, [0.1] * 3]), "scales of blocks must be positive and finite"),
    (np.ones((2, 3)), "weights must be a matrix with a scale for each block of 4, not of shapes [10, 3] and [2, 3]"),
    (np.array([[1.0] * 3, [2.0**16] * 3, [1.0] * 3]), "scales of the blocks of a channel must differ by less than"),
])  # fmt: skip
def test_other_scales_are_refused(scales, reason):
    with pytest.raises(UnquantisedModel) as refusal:
        load(network(scales))
    (text,) = refusal.value.reasons
    assert text.startswith(f"DequantizeLinear 'weight': {reason}")
    assert text.endswith("; quantise per channel, or compile it for the NPU, which folds such weights")
