"""Wide tensors: binary32 numbers between layers on codes, with the bits of ONNX Runtime."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from concord.derive.c.program import compiler
from concord.derive.c_exact.program import ExactProgram
from concord.derive.c_exact.source import exact_files
from concord.frontend.codes import UnquantisedModel, load
from concord.integer.wide import WIDE, CodesOfNumbers, WideDifference, WideProduct, WideSum, integers_of, numbers_of
from concord.prove.exact import prove_exact
from support.derived_backends import needs_c
from support.exact_files import LIBRARIES, different, run
from support.integer_nets import stored
from support.onnx_models import exact_sums, floats, model, node, onnxruntime_results
from support.wide_nets import wide_network

#: Numbers whose neighbours are of another kind, or far away.
CORNERS = np.float32(
    [0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-126, -(2.0**-126), 2.0**-126 - 2.0**-149, 1, -1, 1 + 2.0**-23, 0.5, 1.5,
     2.5, 2.0**24, 2.0**24 + 2, 3e38, -3e38, np.finfo(np.float32).max, np.finfo(np.float32).min]
)  # fmt: skip


def numbers(seed, count=400):
    """Numbers of all magnitudes, a quarter of them corners."""
    rng = np.random.default_rng(seed)
    drawn = (rng.normal(0, 1, count) * np.exp2(rng.integers(-140, 120, count))).astype(np.float32)
    return np.where(rng.random(count) < 0.25, rng.choice(CORNERS, count), drawn)


def as_onnxruntime(proto, own, network, inputs):
    """Outputs of a model, and those of a network as numbers."""
    want = dict(zip([item.name for item in proto.graph.output], onnxruntime_results(proto, inputs), strict=True))
    for name, made in own.items():
        if made.dtype != want[name].dtype:
            scheme = network.scheme(name)
            made = (made.astype(np.int64) - scheme.zero).astype(np.float32) * np.float32(scheme.scale)
        assert made.shape == want[name].shape and made.dtype == want[name].dtype
        yield made, want[name]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["powers of two", "real factors"])
def test_random_networks(form):
    """Float tensors of ONNX Runtime to the bit: sums of floats are exact at powers of two, those of integers always."""
    kinds, compared, different = set(), 0, 0
    for seed in range(40):
        proto, x = wide_network(seed, exact=form == "powers of two", integers=form == "real factors")
        network = load(proto)
        kinds |= {type(operation).__name__ for operation in network.graph.operations}
        for made, want in as_onnxruntime(proto, network.run({"x": x}), network, {"x": x}):
            compared, different = compared + made.size, different + int((made != want).sum())
    print(f"{form}: {compared} numbers compared, {different} different")
    assert compared > 25000 and different == 0
    assert kinds >= {"WideSum", "WideDifference", "WideProduct", "NumbersOfCodes", "CodesOfNumbers", "CodeMovement",
                     "CodeMaximum", "CodeConstant", "IntegerConvolution"}  # fmt: skip


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_a_product_at_the_end_is_that_of_the_integer_kernel(kind, bias):
    """ONNX Runtime has MatMulIntegerToFloat, and QGemm without a scale of the result, at any factors."""
    scale, steps = np.float32(0.0371), np.float32(np.random.default_rng(3).uniform(0.01, 0.02, 24))
    constants = {"s": scale, "z": kind(3), "w": np.random.default_rng(1).integers(-127, 128, (40, 24)).astype(np.int8),
                 "ws": steps, "wz": np.zeros(24, np.int8), "b": np.arange(-12, 12, dtype=np.int32) * 99,
                 "bs": scale * steps}  # fmt: skip
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"]),
             node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=1)]  # fmt: skip
    if bias:
        nodes += [node("DequantizeLinear", ["b", "bs"], ["c"], axis=0), node("Gemm", ["d", "v", "c"], ["y"])]
    else:
        nodes.append(node("MatMul", ["d", "v"], ["y"]))
    proto, x = model(nodes, {"x": ["N", 40]}, constants=constants), floats(50, 40) * 3
    options = exact_sums(True)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    assert np.array_equal(load(proto).run({"x": x})["y"], want)


FORMS = [("wide", "narrow"), ("wide", "wide"), ("narrow", "narrow"), ("narrow", "wide")]


@pytest.mark.parametrize("reads, writes", FORMS)
def test_the_four_forms_are_those_of_the_formulas(reads, writes):
    """``x_q = rne(x * s_x)``, ``y = (w_q x_q + b_q) / (s_w s_x)``, ``y_q = rne(y * s_y)``, written out here."""
    s_x, s_w, s_y = np.float32(0.05), np.float32(0.013), np.float32(0.11)
    rng = np.random.default_rng(5)
    w, b, x = rng.integers(-127, 128, (6, 4)), rng.integers(-999, 1000, 4), rng.normal(0, 3, (30, 6)).astype(np.float32)
    x[0] = [0, -0.0, 1e30, -1e30, 0.025, 0.075]  # saturated, and in the middle between two codes
    constants = {"s": s_x, "z": np.int8(0), "w": w.astype(np.int8), "ws": s_w, "b": b.astype(np.int32), "bs": s_x * s_w,
                 "ys": s_y, "n": np.zeros(6, np.float32)}  # fmt: skip
    narrow = reads == "narrow"
    nodes = [node("Add", ["x", "n"], ["p"])] if not narrow else []  # a precise layer in front: its result is wide
    nodes += [node("QuantizeLinear", ["x" if narrow else "p", "s", "z"], ["q"]),
              node("DequantizeLinear", ["q", "s", "z"], ["d"]), node("DequantizeLinear", ["w", "ws"], ["v"]),
              node("DequantizeLinear", ["b", "bs"], ["c"]), node("Gemm", ["d", "v", "c"], ["a"])]  # fmt: skip
    if writes == "narrow":
        nodes += [node("QuantizeLinear", ["a", "ys", "z"], ["aq"]), node("DequantizeLinear", ["aq", "ys", "z"], ["a2"])]
    network = load(model(nodes, {"x": ["N", 6]}, ["a2" if writes == "narrow" else "a"], constants))
    (made,) = network.run({"x": x}).values()
    codes = np.clip(np.rint(x / s_x), -128, 127).astype(np.int64)
    sums = (codes @ w + b).astype(np.float32)
    if writes == "wide":
        assert made.dtype == np.float32 and np.array_equal(made, sums * (s_x * s_w))
    else:
        assert made.dtype == np.int8
        assert np.array_equal(made, np.clip(np.rint(sums * (s_x * s_w / s_y)), -128, 127))


def test_integers_are_in_the_order_of_numbers():
    values = np.sort(numbers(1))
    places = integers_of(values)
    assert (np.diff(places) >= 0).all() and np.array_equal(places[1:] > places[:-1], values[1:] > values[:-1])
    assert np.array_equal(numbers_of(places), values)
    assert integers_of(np.float32([0, -0.0])).tolist() == [0, 0]
    ends = [WIDE.low, WIDE.high]
    assert numbers_of(np.array(ends)).tolist() == [np.finfo(np.float32).min, np.finfo(np.float32).max]


def fits(values):
    return np.isfinite(values)


@pytest.mark.parametrize("kind, op", [(WideSum, "Add"), (WideDifference, "Sub"), (WideProduct, "Mul")])
def test_pairs_at_corners(kind, op):
    """Each result is that of ONNX Runtime, with numbers below the normal ones, too."""
    a, b = numbers(2), numbers(3)
    a[-2:], b[-2:] = CORNERS[-2], CORNERS[-2:]  # whose sum and difference are beyond all numbers
    proto = model([node(op, ["a", "b"], ["y"])], {"a": ["N"], "b": ["N"]})
    with np.errstate(over="ignore"):
        (want,) = onnxruntime_results(proto, {"a": a, "b": b})
    inside = fits(want)
    assert 300 < inside.sum() < 400
    operation = kind(name="", inputs=("a", "b"), output="y")
    places = [integers_of(part) for part in (a, b)]
    assert np.array_equal(numbers_of(operation.run(*(part[inside] for part in places))), want[inside])
    with pytest.raises(OverflowError, match="numbers must fit binary32, and some are beyond it"):
        operation.run(*places)


def test_codes_at_corners():
    """In the middle between two codes, beyond all of them, and too small for one."""
    step = np.float32(0.3)
    values = np.concatenate([numbers(4), (np.arange(-140, 140) + 0.5).astype(np.float32) * step])
    operation = CodesOfNumbers(name="", inputs=("x",), output="y", step=step, zero_point=3, low=-128, high=127)
    proto = model([node("QuantizeLinear", ["x", "s", "z"], ["y"])], {"x": ["N"]},
                  constants={"s": step, "z": np.int8(3)})  # fmt: skip
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT8
    (want,) = onnxruntime_results(proto, {"x": values})
    assert np.array_equal(operation.run(integers_of(values)), want)


def pairs(*nodes, outputs=("y",), constants=None, inputs=None):
    """A model behind ``d``, numbers of the codes of the input ``x``; ``a`` is a wide product."""
    scheme = {"s": np.float32(0.1), "z": np.uint8(3), "w": np.full((4, 4), 7, np.int8), "ws": np.float32(0.2)}
    first = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"]),
             node("DequantizeLinear", ["w", "ws"], ["v"]), node("MatMul", ["d", "v"], ["a"])]  # fmt: skip
    return model([*first, *nodes], inputs or {"x": ["N", 4]}, outputs, scheme | (constants or {}))


def test_one_product_serves_all_readers():
    """It is wide for the sum, and its codes are made of that; nothing is computed twice."""
    proto = pairs(node("QuantizeLinear", ["a", "s", "z"], ["aq"]), node("DequantizeLinear", ["aq", "s", "z"], ["ad"]),
                  node("MatMul", ["ad", "v"], ["b"]), node("Add", ["a", "b"], ["y"]), outputs=("y", "a"))  # fmt: skip
    network = load(proto)
    kinds = [type(operation).__name__ for operation in network.graph.operations]
    assert kinds == ["IntegerMatMul", "CodesOfNumbers", "IntegerMatMul", "WideSum"]
    assert network.scheme("y").dtype == np.float32 and network.graph.is_wide("a")


def test_an_output_of_the_model_is_wide():
    """Its codes are made of its numbers, as with another reader."""
    proto = pairs(node("QuantizeLinear", ["a", "s", "z"], ["aq"]), node("DequantizeLinear", ["aq", "s", "z"], ["y"]),
                  outputs=("y", "a"))  # fmt: skip
    kinds = [type(operation).__name__ for operation in load(proto).graph.operations]
    assert kinds == ["IntegerMatMul", "CodesOfNumbers"]


def test_a_layer_that_writes_codes_stays_one_operation():
    """Data-moving layers between it and QuantizeLinear move codes, as the types say."""
    proto = pairs(node("Relu", ["a"], ["r"]), node("Reshape", ["r", "shape"], ["m"]),
                  node("MaxPool", ["m"], ["p"], kernel_shape=[2]), node("QuantizeLinear", ["p", "s", "z"], ["pq"]),
                  node("DequantizeLinear", ["pq", "s", "z"], ["y"]),
                  constants={"shape": np.array([0, 1, 4])})  # fmt: skip
    network = load(proto)
    assert not any(network.graph.is_wide(tensor) for tensor in network.graph.schemes)
    x = floats(20, 4) * 20
    options = exact_sums(True)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    made = network.run({"x": x})["y"]
    assert np.array_equal((made.astype(int) - 3).astype(np.float32) * np.float32(0.1), want)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "AveragePool"])
def test_codes_of_a_mean_are_moved(op):
    """Reshape stands between the mean and its QuantizeLinear; the codes are those of ONNX Runtime's integer kernel."""
    attrs = {"kernel_shape": [5, 5]} if op == "AveragePool" else {}
    scheme = {"s": np.float32(0.1), "z": np.uint8(3), "t": np.float32(0.031), "shape": np.array([0, -1])}
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"]),
             node(op, ["d"], ["m"], **attrs), node("Reshape", ["m", "shape"], ["r"]),
             node("QuantizeLinear", ["r", "t", "z"], ["p"]),
             node("DequantizeLinear", ["p", "t", "z"], ["y"])]  # fmt: skip
    proto, x = model(nodes, {"x": ["N", 6, 5, 5]}, constants=scheme), np.abs(floats(40, 6, 5, 5)) * 5
    network, options = load(proto), exact_sums(True)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    made = network.run({"x": x})["y"]
    assert made.shape == (40, 6) and len(np.unique(made)) > 40
    assert np.array_equal((made.astype(int) - 3).astype(np.float32) * np.float32(0.031), want)


def test_an_input_that_is_read_in_both_types():
    proto = pairs(node("Add", ["x", "a"], ["y"]))
    network = load(proto)
    assert network.graph.is_wide(network.graph.inputs["x"])
    x = np.float32([[1, -2, 0.05, 30]])
    codes = np.clip(np.rint(x / np.float32(0.1)) + 3, 0, 255) - 3
    product = (codes @ np.full((4, 4), 7)).astype(np.float32) * (np.float32(0.1) * np.float32(0.2))
    assert np.array_equal(network.run({"x": x})["y"], x + product)
    with pytest.raises(TypeError, match="x must be an array of floats, not of int64"):
        network.run({"x": np.zeros((1, 4), np.int64)})
    with pytest.raises(ValueError, match="numbers must not be NaN"):
        network.run({"x": np.float32([[1, 2, 3, np.nan]])})


REFUSED = [
    ([node("Sigmoid", ["a"], ["y"], name="gate")],
     "Sigmoid 'gate': must read codes, not what a product or a sum makes"),
    ([node("Add", ["a", "a"], ["b"]), node("Softmax", ["b"], ["y"], name="shares")],
     "Softmax 'shares': must read codes, not the floats 'b'; put QuantizeLinear and DequantizeLinear in front of it"),
    ([node("Add", ["a", "endless"], ["y"], name="far")], "Add 'far': constant 'endless' must be of finite numbers"),
    ([node("Add", ["a", "double"], ["y"], name="fine")], "Add 'fine': must read codes, not the floats 'double'"),
    ([node("Softmax", ["d"], ["t"]), node("Add", ["t", "a"], ["y"], name="sum")],
     "Add 'sum': must read codes, not the floats 't'"),
    ([node("ReduceMean", ["a"], ["y"], name="mean", axes=[1])],
     "ReduceMean 'mean': must read codes, not the floats 'a'"),
]  # fmt: skip


@pytest.mark.parametrize("nodes, reason", REFUSED)
def test_what_has_no_stated_bits_is_refused(nodes, reason):
    """Functions and means of numbers are another one in every library; constants must be numbers of binary32."""
    constants = {"endless": np.float32(np.inf), "double": np.float64(1)}
    with pytest.raises(UnquantisedModel) as refusal:
        load(pairs(*nodes, constants=constants))
    (text,) = refusal.value.reasons
    assert text.startswith(reason)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", [1, 4, 5, 12, 30])
def test_files(seed, library, tmp_path):
    proto, x = wide_network(seed)
    assert different(load(proto), library, tmp_path, {"x": x}) == 0


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("library", LIBRARIES[:2])
def test_files_refuse_numbers_beyond_binary32(library, tmp_path):
    network = load(pairs(node("Mul", ["x", "x"], ["b"]), node("Add", ["a", "b"], ["y"])))
    with pytest.raises(OverflowError, match="numbers must fit binary32"):
        network.run({"x": np.float32([[1, 2, 3, 1e20]])})
    with pytest.raises(OverflowError, match="numbers must fit binary32"):
        network.run({"x": np.float32([[1, 2, 3, np.inf]])})
    assert different(network, library, tmp_path, {"x": np.float32([[1, 2, 3, 1e19]])}) == 0
    with pytest.raises(OverflowError, match="numbers must fit binary32"):
        run(network, library, tmp_path, {"x": np.float32([[1, 2, 3, 1e20]])})


def test_folders(tmp_path):
    proto, x = wide_network(3)
    network = load(proto)
    again = stored(network, tmp_path / "net")
    assert again.graph.schemes == network.graph.schemes
    for name, made in again.run({"x": x}, every=True).items():
        assert np.array_equal(made, network.run({"x": x}, every=True)[name])


@pytest.mark.slow
@needs_c
@pytest.mark.parametrize("seed", [2, 5, 17])
def test_c(seed):
    network = load(wide_network(seed)[0])
    proof = prove_exact(network)
    assert proof.same and proof.overflows == 0 and sum(proof.compared.values()) > 20000


@pytest.mark.slow
@needs_c
def test_c_at_corners(tmp_path):
    """Numbers of all magnitudes; those beyond binary32 are flags."""
    operations = [("Add", "sum"), ("Sub", "difference"), ("Mul", "product")]
    nodes = [node(op, ["a", "b"], [name], name=name) for op, name in operations]
    nodes += [node("QuantizeLinear", ["sum", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["codes"])]
    outputs = [*(name for _, name in operations), "codes"]
    proto = model(nodes, {"a": ["N", 8], "b": ["N", 8]}, outputs, {"s": np.float32(0.3), "z": np.uint8(9)})
    network, inputs = load(proto), {"a": numbers(7, 4000).reshape(-1, 8), "b": numbers(8, 4000).reshape(-1, 8)}
    assert [network.graph.is_wide(tensor) for tensor in network.graph.outputs.values()] == [True, True, True, False]
    proof = prove_exact(network, inputs)
    assert proof.same and 50 < proof.overflows < 450
    codes = network.codes(inputs)
    made, flags = ExactProgram(network.graph, tmp_path, [compiler()]).run(codes)
    with np.errstate(over="ignore"):
        want = inputs["a"] * inputs["b"]
    assert np.array_equal(numbers_of(made["product"].astype(np.int64))[fits(want)], want[fits(want)])
    assert (np.abs(numbers_of(made["product"].astype(np.int64))[~fits(want)]) == np.finfo(np.float32).max).all()
    assert np.array_equal(flags[:, 2] != 0, ~fits(want).all(axis=1))


@needs_c
def test_the_header_says_what_a_wide_number_is(tmp_path):
    header = exact_files(load(pairs(node("Add", ["a", "a"], ["y"]))).graph, "net").header
    assert re.search(r"int32_t \w+\[4\]; /\* y: 1 x 4, wide numbers \*/", header)
    assert "0x80000000u - (uint32_t)x : (uint32_t)x" in header


def test_a_model_that_ends_at_a_wide_tensor():
    """Of a model whose last layers have no stated bits, the others can be had."""
    proto = pairs(node("Softmax", ["a"], ["y"], name="shares"))
    proto.graph.output.append(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, None))
    network = load(proto, outputs=["a"])
    assert network.run({"x": np.ones((1, 4), np.float32)})["a"].dtype == np.float32
