"""MatMulInteger and ConvInteger with scales that are constants: the codes of ONNX Runtime behind them."""

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic

from concord.frontend.codes import UnquantisedModel, load
from support.integer_nets import compared
from support.onnx_models import floats, info, model, node

QUANTISED = [node("QuantizeLinear", ["x", "s", "z"], ["q"])]
RESULT = [node("QuantizeLinear", ["y", "t", "u"], ["yq"]), node("DequantizeLinear", ["yq", "t", "u"], ["out"])]
SCHEMES = {"s": np.float32(0.031), "z": np.uint8(131), "t": np.float32(0.043), "u": np.uint8(117)}


def case(op, seed, per_channel, scales, **attrs):
    """A product in the form of dynamic quantisation, and its input: codes that are all in use."""
    rng = np.random.default_rng(seed)
    shape, sample, behind = {
        "MatMulInteger": ((40, 12), (7, 40), 0),
        "ConvInteger": ((12, 5, 3, 2), (5, 9, 8), 2),
    }[op]
    count = (12,) if per_channel else ()
    column = (*count, *[1] * (behind if count else 0))
    constants = SCHEMES | {
        "w": rng.integers(-128, 128, shape).astype(np.int8), "ws": np.float32(rng.uniform(0.001, 0.01, column)),
        "wz": rng.integers(-9, 9, count if op == "MatMulInteger" else ()).astype(np.int8),
        "b": np.float32(rng.normal(0, 1, (12, *[1] * behind))),
    }  # fmt: skip
    factor = [node("Mul", ["s", "ws"], ["f"])] if scales == "beside" else []
    if not factor:
        constants["f"] = constants["s"] * constants["ws"]
    nodes = [*QUANTISED, *factor, node(op, ["q", "w", "z", "wz"], ["sums"], name="product", **attrs),
             node("Cast", ["sums"], ["c"], to=1), node("Mul", ["c", "f"], ["p"]),
             node("Add", ["b", "p"], ["a"]), node("Relu", ["a"], ["y"]), *RESULT]  # fmt: skip
    x = rng.normal(0, 2, (6, *sample)).astype(np.float32)
    return model(nodes, {"x": ["N", *sample]}, ("out",), constants), x


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("scales", ["beside", "folded"])
@pytest.mark.parametrize("seed", range(3))
def test_products_of_integers(op, per_channel, scales, seed):
    attrs = {"pads": [1, 1, 0, 1], "strides": [2, 1]} if op == "ConvInteger" and seed else {}
    proto, x = case(op, seed, per_channel, scales, **attrs)
    count, different = compared(proto, {"x": x}, "UINT8")
    codes = load(proto).run({"x": x})["out"]
    assert count > 2000 and different == 0 and len(np.unique(codes)) > 60


@pytest.mark.parametrize("seed", range(4))
def test_every_step_is_rounded(seed):
    """Scales and terms near multiples of a quarter of a step: each rounding of the four counts."""
    rng = np.random.default_rng(seed)
    near = rng.integers(-9, 10, (3, 200)) * 2.0**-23
    constants = {
        "s": np.float32(1), "z": np.uint8(128), "t": np.float32(0.75), "u": np.uint8(99),
        "w": np.ones((1, 200), np.int8), "f": np.float32(rng.choice([1, 3, 5, 7], 200) / 16 * (1 + near[0])),
        "b": np.float32(rng.choice([1, 3, 5, 7], 200) / 16 * (1 + near[1])),
    }  # fmt: skip
    nodes = [*QUANTISED, node("MatMulInteger", ["q", "w", "z"], ["sums"]), node("Cast", ["sums"], ["c"], to=1),
             node("Mul", ["c", "f"], ["p"]), node("Add", ["p", "b"], ["y"]), *RESULT]  # fmt: skip
    x = np.arange(-128, 128, dtype=np.float32)[:, None]
    count, different = compared(model(nodes, {"x": ["N", 1]}, ("out",), constants), {"x": x}, "UINT8")
    assert count == 256 * 201 and different == 0


def test_sums_without_a_factor():
    nodes = [*QUANTISED, node("MatMulInteger", ["q", "w"], ["sums"]), node("Cast", ["sums"], ["y"], to=1), *RESULT]
    proto = model(nodes, {"x": ["N", 2]}, ("out",), SCHEMES | {"t": np.float32(40), "w": np.uint8([[1], [2]])})
    x = np.random.default_rng(0).normal(0, 2, (300, 2)).astype(np.float32)
    assert compared(proto, {"x": x}, "UINT8") == (900, 0)


@pytest.mark.parametrize("weight", [floats(40, 12), floats(40, 12) + 5, np.zeros((40, 12), np.float32)])
def test_constants_are_quantised_dynamically(weight):
    """A constant has the codes that ONNX Runtime gives it; those of zeros are zeros."""
    nodes = [*QUANTISED, node("DynamicQuantizeLinear", ["v"], ["w", "ws", "wz"]), node("Mul", ["s", "ws"], ["f"]),
             node("MatMulInteger", ["q", "w", "z", "wz"], ["sums"]), node("Cast", ["sums"], ["c"], to=1),
             node("Mul", ["c", "f"], ["y"]), *RESULT]  # fmt: skip
    constants = SCHEMES | {"v": np.float32(weight), "t": np.float32(0.4)}
    x = np.random.default_rng(0).normal(0, 2, (50, 40)).astype(np.float32)
    assert compared(model(nodes, {"x": ["N", 40]}, ("out",), constants), {"x": x}, "UINT8") == (50 * 52, 0)


def test_a_model_that_is_quantised_while_it_runs_is_refused(tmp_path):
    proto = model([node("Conv", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])], {"x": [1, 3, 4, 4]},
                  constants={"w": floats(2, 3, 3, 3)})  # fmt: skip
    (tmp_path / "floats.onnx").write_bytes(proto.SerializeToString())
    quantize_dynamic(tmp_path / "floats.onnx", tmp_path / "dynamic.onnx", op_types_to_quantize=["Conv"])
    with pytest.raises(UnquantisedModel) as refusal:
        load(tmp_path / "dynamic.onnx")
    (reason,) = refusal.value.reasons
    assert reason.startswith("DynamicQuantizeLinear 'x_QuantizeLinear': scale must be a constant, and that of 'x' foll")
    assert reason.endswith("; quantise with samples, as quantize_static of ONNX Runtime does")


#: What stands between the integer product and the result, and the reason.
REFUSED = [
    ([node("Cast", ["sums"], ["y"], to=10, name="half")], "Cast 'half': accumulators must be cast to float32; export"),
    ([node("Cast", ["q"], ["y"], to=1, name="codes")], "Cast 'codes': must read accumulators of MatMulInteger or Conv"),
    ([node("Mul", ["sums", "f"], ["y"], name="early")], "Mul 'early': must read accumulators as floats; put Cast in"),
    ([node("Cast", ["sums"], ["c"], to=1), node("Mul", ["c", "wide"], ["y"], name="rows")],
     "Mul 'rows': factor must be one number, or one for each of 12 channels, not of shape [6, 1]; make it so"),
    ([node("Cast", ["sums"], ["c"], to=1), node("Mul", ["c", "twice"], ["y"], name="fine")],
     "Mul 'fine': factor must be of float32, not float64; cast it"),
    ([node("Cast", ["sums"], ["c"], to=1), node("Mul", ["c", "endless"], ["y"], name="far")],
     "Mul 'far': factor must be of finite numbers"),
]  # fmt: skip


#: What makes wide numbers of accumulators.
WIDE = {
    "square": [node("Mul", ["c", "c"], ["y"])],
    "two factors": [node("Mul", ["c", "f"], ["d"]), node("Mul", ["d", "f"], ["y"])],
    "two terms": [node("Add", ["c", "f"], ["d"]), node("Add", ["f", "d"], ["y"])],
    "factor behind the term": [node("Add", ["c", "f"], ["d"]), node("Mul", ["d", "f"], ["y"])],
}


@pytest.mark.parametrize("form", WIDE)
def test_numbers_of_accumulators(form):
    """What has no place in the requantisation of a product is computed in binary32."""
    nodes = [*QUANTISED, node("MatMulInteger", ["q", "w", "z"], ["sums"]), node("Cast", ["sums"], ["c"], to=1)]
    constants = SCHEMES | {"w": np.arange(-60, 60, dtype=np.int8).reshape(40, 3), "f": np.float32(0.013),
                           "t": np.float32(900)}  # fmt: skip
    proto = model([*nodes, *WIDE[form], *RESULT], {"x": ["N", 40]}, ("out",), constants)
    assert compared(proto, {"x": floats(50, 40)}, "UINT8") == (50 * 43, 0)


@pytest.mark.parametrize("nodes, reason", REFUSED)
def test_what_is_behind_accumulators_is_refused(nodes, reason):
    constants = SCHEMES | {"w": np.ones((40, 12), np.int8), "f": np.float32(0.1), "wide": np.ones((6, 1), np.float32),
                           "twice": np.float64(1), "endless": np.float32(np.inf)}  # fmt: skip
    first = [*QUANTISED, node("MatMulInteger", ["q", "w", "z"], ["sums"])]
    with pytest.raises(UnquantisedModel) as refusal:
        load(model([*first, *nodes, *RESULT], {"x": ["N", 40]}, ("out",), constants))
    (text,) = refusal.value.reasons
    assert text.startswith(reason)


@pytest.mark.parametrize(
    "op, inputs, reason",
    [
        ("MatMulInteger", ["q", "q"], "second operand must be a constant, not 'q'; fold constants"),
        ("MatMulInteger", ["q", "deep"], "second operand must be a matrix, not of shape [2, 40, 12]"),
        ("MatMulInteger", ["q", "w", "many"], "zero point of the first operand must be one number; quantise it with"),
        ("MatMulInteger", ["q", "w", "z", "many"], "zero point of the weight must be one or 12, not of shape [3]"),
        ("MatMulInteger", ["codes", "w"], "must read what DequantizeLinear makes of the input 'codes'; "),
        ("ConvInteger", ["q", "q"], "weight must be a constant, not 'q'; fold constants"),
    ],
)
def test_operands_are_refused(op, inputs, reason):
    constants = SCHEMES | {"w": np.ones((40, 12), np.int8), "deep": np.ones((2, 40, 12), np.int8),
                           "many": np.uint8([1, 2, 3])}  # fmt: skip
    nodes = [*QUANTISED, node(op, inputs, ["sums"], name="product"), node("Cast", ["sums"], ["y"], to=1), *RESULT]
    proto = model(nodes, {"x": ["N", 40]}, ("out",), constants)
    proto.graph.input.append(info("codes", ["N", 40], onnx.TensorProto.UINT8))
    with pytest.raises(UnquantisedModel) as refusal:
        load(proto)
    (text,) = refusal.value.reasons
    assert text.startswith(f"{op} 'product': {reason}")


def test_accumulators_that_do_not_fit():
    """The bound takes the zero point of the operator, which need not be that of the codes."""
    size = 1 << 18
    nodes = [*QUANTISED, node("MatMulInteger", ["q", "w", "z"], ["sums"], name="wide"),
             node("Cast", ["sums"], ["y"], to=1), *RESULT]  # fmt: skip
    proto = model(nodes, {"x": ["N", size]}, ("out",), SCHEMES | {"w": np.full((size, 1), 127, np.int8)})
    network = load(proto)
    assert network.wide_sums == {"wide": 131 * 127 * size}
    with pytest.raises(OverflowError, match="accumulators must fit 32 bits"):
        network.run({"x": np.full((1, size), -99, np.float32)})
