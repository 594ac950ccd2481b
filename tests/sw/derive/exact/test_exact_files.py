"""Files for NumPy, PyTorch and ONNX Runtime have all codes of quantised networks."""

from dataclasses import dataclass, replace
from inspect import isabstract
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnxruntime.quantization import QuantFormat, QuantType

from concord.cli.main import main
from concord.derive.exact.lowering import RULES
from concord.derive.exact.onnx_file import to_onnx
from concord.derive.exact.onnx_writer import _digits, _fits
from concord.derive.exact.registry import EXACT_BACKENDS, exact_backend_for
from concord.frontend.codes import load
from concord.integer import IntegerNetwork
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import NoMove
from concord.integer.operations import CodeFloats, CodeMovement, CodePairTable
from concord.integer.requantise import FloatRequantisation
from concord.integer.weighted_sums import IntegerMatMul
from concord.spec.formats import Rounding
from concord.transfer import CodeRange, Codes
from support.exact_files import LIBRARIES, different, run
from support.few_bits import in_few_bits
from support.fixed_point_graphs import FIXED_POINT_GRAPHS, FixedPointDraw, twice_rounded
from support.integer_draws import Draw
from support.integer_nets import SHAPE, quantised, small_network
from support.onnx_models import info, ints, model, node
from support.quantised_nets import CODES, QdqMaker
from support.trained import DATA, needs_data


@pytest.fixture(params=LIBRARIES)
def library(request):
    return request.param


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator], ids=["qdq", "operators"])
@pytest.mark.parametrize("kind", [QuantType.QUInt8, QuantType.QInt8], ids=["uint8", "int8"])
@pytest.mark.parametrize("compose", [True, False])
def test_a_small_network(library, kind, form, compose, tmp_path):
    x = np.random.default_rng(1).normal(size=(16, *SHAPE)).astype(np.float32)
    proto = quantised(
        tmp_path, small_network(), x, quant_format=form, activation_type=kind, weight_type=QuantType.QInt8
    )
    network = load(proto, compose=compose)
    assert different(network, library, tmp_path, {"x": x}) == 0
    assert different(network, library, tmp_path, {"x": x[:1]}) == 0


@pytest.mark.parametrize("kind, bits", [(QuantType.QUInt8, 4), (QuantType.QInt8, 3), (QuantType.QInt8, 5)])
def test_a_small_network_of_few_bits(library, kind, bits, tmp_path):
    x = np.random.default_rng(1).normal(size=(16, *SHAPE)).astype(np.float32)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": kind, "weight_type": QuantType.QInt8}
    proto = quantised(tmp_path, small_network(), x, **options)
    assert different(load(in_few_bits(proto, bits)), library, tmp_path, {"x": x}) == 0


def operator_cases():
    """Models of one operator by name, as functions of a draw."""

    def convolution(x, weight, **attrs):
        return lambda draw: (
            "QLinearConv",
            [*draw.tensor("x", x), *draw.constant("w", weight, count=weight[0]), *draw.scheme("y", 40),
             *draw.bias(weight[0])],
            "",
            attrs,
        )  # fmt: skip

    def two(op, a, b, factor):
        return lambda draw: (op, [*draw.tensor("a", a), *draw.tensor("b", b), *draw.scheme("y", factor)], None, {})

    def single(op, shape, factor, domain=None, **attrs):
        return lambda draw: (op, [*draw.tensor("x", shape), *draw.scheme("y", factor)], domain, attrs)

    def share(shape, **attrs):
        def made(draw):
            draw.constants |= {"y scale": np.float32(1 / 256), "y zero": np.array(draw.ends.min, draw.dtype)}
            return "QLinearSoftmax", [*draw.tensor("x", shape), "y scale", "y zero"], None, attrs

        return made

    def dense(draw):
        operands = [*draw.tensor("x", (9, 40)), *draw.constant("w", (12, 40), count=12), *draw.bias(12)]
        return "QGemm", [*operands, *draw.scheme("y", 40)], None, {"alpha": 0.7, "transB": 1}

    def constant(op):
        return lambda draw: (op, [*draw.tensor("a", (4, 3, 5)), *draw.constant("b", (3, 5), draw.dtype),
                                  *draw.scheme("y", 2)], None, {})  # fmt: skip

    return {
        "padded convolution": convolution((2, 4, 9, 7), (6, 4, 3, 3), pads=[1, 0, 2, 1]),
        "convolution in groups": convolution((3, 4, 9, 7), (6, 2, 3, 2), group=2, strides=[2, 1]),
        "dilated depthwise convolution": convolution(
            (1, 6, 9, 9), (6, 1, 3, 3), group=6, dilations=[2, 1], pads=[2, 1, 2, 1]
        ),
        "convolution of sequences": convolution((2, 3, 21), (5, 3, 4), strides=[3]),
        "dense": dense,
        "product of matrices": lambda draw: (
            "QLinearMatMul",
            [*draw.tensor("x", (3, 5, 40)), *draw.constant("w", (40, 12), count=12), *draw.scheme("y", 40)],
            "",
            {},
        ),
        "sum": two("QLinearAdd", (3, 4, 35), (3, 4, 35), 1.5),
        "sum with one number of a row": two("QLinearAdd", (3, 4, 35), (3, 4, 1), 1.5),
        "sum with rows": two("QLinearAdd", (3, 4, 1), (3, 4, 35), 1.5),
        "sum of one number": two("QLinearAdd", (60, 1), (60, 1), 1.5),
        "product": two("QLinearMul", (3, 4, 35), (3, 4, 35), 4.0),
        "sum with a constant": constant("QLinearAdd"),
        "product with a constant": constant("QLinearMul"),
        "average": single("QLinearAveragePool", (2, 3, 9, 8), 0.7, kernel_shape=[3, 2], strides=[2, 1],
                          pads=[1, 0, 1, 1]),
        "average with padding": single("QLinearAveragePool", (2, 3, 9, 8), 0.7, kernel_shape=[3, 3],
                                       pads=[1, 1, 1, 1], count_include_pad=1),
        "mean": single("QLinearGlobalAveragePool", (3, 5, 7, 6), 0.3),
        "softmax": share((30, 10), opset=13),
        "softmax of an axis": share((3, 4, 5), opset=13, axis=1),
        "old softmax": share((3, 4, 5), opset=12, axis=1),
        "function": single("QLinearSigmoid", (6, 40), 0.2),
    }  # fmt: skip


CASES = operator_cases()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("seed", range(2))
def test_operators(case, library, dtype, seed, tmp_path):
    draw = Draw(seed, dtype)
    op, operands, domain, attrs = CASES[case](draw)
    proto, _ = draw.model(op, operands, **({} if domain is None else {"domain": domain}), **attrs)
    network = load(proto)
    assert different(network, library, tmp_path, draw.inputs) == 0
    first = {name: codes[:1] for name, codes in draw.inputs.items()}
    assert different(network, library, tmp_path, first) == 0


def by_hand(operation, *shapes):
    """A network of one operation on codes of 8 bits."""
    names = operation.inputs
    schemes = {name: Codes(8, 1.0, 3, CodeRange.UNSIGNED) for name in (*names, operation.output)}
    graph = IntegerGraph("net", schemes, {name: name for name in names}, {"y": operation.output}, [operation], {},
                         {name: (None, *shape) for name, shape in zip(names, shapes, strict=True)})  # fmt: skip
    return IntegerNetwork(graph)


@pytest.mark.parametrize("seed", range(4))
def test_steps_of_binary32(library, seed, tmp_path):
    """Accumulators and differences that become numbers on the way to codes."""
    rng = np.random.default_rng(seed)
    near = [np.float32(quarter / 4 + 2.0**-24 * rng.integers(-9, 10)) for quarter in (1, 2, 3)]
    difference = CodeFloats(name="less", inputs=("a", "b"), output="y", scales=tuple(near[:2]), zeros=(100, 140),
                                step=near[2], zero_point=90, low=0, high=255)  # fmt: skip
    a, b = rng.integers(0, 256, (2, 50, 400))
    assert different(by_hand(difference, (400,), (400,)), library, tmp_path, {"a": a, "b": b}) == 0
    how = FloatRequantisation(np.full(6, near[0]) / 8, np.float32(rng.normal(size=6)), near[1], 100, 0, 255)
    product = IntegerMatMul(name="rows", inputs=("a",), output="y", weight=rng.integers(-9, 10, (400, 6)),
                            bias=rng.integers(-90, 90, 6), zero_point=128, reach=255, requantisation=how)  # fmt: skip
    assert different(by_hand(product, (400,)), library, tmp_path, {"a": a}) == 0


def a_few_sums(seed, widths):
    """Of operands with the same number of axes, so that samples stay apart."""
    draw = FixedPointDraw(seed, widths)
    draw.sum((4, 5), (1, 5))
    draw.sum((3, 1), (3, 4), difference=True)
    draw.mul((4, 5), (4, 5))
    return draw


#: By name: what draws a graph.
FIXED_POINT = {**FIXED_POINT_GRAPHS, "fixed_point_sums": a_few_sums}


@pytest.mark.parametrize("name", FIXED_POINT)
def test_operations_in_fixed_point(name, library, tmp_path):
    """Those of TensorFlow Lite, also where its packages are not installed."""
    draw = FIXED_POINT[name](1, (8, 8))
    assert different(IntegerNetwork(draw.graph), library, tmp_path, draw.samples(20)) == 0


def test_halves_in_fixed_point(library, tmp_path):
    """Sums of both signs whose products with the scales are often in the middle between two codes."""
    rows = IntegerMatMul(name="rows", inputs=("a",), output="y", weight=np.ones((1, 3), np.int64),
                     bias=np.zeros(3, np.int64), zero_point=128, reach=128,
                     requantisation=twice_rounded(np.array([0.5, 0.25, 0.375]), 100, 0, 255))  # fmt: skip
    assert different(by_hand(rows, (1,)), library, tmp_path, {"a": np.arange(256)[:, None]}) == 0


def test_every_operation_is_written():
    """One without a rule is refused by its name."""

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Wavelet(IntegerOperation):
        def run(self, *codes):
            return codes[0]

    def leaves(kind):
        below = kind.__subclasses__()
        return {kind} | {leaf for one in below for leaf in leaves(one)} if below else {kind}

    kinds = {
        kind for kind in leaves(IntegerOperation) if not isabstract(kind) and kind.__module__.startswith("concord.")
    }
    assert {kind.__name__ for kind in kinds - set(RULES)} == set()
    with pytest.raises(ValueError, match="first must be an operation that is written on arrays, not a Wavelet"):
        to_onnx(by_hand(Wavelet(name="first", inputs=("a",), output="y"), (4,)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("seed", range(3))
def test_sums_near_the_middle(library, dtype, seed, tmp_path):
    """Ratios are nearly multiples of a quarter, so that every rounding counts."""
    draw = Draw(seed, dtype)
    codes = np.arange(draw.ends.min, draw.ends.max + 1, dtype=dtype)
    operands = draw.near_the_middle(*np.broadcast_arrays(codes[:, None], codes[None]))
    proto, _ = draw.model("QLinearAdd", operands)
    assert different(load(proto), library, tmp_path, draw.inputs) == 0


def near_the_middle(a, b, dtype=np.uint8):
    """A network that adds codes, with ratios that are nearly multiples of a quarter."""
    draw = Draw(1, dtype)
    draw.inputs = {"a": a, "b": b}
    operands = []
    for name, scale, zero in (("a", 0.5 + 5 * 2.0**-24, 118), ("b", 1.25 - 7 * 2.0**-24, 131), ("y", 1.0, 90)):
        operands += [] if name == "y" else [name]
        operands += draw.scheme(name)
        draw.constants[f"{name} scale"], draw.constants[f"{name} zero"] = np.float32(scale), dtype(zero)
    return load(draw.model("QLinearAdd", operands)[0])


def test_one_sample_of_one_number(library, tmp_path):
    """The order in which ONNX Runtime adds two numbers depends on whether there is one sample; both are met."""
    codes = np.arange(256, dtype=np.uint8)
    a, b = np.repeat(codes, 256)[:, None], np.tile(codes, 256)[:, None]
    network, swapped = near_the_middle(a, b), near_the_middle(a, np.repeat(b, 2, axis=1))
    several, single = (
        network.run({"a": a, "b": b})["y"],
        swapped.run({"a": a, "b": np.repeat(b, 2, axis=1)})["y"][:, :1],
    )
    (places,) = np.nonzero((several != single)[:, 0])
    assert places.size
    for place in places[:3]:
        one = {"a": a[place : place + 1], "b": b[place : place + 1]}
        assert network.run(one)["y"] == single[place]
        assert different(network, library, tmp_path, one) == 0
    assert different(network, library, tmp_path, {"a": a, "b": b}) == 0


@pytest.mark.parametrize("seed", range(6))
def test_codes_of_all_widths(library, seed, tmp_path):
    """From 2 to 16 bits: sums of products of 16 bits are made of digits in an ONNX graph."""
    rng = np.random.default_rng(seed)
    maker, x = QdqMaker((12,), rng), rng.normal(0, 1, (24, 12)).astype(np.float32)
    t = maker.fitted("x", str(rng.choice(list(CODES))), x)
    for k, op in enumerate(("Relu", "Tanh", "LeakyRelu")):
        t = maker.fitted(maker.product(t, 12, 12, axis=1 if k == 1 else None), str(rng.choice(list(CODES))), x)
        t = maker.add(op, t)
        t = maker.fitted(t, str(rng.choice(list(CODES))), x)
    network = load(maker.model([t]))
    if library == "onnx" and network.wide_sums:
        with pytest.raises(ValueError, match="must fit 32 bits, and may reach"):
            to_onnx(network)
    else:
        assert different(network, library, tmp_path, {"x": x}) == 0


def pair(x, y):
    """Codes of a tensor, and the floats that they stand for."""
    return [node("QuantizeLinear", [x, "s", "z"], [f"{y}q"]), node("DequantizeLinear", [f"{y}q", "s", "z"], [y])]


def scheme_pairs(*nodes, constants=None, inputs=None, outputs=("y",)):
    scheme = {"s": np.float32(0.1), "z": np.uint8(3)}
    first = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"])]
    return model([*first, *nodes], inputs or {"x": ["N", 4]}, outputs, scheme | (constants or {}))


def test_movements(library, tmp_path):
    nodes = [
        node("Transpose", ["d"], ["a"], perm=[0, 2, 1]),
        node("Reshape", ["a", "shape"], ["b"]),
        node("Concat", ["b", "b"], ["c"], axis=1),
        *pair("c", "k"),
        node("Unsqueeze", ["k", "axis"], ["e"]),
        node("MaxPool", ["e"], ["f"], kernel_shape=[3], dilations=[2], pads=[1, 2]),
        *pair("f", "y"),
    ]
    proto = scheme_pairs(*nodes, constants={"shape": ints(0, -1), "axis": ints(1)}, inputs={"x": ["N", 3, 5]})
    x = np.random.default_rng(0).normal(0, 6, (7, 3, 5)).astype(np.float32)
    assert different(load(proto), library, tmp_path, {"x": x}) == 0


#: Products of a sum that may have 32 bits without its sign.
WIDE = 100000


def wide_network():
    constants = {"w": np.full((WIDE, 1), 127, np.int8), "wz": np.int8(0)}
    nodes = [
        node("DequantizeLinear", ["w", "s", "wz"], ["v"]),
        node("MatMul", ["d", "v"], ["a"], name="wide"),
        *pair("a", "y"),
    ]
    return load(scheme_pairs(*nodes, constants=constants, inputs={"x": ["N", WIDE]}))


def test_parts_pads_and_repeated_elements(library, tmp_path):
    """Padding has a code that is no element; two samples and one."""
    constants = {"s": np.float32(0.1), "z": np.uint8(3), "pads": ints(0, 1, 0, 2, 0, 0, 1, 0), "places": ints(2, 0, 2),
                 "scales": np.float32([1, 1, 2, 1.5]), "a": ints(1), "b": ints(4), "axis": ints(3)}  # fmt: skip
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["d"]), node("Pad", ["d", "pads"], ["e"]),
             node("Gather", ["e", "places"], ["f"], axis=1), node("Resize", ["f", "", "scales"], ["g"]),
             node("Slice", ["g", "a", "b", "axis"], ["h"]), node("Add", ["h", "h"], ["i"]),
             node("QuantizeLinear", ["i", "s", "z"], ["y"])]  # fmt: skip
    proto = model(nodes, {}, ("y",), constants, opset=19)
    proto.graph.input.append(info("x", ["N", 2, 3, 2], onnx.TensorProto.UINT8))
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    x = np.random.default_rng(1).integers(0, 99, (3, 2, 3, 2)).astype(np.uint8)
    network = load(proto)
    assert network.run({"x": x})["y"].shape == (3, 3, 8, 3)
    assert different(network, library, tmp_path, {"x": x}) == 0 == different(network, library, tmp_path, {"x": x[:1]})


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
def test_tables_of_pairs(op, library, tmp_path):
    """Operands of 4 bits, and a row that is broadcast."""
    nodes = [
        *pair("x", "a"),
        *pair("r", "b"),
        node(op, ["a", "b"], ["c"]),
        *pair("c", "y"),
    ]
    proto = model(nodes, {"x": ["N", 3, 5], "r": ["N", 1, 5]}, ("y",), {"s": np.float32(0.1)}, opset=21)
    proto.graph.initializer.append(onnx.helper.make_tensor("z", onnx.TensorProto.UINT4, [], [5]))
    rng = np.random.default_rng(0)
    x = {"x": np.float32(rng.normal(0, 0.5, (40, 3, 5))), "r": np.float32(rng.normal(0, 0.5, (40, 1, 5)))}
    network = load(proto)
    assert [type(operation) for operation in network.graph.operations] == [CodePairTable]
    assert different(network, library, tmp_path, x) == 0


def test_an_accumulator_that_overflows_is_an_error(library, tmp_path):
    network, few, many = wide_network(), np.zeros((1, WIDE), np.float32), np.full((1, WIDE), 99, np.float32)
    if library == "onnx":
        with pytest.raises(ValueError, match="accumulators of wide must fit 32 bits, and may reach 3200400000"):
            to_onnx(network)
        return
    assert different(network, library, tmp_path, {"x": few}) == 0
    with pytest.raises(OverflowError, match="accumulators must fit 32 bits"):
        run(network, library, tmp_path, {"x": many})


@pytest.mark.parametrize("name", LIBRARIES[:2])
def test_what_is_no_input_is_refused(name, tmp_path):
    nodes = [node("Relu", ["d"], ["a"]), *pair("a", "y")]
    network = load(scheme_pairs(*nodes))
    for inputs, reason in (({}, r"inputs must be \['x'\]"), ({"x": np.array([[256] * 4])}, "codes must be in 0"),
                           ({"x": np.array([[np.nan] * 4])}, "must be numbers, not NaN"),
                           ({"x": np.ones((1, 5))}, r"x must have shape \[samples, 4\], not \[1, 5\]")):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            run(network, name, tmp_path, inputs)
    (codes,) = run(network, name, tmp_path, {"x": np.array([[13, 0, 3, 255]])}).values()
    assert codes.tolist() == [[13, 3, 3, 255]]


def test_an_open_size_is_refused():
    nodes = [node("MaxPool", ["d"], ["y"], kernel_shape=[2])]
    nodes += pair("y", "c")
    network = load(scheme_pairs(*nodes, inputs={"x": ["N", 1, "length"]}, outputs=("c",)))
    with pytest.raises(ValueError, match="input 'x' must have fixed sizes behind the samples"):
        to_onnx(network)


@pytest.mark.parametrize("rounding", [Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY])
def test_floats_in_the_middle_between_codes(rounding, library, tmp_path):
    """Inputs are rounded as their scheme says, also where a half and the number beside it differ in the last bit."""
    network = by_hand(CodeMovement(name="same", inputs=("a",), output="y", move=NoMove(), low=0, high=255), (9,))
    network.graph.schemes["a"] = replace(network.graph.schemes["a"], rounding=rounding)
    halves = np.float32(np.arange(-5, 12)[:, None] + 0.5)
    x = np.concatenate([halves, np.nextafter(halves, np.float32(99)), np.nextafter(halves, np.float32(-99))])
    x = np.float32(np.repeat(x, 9, axis=1))
    x[:, 0], x[:, 1] = np.nextafter(np.float32(0.5), np.float32(0)), 1e30
    assert different(network, library, tmp_path, {"a": x}) == 0


def test_samples_that_mix_are_refused():
    nodes = [node("Transpose", ["d"], ["a"], perm=[1, 0], name="turned")]
    nodes += pair("a", "y")
    with pytest.raises(ValueError, match="turned must leave every sample by itself"):
        to_onnx(load(scheme_pairs(*nodes)))


@pytest.mark.parametrize("bits", [(1, 1), (5, 3), (8, 8), (12, 4), (12, 9)])
def test_digits_add_up(bits):
    weight = np.random.default_rng(0).integers(-(1 << 16), 1 << 16, (50, 3))
    weight[:2] = [[-(1 << 16)], [(1 << 16) - 1]]
    digits = _digits(weight, bits[1])
    assert np.array_equal(sum(part << shift for part, shift in digits), weight)
    assert max(np.abs(part).max() for part, _ in digits) <= 1 << bits[1]
    largest = (1 << bits[0]) * max(int(np.abs(part).sum(axis=0).max()) for part, _ in digits)
    assert _fits(weight, 0, 1 << 17, bits) == (largest <= 1 << 24)


def test_files_for_names():
    names = {"net.py": "numpy", "net_torch.py": "torch", "net.onnx": "onnx"}
    for path, name in names.items():
        assert exact_backend_for(Path(path), None) is EXACT_BACKENDS[name]
    with pytest.raises(ValueError, match=r"net.txt must end in "):
        exact_backend_for(Path("net.txt"), None)
    with pytest.raises(ValueError, match="--to must be one of numpy, torch, onnx"):
        exact_backend_for(Path("net.c"), "c-host")


def test_the_command(library, tmp_path):
    nodes = [node("Relu", ["d"], ["a"]), *pair("a", "y")]
    source, target = tmp_path / "net.onnx", tmp_path / f"{library}_made{EXACT_BACKENDS[library].suffix}"
    onnx.save(scheme_pairs(*nodes), source)
    result = CliRunner().invoke(main, ["derive", str(source), "--exact", "-o", str(target)])
    assert result.exit_code == 0 and "1 sites, 1 tables" in result.output and target.exists()
    result = CliRunner().invoke(main, ["derive", str(source), "--exact", "--flags", "-o", str(target)])
    assert result.exit_code and "a network on codes must be given without --flags" in result.output


def test_onnx_graphs_say_what_codes_are():
    nodes = [node("Relu", ["d"], ["a"]), *pair("a", "y")]
    made = to_onnx(load(scheme_pairs(*nodes)))
    (prop,) = made.metadata_props
    assert prop.key == "codes" and '"zero_point": 3' in prop.value
    assert made.graph.output[0].type == info("y", ["samples", 4], onnx.TensorProto.UINT8).type


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ic_resnet8", "kws_dscnn", "ad_fc_autoencoder"])
def test_trained_networks(name, library, tmp_path):
    proto = onnx.load(DATA / "models" / f"{name}.onnx")
    shape = [dimension.dim_value for dimension in proto.graph.input[0].type.tensor_type.shape.dim[1:]]
    x = np.random.default_rng(0).normal(size=(8, *shape)).astype(np.float32)
    proto = quantised(tmp_path, proto, x, quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8,
                      weight_type=QuantType.QInt8)  # fmt: skip
    network = load(proto)
    assert different(network, library, tmp_path, {proto.graph.input[0].name: x[:4]}) == 0
