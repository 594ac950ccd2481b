"""Every operator on codes by itself: random codes, scales and zero points, against ONNX Runtime's kernel."""

import numpy as np
import pytest

from concord.frontend.codes import UnquantisedModel, load
from support.integer_draws import MICROSOFT, Draw
from support.integer_nets import codes_of_onnxruntime, compared
from support.onnx_models import info, ints, model, node


@pytest.fixture(params=[(seed, dtype) for seed in range(3) for dtype in (np.uint8, np.int8)],
                ids=lambda choice: f"{choice[0]}-{choice[1].__name__}")  # fmt: skip
def draw(request):
    return Draw(*request.param)


@pytest.mark.parametrize(
    "x, weight, attrs",
    [
        ((2, 4, 9, 7), (6, 4, 3, 3), {"pads": [1, 0, 2, 1]}),
        ((1, 4, 9, 7), (6, 2, 3, 2), {"group": 2, "strides": [2, 1]}),
        ((1, 6, 9, 9), (6, 1, 3, 3), {"group": 6, "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
        ((2, 3, 21), (5, 3, 4), {"strides": [3]}),
        ((2, 4, 9, 7), (6, 4, 4, 3), {"auto_pad": "SAME_UPPER"}),
        ((2, 4, 9, 8), (6, 4, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
        ((2, 4, 9, 8), (6, 4, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
        ((2, 4, 9, 8), (6, 4, 3, 4), {"auto_pad": "VALID", "strides": [2, 3]}),
    ],
)
@pytest.mark.parametrize("per_channel", [False, True])
def test_convolutions(draw, x, weight, attrs, per_channel):
    count = weight[0] if per_channel else None
    operands = [*draw.tensor("x", x), *draw.constant("w", weight, count=count), *draw.scheme("y", 40)]
    if count:  # ONNX Runtime has these alone
        draw.constants["w zero"] = np.zeros(count, np.int8)
    assert draw.different("QLinearConv", [*operands, *draw.bias(weight[0])], "", **attrs) == 0


@pytest.mark.parametrize("count", [None, 12])
def test_products(draw, count):
    operands = [*draw.tensor("x", (3, 5, 40)), *draw.constant("w", (40, 12), count=count), *draw.scheme("y", 40)]
    assert draw.different("QLinearMatMul", operands, "") == 0


@pytest.mark.parametrize("attrs", [{}, {"alpha": 0.7, "transB": 1}])
def test_dense_layers(draw, attrs):
    shape = (12, 40) if attrs else (40, 12)
    operands = [*draw.tensor("x", (9, 40)), *draw.constant("w", shape, count=12), *draw.bias(12)]
    assert draw.different("QGemm", [*operands, *draw.scheme("y", 40)], **attrs) == 0


@pytest.mark.parametrize(
    "a, b",
    [((2, 3, 35), (2, 3, 35)), ((2, 3, 35), (3, 35)), ((2, 3, 35), (2, 3, 1)), ((1, 1), (7, 50)),
     ((2, 3, 1), (2, 3, 1)),
     ((2, 3, 7, 1), (3, 1, 1)), ((5, 1), (1, 9)), ((1, 9), (5, 1))],
)  # fmt: skip
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_two_tensors(draw, op, a, b):
    factor = 1.5 if op == "QLinearAdd" else 4.0
    assert draw.different(op, [*draw.tensor("a", a), *draw.tensor("b", b), *draw.scheme("y", factor)]) == 0


@pytest.mark.parametrize("a, b", [((256, 256), (256, 256)), ((256, 1), (1, 256)), ((1, 256), (256, 1))])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("seed", range(4))
def test_sums_of_all_codes_near_the_middle(a, b, dtype, seed):
    """Ratios are nearly multiples of a quarter, so that the order of operations and every rounding in them count."""
    draw = Draw(seed, dtype)
    codes = np.arange(draw.ends.min, draw.ends.max + 1, dtype=dtype)
    across = a == (1, 256)
    operands = draw.near_the_middle(
        np.broadcast_to(codes[None] if across else codes[:, None], a),
        np.broadcast_to(codes[:, None] if across else codes[None], b),
    )
    assert draw.different("QLinearAdd", operands) == 0


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("seed", range(4))
def test_products_of_all_codes_near_the_middle(dtype, seed):
    """The same of Mul."""
    draw = Draw(seed, dtype)
    codes = np.arange(draw.ends.min, draw.ends.max + 1, dtype=dtype)
    draw.inputs = {"a": np.repeat(codes, 256), "b": np.tile(codes, 256)}
    operands = []
    for name, scale in (("a", 2.0**-3), ("b", int(draw.rng.choice([1, 3, 5, 7])) / 16), ("y", 1.0)):
        operands += [] if name == "y" else [name]
        operands += draw.scheme(name)
        near = int(draw.rng.integers(-9, 10))
        draw.constants[f"{name} scale"] = np.float32(scale * (1 + near * 2.0**-23))
    assert draw.different("QLinearMul", operands) == 0


@pytest.mark.parametrize("op", ["QLinearConv", "QGemm"])
@pytest.mark.parametrize("largest", [0, 1 << 30])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("seed", range(2))
def test_accumulators_near_the_middle(op, largest, dtype, seed):
    """All codes times random weights; a large bias makes accumulators that binary32 rounds."""
    draw = Draw(seed, dtype)
    codes = np.arange(draw.ends.min, draw.ends.max + 1, dtype=dtype)
    draw.inputs["x"] = codes[:, None, None] if op == "QLinearConv" else codes[:, None]
    operands = [
        "x",
        *draw.scheme("x"),
        *draw.constant("w", (200, 1, 1) if op == "QLinearConv" else (1, 200), count=200),
    ]
    draw.constants["w zero"] = np.zeros(200, np.int8)
    near = draw.rng.integers(-9, 10, 200)
    odd = draw.rng.choice([1, 3, 5, 7], 200)
    draw.constants["x scale"] = np.float32(1)
    draw.constants["w scale"] = np.float32(odd * (1 + near * 2.0**-23) * (2.0**-24 if largest else 2.0**-7))
    bias, scheme = draw.bias(200, largest), draw.scheme("y")
    draw.constants["y scale"] = np.float32(1.0)
    last = [*scheme, *bias] if op == "QLinearConv" else [*bias, *scheme]
    assert draw.different(op, [*operands, *last], "" if op == "QLinearConv" else MICROSOFT) == 0


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_a_tensor_and_a_constant(draw, op):
    constant = draw.constant("b", (33,), draw.dtype)
    assert draw.different(op, [*draw.tensor("a", (4, 33)), *constant, *draw.scheme("y", 1.0)]) == 0


@pytest.mark.parametrize(
    "shape, attrs",
    [
        ((2, 3, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 1]}),
        ((2, 3, 8, 9), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 0], "count_include_pad": 1}),
        ((2, 3, 8, 9), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 0]}),
        ((2, 3, 8, 9), {"kernel_shape": [8, 9]}),
        ((2, 3, 8, 9), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 0], "auto_pad": "VALID"}),
        ((2, 3, 30), {"kernel_shape": [7], "strides": [3], "pads": [2, 3]}),
        ((2, 3, 8, 9), {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_UPPER"}),
        ((2, 3, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER", "count_include_pad": 1}),
        ((2, 3, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
        ((2, 3, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1}),
        ((2, 3, 8, 9), {"kernel_shape": [2, 3], "strides": [3, 3], "pads": [1] * 4, "ceil_mode": 1}),
        ((2, 3, 5, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1,
                        "count_include_pad": 1}),
        ((2, 3, 5), {"kernel_shape": [2], "strides": [3], "pads": [0, 1], "ceil_mode": 1}),
    ],
)  # fmt: skip
def test_averages(draw, shape, attrs):
    assert draw.different("QLinearAveragePool", [*draw.tensor("x", shape), *draw.scheme("y", 0.7)], **attrs) == 0


@pytest.mark.parametrize("op", ["QLinearAveragePool", "QLinearGlobalAveragePool"])
@pytest.mark.parametrize("size", [2, 4, 6])
def test_averages_in_the_middle_between_codes(draw, op, size):
    """With one scale, many averages of a few codes are exactly there, or would be without roundings."""
    shape = (1, 400, 1, size) if op == "QLinearGlobalAveragePool" else (1, 3, 1, 600)
    attrs = {} if op == "QLinearGlobalAveragePool" else {"kernel_shape": [1, size]}
    scheme = draw.scheme("x")
    draw.inputs["x"] = draw.codes(shape)
    assert draw.different(op, ["x", *scheme, *scheme], **attrs) == 0


@pytest.mark.parametrize("sizes, attrs", [
    ((8, 9), {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    ((8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ((8, 9), {"kernel_shape": [2, 3], "strides": [3, 3], "pads": [1] * 4, "ceil_mode": 1}),
    ((5, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1}),
    ((5,), {"kernel_shape": [1], "strides": [3], "pads": [0, 0], "ceil_mode": 1}),
    ((9,), {"kernel_shape": [3], "strides": [3], "ceil_mode": 1, "pads": [1, 2]}),
])  # fmt: skip
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_windows_of_pools(op, sizes, attrs):
    """In QDQ form, behind a convolution, whose sizes are those that count."""
    rank = len(sizes)
    rng = np.random.default_rng(5)
    constants = {"s": np.float32(0.1), "z": np.uint8(90), "w": rng.integers(-99, 99, (3, 3, *[1] * rank), np.int8),
                 "t": np.float32(0.01)}  # fmt: skip
    nodes = [*quantised_pair("x", "a"), node("DequantizeLinear", ["w", "t"], ["v"]), node("Conv", ["a", "v"], ["b"]),
             *quantised_pair("b", "c"), node(op, ["c"], ["d"], **attrs), *quantised_pair("d", "y")]  # fmt: skip
    x = rng.normal(0, 4, (2, 3, *sizes)).astype(np.float32)
    proto = model(nodes, {"x": ["N", 3, *sizes]}, ("y",), constants, opset=19)
    count, different = compared(proto, {"x": x}, "UINT8")
    assert count > 30 and different == 0


def test_windows_that_are_refused():
    """Each with its node and what helps; sizes do not count with strides of 1."""

    def reason(inputs=(3, 8), **attrs):
        nodes = [*quantised_pair("x", "a"), node("MaxPool", ["a"], ["b"], kernel_shape=[3], name="pool", **attrs),
                 *quantised_pair("b", "y")]  # fmt: skip
        constants = {"s": np.float32(0.1), "z": np.uint8(90)}
        try:
            load(model(nodes, {"x": ["N", *inputs]}, ("y",), constants))
        except UnquantisedModel as refusal:
            return refusal.reasons[0]
        return None

    open_sizes = "MaxPool 'pool': must read codes of known sizes; those of ['x'] are open; give them fixed sizes"
    assert reason((3, None), auto_pad="SAME_UPPER", strides=[2]) == open_sizes == reason((3, None), ceil_mode=1)
    assert reason((3, None), auto_pad="SAME_UPPER") is None
    assert reason(auto_pad="SAME_UPPER", dilations=[2]).startswith("MaxPool 'pool': dilations must be 1 with auto_pad")
    assert reason(auto_pad="SAME_LOWER", strides=[4]).startswith(
        "MaxPool 'pool': pads must not be negative, as auto_pad"
    )
    assert reason(auto_pad="SAME").startswith("MaxPool 'pool': auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALI")


def test_means(draw):
    operands = [*draw.tensor("x", (2, 5, 7, 6)), *draw.scheme("y")]
    assert draw.different("QLinearGlobalAveragePool", operands) == 0


def means_of(nodes, sizes, x, dtype):
    """Codes of ONNX Runtime and of Concord behind some nodes between pairs of different schemes."""
    low = np.iinfo(dtype).min
    constants = {"s": np.float32(0.1), "z": dtype(low + 90), "t": np.float32(0.03), "w": dtype(low + 130),
                 "axes": ints(*sizes[1]), "shape": ints(0, *sizes[2])}  # fmt: skip
    proto = model([*quantised_pair("x", "a"), *nodes, *quantised_pair("m", "y", "t", "w")], {"x": ["N", *sizes[0]]},
                  ("y",), constants, opset=18)  # fmt: skip
    theirs = codes_of_onnxruntime(proto, ["yq"], {"x": x}, np.dtype(dtype).name.upper())["yq"]
    return theirs, load(proto).run({"x": x})["y"]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("sizes, axes, order", [((5, 7, 6), (2, 3), None), ((5, 7, 6), (-1, -2), None),
                                                ((7, 6, 5), (1, 2), (0, 3, 1, 2)), ((7, 5), (1,), (0, 2, 1)),
                                                ((5, 8), (-1,), None), ((5, 4, 7), (2, 3), None),
                                                ((12,), (1,), None), ((5, 3, 8), (3,), None),
                                                ((3, 4, 5), (1, 2, 3), None), ((3, 4, 5), (1, 3), (0, 2, 1, 3)),
                                                ((3, 4, 5), (2,), (0, 1, 3, 2))])  # fmt: skip
def test_means_over_axes(sizes, axes, order, keepdims, dtype):
    """They are those of ONNX Runtime where a row of every sample begins as that of the first one, else neighbours."""
    x = np.random.default_rng(2).normal(0, 1.5, (40, *sizes)).astype(np.float32)
    reduced = [k in axes or k - len(sizes) - 1 in axes for k in range(1, len(sizes) + 1)]
    shape = [1 if gone else size for size, gone in zip(sizes, reduced, strict=True) if keepdims or not gone]
    count = int(np.prod([size for size, gone in zip(sizes, reduced, strict=True) if gone]))
    floats, codes = means_of([node("ReduceMean", ["a", "axes"], ["m"], keepdims=keepdims)], (sizes, axes, shape), x,
                             dtype)  # fmt: skip
    assert codes.shape == floats.shape and len(np.unique(codes)) > 15
    different = np.abs(codes.astype(int) - floats)
    if order is None and count % 4 == 0:
        assert not different.any()
    assert different.max() <= 1 and np.mean(different > 0) < 0.03


@pytest.mark.parametrize("axes", [[0, 2], []])
def test_means_over_samples_are_refused(axes):
    constants = {"s": np.float32(0.1), "z": np.uint8(90), "axes": ints(*axes)}
    nodes = [
        *quantised_pair("x", "a"),
        node("ReduceMean", ["a", "axes"], ["m"], name="mean"),
        *quantised_pair("m", "y"),
    ]
    with pytest.raises(
        UnquantisedModel, match="ReduceMean 'mean': axes must be some of 4, without that of the samples"
    ):
        load(model(nodes, {"x": ["N", 2, 3, 4]}, ("y",), constants, opset=18))


@pytest.mark.parametrize("a, b", [((256, 256), (256, 256)), ((256, 1), (1, 256))])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("seed", range(6))
def test_differences_of_all_codes(a, b, dtype, seed):
    """ONNX Runtime subtracts floats, in one order; with half of the seeds every rounding counts."""
    rng, ends = np.random.default_rng(seed), np.iinfo(dtype)
    codes = np.arange(ends.min, ends.max + 1, dtype=dtype)
    constants = {}
    for name, quarters in (("a", 2), ("b", int(rng.choice([1, 3, 5, 7]))), ("y", 4)):
        near = (1 + int(rng.integers(-9, 10)) * 2.0**-23) if seed % 2 else np.exp(rng.normal(0, 0.1))
        constants |= {f"{name}s": np.float32(quarters / 4 * near), f"{name}z": dtype(rng.integers(ends.min, ends.max))}
    nodes = [*(node("DequantizeLinear", [name, f"{name}s", f"{name}z"], [f"{name}d"]) for name in "ab"),
             node("Sub", ["ad", "bd"], ["d"]), *quantised_pair("d", "y", "ys", "yz")]  # fmt: skip
    proto = model(nodes, {}, ("y",), constants)
    kind = 2 if dtype is np.uint8 else 3
    proto.graph.input.extend([info("a", ["N", a[1]], kind), info("b", ["M", b[1]], kind)])
    feeds = {"a": np.broadcast_to(codes[:, None], a), "b": np.broadcast_to(codes[None], b)}
    assert compared(proto, feeds, np.dtype(dtype).name.upper()) == (256 * 256, 0)


@pytest.mark.parametrize("shape, attrs", [((40, 10), {"opset": 13}), ((3, 4, 5), {"opset": 13, "axis": 1}),
                                          ((6, 3, 4), {"opset": 11, "axis": 1}),
                                          ((6, 3, 4), {"opset": 11})])  # fmt: skip
def test_shares(draw, shape, attrs):
    """Without an axis it is along the last one, with the rules of any opset."""
    scheme = draw.scheme("y", 0.1)
    draw.constants["y zero"] = np.asarray(draw.ends.min, draw.dtype)
    assert draw.different("QLinearSoftmax", [*draw.tensor("x", shape), *scheme], **attrs) == 0


@pytest.mark.parametrize("op, attrs", [("QLinearLeakyRelu", {"alpha": 0.3}), ("QLinearSigmoid", {})])
def test_functions(draw, op, attrs):
    draw.inputs["x"] = np.arange(draw.ends.min, draw.ends.max + 1, dtype=draw.dtype)[None]
    assert draw.different(op, ["x", *draw.scheme("x"), *draw.scheme("y", 0.3)], **attrs) == 0


@pytest.mark.parametrize("scales", [None, (0.3, 0.2, 0.1)])
def test_operands_in_a_row(draw, scales):
    """Each gets the scheme of the result; the second one has it."""
    result = draw.scheme("y")
    operands = [*draw.tensor("a", (2, 200)), "b", *result, *draw.tensor("c", (2, 30))]
    draw.inputs["b"] = draw.codes((2, 7))
    if scales:
        draw.constants |= {f"{name} scale": np.float32(scale) for name, scale in zip("ayc", scales, strict=True)}
    assert draw.different("QLinearConcat", [*result, *operands], axis=1) == 0


#: Functions of which ONNX Runtime rounds each step correctly; in the others it approximates.
ROUNDED = ("Identity", "Relu", "LeakyRelu", "HardSigmoid")
FUNCTIONS = [("Identity", {}), ("Relu", {}), ("LeakyRelu", {"alpha": 0.5}), ("LeakyRelu", {"alpha": 0.1}), ("Tanh", {}),
             ("Sigmoid", {}), ("Elu", {}), ("Erf", {}), ("Softplus", {}), ("HardSigmoid", {}), ("HardSwish", {}),
             ("Softsign", {})]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("op, attrs", FUNCTIONS)
@pytest.mark.parametrize("scales", [(0.3, 0.2), (0.1, 0.2), (0.15, 0.1), (0.05, 0.02), (0.25, 0.1), (0.02, 0.08)])
def test_functions_with_decimal_scales(op, attrs, scales):
    """Each step of the model is rounded; in exact arithmetic up to 32 of the 256 codes are others."""
    source, target = np.float32(scales)
    constants = {"s": source, "t": target, "z": np.uint8(128), "w": np.uint8(100)}
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["d"]), node(op, ["d"], ["e"], **attrs),
             node("QuantizeLinear", ["e", "t", "w"], ["y"])]  # fmt: skip
    proto = model(nodes, {}, ("y",), constants)
    proto.graph.input.append(info("x", ["N", 256], 2))
    proto.graph.output[0].type.tensor_type.elem_type = 2
    x = np.arange(256, dtype=np.uint8)[None]
    network = load(proto)
    want = codes_of_onnxruntime(proto, ["y"], {"x": x}, "UINT8")["y"].astype(int)
    difference = np.abs(network.run({"x": x})["y"] - want)
    print(op, attrs, scales, np.count_nonzero(difference))
    assert np.count_nonzero(difference) <= (op not in ROUNDED) and difference.max() <= 1
    network.tables.check()


def test_roots_of_negative_numbers_are_refused():
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["d"]), node("Sqrt", ["d"], ["e"]),
             node("QuantizeLinear", ["e", "s", "z"], ["y"], name="codes")]  # fmt: skip
    for zero, reasons in ((0, []), (9, ["sqrt must be of numbers from 0 on, not of -0.9"])):
        proto = model(nodes, {}, ("y",), {"s": np.float32(0.1), "z": np.uint8(zero)})
        proto.graph.input.append(info("x", ["N", 2], 2))
        proto.graph.output[0].type.tensor_type.elem_type = 2
        if reasons:
            with pytest.raises(UnquantisedModel, match=f"QuantizeLinear 'codes': {reasons[0]}"):
                load(proto)
        else:
            assert load(proto).run({"x": np.uint8([[90, 0]])})["y"].tolist() == [[30, 0]]


def quantised_pair(x, y, scale="s", zero="z"):
    return [node("QuantizeLinear", [x, scale, zero], [f"{y}q"]), node("DequantizeLinear", [f"{y}q", scale, zero], [y])]


@pytest.mark.parametrize("kind, dtype", [("UINT8", np.uint8), ("INT8", np.int8)])
def test_moves_pools_and_limits(kind, dtype):
    """What the models of the other tests do not have: operands of Concat with other schemes, a MaxPool with pads and
    dilations, limits of a sum."""
    ends = np.iinfo(dtype)
    constants = {
        "s": np.float32(0.1), "z": dtype(ends.min + 90), "t": np.float32(0.15), "w": dtype(ends.min + 130),
        "low": np.float32(-1.25), "high": np.float32(2.0), "axes": ints(1), "flat": ints(0, -1),
    }  # fmt: skip
    nodes = [
        *quantised_pair("x", "a"),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 3], strides=[2, 1], pads=[1, 1, 0, 1], dilations=[1, 2]),
        *quantised_pair("b", "c"),
        node("Add", ["c", "c"], ["d"]), node("Clip", ["d", "low", "high"], ["e"]), *quantised_pair("e", "f", "t", "w"),
        node("Concat", ["c", "f"], ["g"], axis=1), *quantised_pair("g", "h", "t", "w"),
        node("Unsqueeze", ["h", "axes"], ["i"]), node("Squeeze", ["i", "axes"], ["j"]),
        node("Transpose", ["j"], ["k"], perm=[0, 2, 3, 1]), node("Flatten", ["k"], ["l"], axis=2),
        *quantised_pair("l", "y", "t", "w"),
    ]  # fmt: skip
    x = np.random.default_rng(3).normal(0, 4, (2, 3, 9, 8)).astype(np.float32)
    count, different = compared(model(nodes, {"x": ["N", 3, 9, 8]}, ("y",), constants), {"x": x}, kind)
    assert count > 1000 and different == 0
