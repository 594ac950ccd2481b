"""Networks in the QDQ form as tools write them: float biases, products of tensors, functions, maxima and moves."""

from dataclasses import replace

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail as OnnxRuntimeFail

from concord.frontend.codes import UnquantisedModel, load
from concord.integer import IntegerNetwork
from concord.integer.operations import CodeMovement, CodeTable
from concord.integer.weighted_sums import IntegerMatMul
from support.fuzz import qdq
from support.integer_nets import stored
from support.onnx_models import ints, model, node

#: Types of codes with zero points.
KINDS = {"uint8": 120, "int8": -7, "int16": 300}
X, W = np.float32(0.031), np.float32(0.0123)


def pair(x, y, kind, scale="ys", zero="yz"):
    return [node("QuantizeLinear", [x, scale, zero], [f"{y}q"]), node("DequantizeLinear", [f"{y}q", scale, zero], [y])]


def biased(op, kind="uint8", form="float", between=(), sizes=(6,), batch="N", several=False, **attrs):
    """A product with a bias of a form, and what stands between it and its codes; the model, and samples."""
    rng = np.random.default_rng(4)
    channels, zero = 5, np.array(KINDS[kind], kind)
    scale = W * rng.uniform(0.5, 1.5, channels).astype(np.float32) if several else W
    weight, bias = (
        rng.integers(-127, 128, (sizes[-1] if op != "Conv" else sizes[0], channels)),
        rng.normal(size=channels),
    )
    constants = {
        "xs": X, "xz": zero, "w": weight.astype(np.int8), "ws": scale, "wz": np.zeros_like(scale, np.int8),
        "ys": np.float32(0.023 if kind != "int16" else 0.001), "yz": zero, "b": bias.astype(np.float32),
    }  # fmt: skip
    if op == "Conv":
        constants["w"] = np.ascontiguousarray(constants["w"].T).reshape(channels, -1, *[1] * (len(sizes) - 1))
    axis = {"axis": 0 if op == "Conv" else 1} if several else {}
    nodes = [*pair("x", "d", kind, "xs", "xz"), node("DequantizeLinear", ["w", "ws", "wz"], ["v"], **axis)]
    if form != "float":
        step, dtype, offset = {"right": (X * scale, np.int32, 0), "other": (np.float32(0.0007), np.int32, 0),
                               "bytes": (np.float32(0.03), np.int8, 7)}[form]  # fmt: skip
        codes = (np.rint(bias / step) + offset).astype(dtype)
        constants |= {"b": codes, "bs": step, "bz": np.full_like(step, offset, dtype)}
        nodes.append(node("DequantizeLinear", ["b", "bs", "bz"], ["c"], **({"axis": 0} if np.ndim(step) else {})))
    term = "b" if form == "float" else "c"
    if op == "MatMul":
        nodes += [node("MatMul", ["d", "v"], ["m"]), node("Add", [term, "m"], ["a"])]
    else:
        nodes.append(node(op, ["d", "v", term], ["a"], **attrs))
    names = ["a", *(f"a{k}" for k in range(len(between)))]
    nodes += [node(name, [x], [y]) for name, x, y in zip(between, names, names[1:], strict=False)]
    nodes += pair(names[-1], "y", kind)
    count = 200 if batch == "N" else batch
    x = rng.normal(size=(count, *sizes)).astype(np.float32)
    return model(nodes, {"x": [batch, *sizes]}, constants=constants, opset=21), x


def differences(proto, x):
    """Codes that differ from ONNX Runtime's with its optimisations and without, of which none is further than one."""
    networks = {True: load(proto), False: load(proto, rounding="onnx")}
    made = [qdq.compared(network, proto, x, optimised) for optimised, network in networks.items()]
    assert made[0].count >= 8 and max(each.furthest for each in made) <= 1
    return [each.different for each in made]


ROUNDED = [("Gemm", {}), ("Conv", {"sizes": (4, 3, 2)}), ("MatMul", {}), ("Gemm", {"between": ["Relu"]}),
           ("Gemm", {"between": ["Transpose"]}), ("Gemm", {"several": True}), ("Gemm", {"kind": "int8"}),
           ("Conv", {"kind": "int8", "sizes": (4, 9)}), ("Conv", {"sizes": (4, 3, 2), "several": True}),
           ("MatMul", {"kind": "int16"}), ("MatMul", {"sizes": (90, 6), "batch": 1})]  # fmt: skip


@pytest.mark.parametrize("op, settings", ROUNDED)
def test_biases_that_are_rounded(op, settings):
    """Where ONNX Runtime makes one product of it, numbers are rounded to the scale of the sums; ONNX never does it."""
    proto, x = biased(op, **settings)
    optimised, plain = differences(proto, x)
    assert optimised == 0 and plain <= (0 if settings.get("kind") != "int16" else 5)


def test_rounded_biases_are_others_without_optimisations():
    proto, x = biased("Gemm", "int8")
    assert qdq.compared(load(proto), proto, x, optimised=False).different > 0


@pytest.mark.parametrize("op, settings", [
    ("Gemm", {"between": ["Flatten"]}), ("Conv", {"sizes": (4, 3, 2), "between": ["Flatten"]}),
    ("MatMul", {"sizes": (7, 6)}), ("MatMul", {"sizes": (7, 6), "form": "right"}), ("Gemm", {"form": "bytes"}),
    ("Conv", {"sizes": (4, 9), "form": "other"}), ("Conv", {"sizes": (4, 9), "form": "bytes", "kind": "int8"}),
    ("MatMul", {"form": "bytes"}), ("Gemm", {"beta": 0.5}),
])  # fmt: skip
def test_biases_that_are_added_in_binary32(op, settings):
    """Elsewhere, and of codes of another scale, numbers are added to those of the sums, in any order."""
    assert max(differences(*biased(op, **settings))) <= 1


@pytest.mark.parametrize("op", ["Gemm", "Conv", "MatMul"])
def test_biases_of_the_scale_of_the_sums(op):
    sizes = (4, 3, 2) if op == "Conv" else (6,)
    assert differences(*biased(op, form="right", sizes=sizes, several=op != "MatMul")) == [0, 0]


def test_another_bias_is_seen():
    proto, x = biased("Gemm")
    network = load(proto)
    (dense,) = network.graph.operations
    assert isinstance(dense, IntegerMatMul)
    other = network.graph.with_operations([replace(dense, bias=dense.bias + 20)])
    assert qdq.compared(IntegerNetwork(other), proto, x, optimised=True).different > 5


@pytest.mark.parametrize("form, reason", [
    ("shape", r"Gemm 'a': bias must be one number for each of 5 channels, not of shape \[2\]"),
    ("infinite", "Gemm 'a': bias must be of finite numbers"),
    ("computed", "Gemm 'a': bias must be constant integers or float32 numbers, not 'd'"),
])  # fmt: skip
def test_biases_that_are_refused(form, reason):
    proto, _ = biased("Gemm")
    if form == "computed":
        proto.graph.node[3].input[2] = "d"
    else:
        (bias,) = (item for item in proto.graph.initializer if item.name == "b")
        value = np.float32([1, 2] if form == "shape" else [np.inf] * 5)
        bias.raw_data, bias.dims[0] = value.tobytes(), len(value)
    with pytest.raises(UnquantisedModel, match=reason):
        load(proto)


def two_products(kind, first, second, ys):
    """MatMul of two inputs in shapes of matrices; the model, and samples."""
    size, zero = int(np.prod(first)), np.array(KINDS[kind], kind)
    constants = {
        "xs": X, "xz": zero, "zs": np.float32(0.044), "zz": np.array(KINDS[kind] // 2, kind), "ys": np.float32(ys),
        "yz": zero, "one": ints(0, *first), "two": ints(0, *second),
    }  # fmt: skip
    shaped = [node("Reshape", ["d", "one"], ["f"]), node("Reshape", ["e", "two"], ["g"])]
    pairs = [*pair("x", "d", kind, "xs", "xz"), *pair("z", "e", kind, "zs", "zz")]
    nodes = [*pairs, *shaped, node("MatMul", ["f", "g"], ["m"]), *pair("m", "y", kind)]
    rows = {"x": ["N", size], "z": ["N", int(np.prod(second))]}
    return model(nodes, rows, constants=constants, opset=21 if kind == "int16" else 19), {
        name: np.random.default_rng(k).normal(size=(30, sizes[1])).astype(np.float32)
        for k, (name, sizes) in enumerate(rows.items())
    }


def both(proto, inputs, optimised):
    """How many codes differ from ONNX Runtime's, and by how much at most."""
    (own,) = load(proto).run(inputs).values()
    (theirs,) = qdq.results(proto, inputs, optimised)
    scheme = load(proto).scheme("y")
    distance = np.abs(own.astype(int) - np.rint(theirs / np.float32(scheme.scale)).astype(int) - scheme.zero)
    return int((distance > 0).sum()), int(distance.max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first, second", [
    ((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 3)), ((2, 3, 4), (1, 4, 2)), ((1, 5), (5, 1)), ((2, 1), (1, 3)),
])  # fmt: skip
def test_products_of_two_tensors(kind, first, second):
    proto, inputs = two_products(kind, first, second, ys=0.2 if kind != "int16" else 0.002)
    different, furthest = both(proto, inputs, optimised=True)
    assert different == 0 if kind != "int16" else furthest <= 1 and different <= 5


def test_sums_of_products_beyond_32_bits():
    """Two tensors of 16 bits have more."""
    proto, inputs = two_products("int16", (2, 40), (40, 2), ys=0.05)
    (product,) = (part for part in load(proto).graph.operations if hasattr(part, "largest"))
    assert product.largest_sum > 1 << 32 and not load(proto).with_wide_sums
    inputs = {name: 30 * np.sign(x) for name, x in inputs.items()}
    assert both(proto, inputs, optimised=False)[1] <= 1


def test_products_of_samples_are_refused():
    proto, _ = two_products("uint8", (3, 4), (4, 3), 0.2)
    for item in proto.graph.initializer:
        if item.name in ("one", "two"):
            item.CopyFrom(type(item)(name=item.name, dims=[2], data_type=7, int64_data=[0, 12]))
    with pytest.raises(UnquantisedModel, match="MatMul 'm': operands must be matrices of each sample"):
        load(proto)


def between(op, operands=(), kind="int8", sizes=(128,), scale=0.05, result=0.03, first=1, after=(), opset=21, **attrs):
    """An operator between two pairs, for all codes of 8 bits in two samples."""
    names = [f"o{k}" for k in range(len(operands))]
    inputs = ["d", *names] if first else [*names, "d"]
    constants = {"xs": np.float32(scale), "xz": np.array(KINDS[kind], kind), "ys": np.float32(result),
                 "yz": np.array(KINDS[kind], kind), **dict(zip(names, operands, strict=True))}  # fmt: skip
    nodes = [*pair("x", "d", kind, "xs", "xz"), node(op, inputs, ["a0"], name="last", **attrs)]
    for k, (name, more) in enumerate(after):
        nodes.append(node(name, [f"a{k}"], [f"a{k + 1}"], **more))
    nodes += pair(f"a{len(after)}", "y", kind)
    low = np.iinfo(kind).min
    x = (np.arange(low, low + 256) - KINDS[kind]).reshape(2, *sizes) * np.float32(scale)
    return model(nodes, {"x": ["N", *sizes]}, constants=constants, opset=opset), x.astype(np.float32)


FUNCTIONS = [
    *((op, [np.float32(value) for value in operands], attrs) for op, attrs, operands in qdq.UNARY),
    ("Selu", [], {"alpha": 1.2, "gamma": 0.9}), ("Shrink", [], {"lambd": 0.7, "bias": 0.2}),
    ("PRelu", [np.float32(0.3)], {}), ("Pow", [np.float32(0)], {}), ("Pow", [np.float32(-1)], {}),
    ("Div", [np.float32(3)], {}), ("Mul", [np.float32(0.7)], {}), ("Add", [np.float32(0.21)], {}),
    ("Sub", [np.float32(0.21)], {}), ("Sub", [np.float32(0.21)], {"first": 0}),
    ("Div", [np.float32(0.21)], {"first": 0}), ("Max", [np.float32(-0.3)], {}), ("Min", [np.float32(0.4)], {}),
]  # fmt: skip


@pytest.mark.parametrize("op, operands, attrs", FUNCTIONS)
def test_functions_of_one_code(op, operands, attrs):
    """One table; a code may be the next one where ONNX Runtime approximates, or where a number is in the middle."""
    proto, x = between(op, operands, **attrs)
    (table,) = load(proto).graph.operations
    assert isinstance(table, CodeTable)
    assert max(differences(proto, x)) <= 1


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (8, 1), (4,)])
def test_slopes_of_channels(shape):
    proto, x = between("PRelu", [np.linspace(-0.3, 0.9, shape[-3] if len(shape) > 2 else shape[0], dtype=np.float32)
                                 .reshape(shape)], sizes=(4, 8, 4))  # fmt: skip
    assert max(differences(proto, x)) <= 1


def test_powers_that_are_not_whole():
    proto, x = between("Pow", [np.float32(1.5)], kind="uint8", scale=0.05)
    with pytest.raises(UnquantisedModel, match=r"a power of 1.5 must be of numbers from 0 on, not of -6"):
        load(proto)
    for item in proto.graph.initializer:
        if item.name == "xz":
            item.CopyFrom(qdq.tensor("xz", np.uint8(0)))
    assert qdq.compared(load(proto), proto, np.abs(x), optimised=False).different == 0


@pytest.mark.parametrize("op, operands, reason", [
    ("Div", [np.float32(0)], "second operand must not be 0"), ("Mul", [np.float32(np.inf)], "finite number, not inf"),
    ("Pow", [np.float32([1] * 128)], r"exponent must be one number, not of shape \[128\]"),
    ("Div", [np.float32([1] * 128)], "must be of codes and one constant number"),
    ("PRelu", [np.ones((2, 1), np.float32)], "slope must be one number, or one for each index"),
])  # fmt: skip
def test_operands_that_are_refused(op, operands, reason):
    with pytest.raises(UnquantisedModel, match=f"{op} 'last': .*{reason}"):
        load(between(op, operands)[0])


MOVED = [("Tanh", [("Flatten", {"axis": 1})]), ("Sigmoid", [("Reshape", {}), ("Relu", {})]), ("Elu", [("Flatten", {}),
         ("Neg", {}), ("Abs", {})]), ("Floor", [("MaxPool", {"kernel_shape": [2, 2]})]),
         ("Tanh", [("Transpose", {"perm": [0, 3, 1, 2]}), ("Softsign", {})])]  # fmt: skip


@pytest.mark.parametrize("op, after", MOVED)
def test_functions_in_front_of_moves(op, after):
    """Codes are moved in front of the function, which goes on behind."""
    proto, x = between(op, sizes=(2, 8, 8), after=after)
    for part in proto.graph.node:
        if part.op_type == "Reshape":
            part.input.append("sizes")
            proto.graph.initializer.add(name="sizes", dims=[3], data_type=7, int64_data=[0, 64, 2])
    assert max(differences(proto, x)) <= 1


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_pools_in_front_of_flatten(op):
    """Nothing but codes is made of a mean, so Flatten moves them."""
    assert max(differences(*between(op, sizes=(16, 2, 4), after=[("Flatten", {})]))) == 0


def test_functions_of_infinities():
    """Logarithms and reciprocals of 0 in front of other functions."""
    for op, then in (("Log", "Sigmoid"), ("Reciprocal", "Tanh"), ("Reciprocal", "Mish")):
        proto, x = between(op, after=[(then, {})], result=0.01)
        for item in proto.graph.initializer:
            if item.name == "xz":
                item.CopyFrom(qdq.tensor("xz", np.int8(-128)))
        assert max(differences(proto, np.abs(x))) <= 1


def test_functions_that_are_needed_as_numbers():
    """An output, or one operand of a sum beside codes."""
    proto, x = between("Tanh")
    proto.graph.output[0].name = "a0"
    (numbers,) = load(proto).run({"x": x}).values()
    assert np.allclose(numbers, *qdq.results(proto, {"x": x}, False), rtol=1e-6)
    proto, x = between("Exp", scale=0.5, after=[("Neg", {})])
    proto.graph.node[3].op_type = "Add"
    proto.graph.node[3].input.append("d")
    assert max(differences(proto, x)) <= 1
    proto, x = between("Exp", scale=5)
    proto.graph.output[0].name = "a0"
    with pytest.raises(UnquantisedModel, match="output 'a0': must be codes"):
        load(proto)


@pytest.mark.parametrize("op, operands, sizes, attrs", [
    ("Tile", [ints(1, 2, 1, 3)], (4, 8, 4), {}), ("Expand", [ints(1, 4, 1, 2)], (4, 32, 1), {}),
    ("Expand", [ints(3, 1)], (4, 1, 32), {}), ("GlobalMaxPool", [], (4, 8, 4), {}),
    ("Flatten", [], (4, 8, 4), {"axis": 2}), ("Flatten", [], (4, 8, 4), {"axis": -1}),
    ("Flatten", [], (4, 8, 4), {"axis": 4}), ("Dropout", [], (128,), {}),
])  # fmt: skip
@pytest.mark.parametrize("result", [0.05, 0.03])
def test_moves(op, operands, sizes, attrs, result):
    assert differences(*between(op, operands, sizes=sizes, result=result, **attrs)) == [0, 0]


@pytest.mark.parametrize("scale", [0.05, 0.043])
@pytest.mark.parametrize("shape", [(8, 16), (1, 16), (8, 1)])
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_maxima_of_two_tensors(op, scale, shape):
    """Of codes, and of constants that are broadcast; also where numbers are needed."""
    proto, x = between(op, ["other"], sizes=(8, 16), result=0.05)
    codes = np.random.default_rng(1).integers(-128, 128, (1, *shape)).astype(np.int8)
    proto.graph.initializer[-1].CopyFrom(qdq.tensor("codes", codes))
    proto.graph.initializer.append(qdq.tensor("scale", np.float32(scale)))
    proto.graph.node.insert(2, node("DequantizeLinear", ["codes", "scale", "xz"], ["o0"]))
    assert differences(proto, x) == [0, 0]
    assert any(isinstance(part, CodeMovement) for part in load(proto).graph.operations)
    proto.graph.output[0].name = "a0"
    (numbers,) = load(proto).run({"x": x}).values()
    assert np.array_equal(numbers, *qdq.results(proto, {"x": x}, False))


@pytest.mark.parametrize("axes, keepdims", [((2, 3), 0), ((1,), 1), ((-1, 1), 0), ((2,), 1), ((1, 2, 3), 1)])
@pytest.mark.parametrize(
    "op, result", [("ReduceMax", 0.05), ("ReduceMax", 0.04), ("ReduceMin", 0.05), ("ReduceMin", 0.04)]
)
def test_maxima_along_axes(axes, keepdims, op, result):
    proto, x = between(op, [ints(*axes)], sizes=(4, 8, 4), result=result, keepdims=keepdims)
    networks = load(proto), load(proto, rounding="onnx")
    made = [
        qdq.compared(network, proto, x, optimised) for network, optimised in zip(networks, (True, False), strict=True)
    ]
    assert [each.different for each in made] == [0, 0]


def test_maxima_of_all_samples_are_refused():
    with pytest.raises(UnquantisedModel, match=r"axes must be some of 4, without that of the samples, not \(0, 1\)"):
        load(between("ReduceMax", [ints(0, 1)], sizes=(4, 8, 4))[0])


TURNED = [
    {"strides": [2, 2], "shape": (4, 3, 2, 2)}, {"strides": [2, 1], "shape": (4, 2, 3, 3), "pads": [1, 0, 1, 2]},
    {"strides": [3, 2], "shape": (4, 3, 2, 2), "output_padding": [1, 1]}, {"shape": (4, 1, 3, 2), "group": 2},
    {"strides": [2, 3], "shape": (4, 3, 2, 3), "dilations": [2, 1], "pads": [0, 1, 1, 0]},
    {"strides": [2, 2], "shape": (4, 3, 1, 1), "pads": [0, 1, 0, 1]},
    {"strides": [2, 2], "shape": (4, 2, 3, 3), "group": 4},
]  # fmt: skip


@pytest.mark.parametrize("settings", TURNED)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(5, 4), (1, 3)])
def test_transposed_convolutions(settings, bias, sizes):
    """ONNX Runtime computes them in floats, whose sums have an order."""
    rng = np.random.default_rng(6)
    shape, attrs = settings["shape"], {name: value for name, value in settings.items() if name != "shape"}
    count = shape[1] * attrs.get("group", 1)
    constants = {
        "xs": X, "xz": np.uint8(100), "w": rng.integers(-127, 128, shape).astype(np.int8), "ws": W,
        "ys": np.float32(0.05), "yz": np.uint8(120), "b": rng.normal(size=count).astype(np.float32),
    }  # fmt: skip
    if not attrs.get("group"):
        constants["ws"] = W * rng.uniform(0.5, 1.5, count).astype(np.float32)
    constants["wz"] = np.zeros(constants["ws"].shape, np.int8)
    axis = {"axis": 1} if constants["ws"].ndim else {}
    nodes = [*pair("x", "d", "uint8", "xs", "xz"), node("DequantizeLinear", ["w", "ws", "wz"], ["v"], **axis),
             node("ConvTranspose", ["d", "v", *["b"] * bias], ["a"], kernel_shape=shape[2:], **attrs),
             *pair("a", "y", "uint8")]  # fmt: skip
    proto = model(nodes, {"x": ["N", 4, *sizes]}, constants=constants)
    x = rng.normal(size=(20, 4, *sizes)).astype(np.float32)
    assert max(differences(proto, x)) <= 3


@pytest.mark.parametrize("attrs, reason", [
    ({"auto_pad": "SAME_UPPER"}, "pads must be given"), ({"output_shape": [9, 9]}, "pads must be given"),
    ({"pads": [5, 0, 5, 0]}, "pads must leave elements along axis 2"),
])  # fmt: skip
def test_transposed_convolutions_that_are_refused(attrs, reason):
    constants = {"s": X, "z": np.uint8(100), "w": np.ones((4, 3, 2, 2), np.int8)}
    nodes = [*pair("x", "d", "uint8", "s", "z"), node("DequantizeLinear", ["w", "s"], ["v"]),
             node("ConvTranspose", ["d", "v"], ["a"], name="up", **attrs),
             *pair("a", "y", "uint8", "s", "z")]  # fmt: skip
    with pytest.raises(UnquantisedModel, match=f"ConvTranspose 'up': {reason}"):
        load(model(nodes, {"x": ["N", 4, 5, 4]}, constants=constants))


def of_shape(sizes, target, batch="N"):
    """A Reshape by what is computed of the shape of a tensor: Shape, Gather, Mul, Concat."""
    constants = {"xs": X, "xz": np.uint8(100), "at": ints(0), "more": ints(*target), "by": ints(sizes[0])}
    nodes = [
        *pair("x", "d", "uint8", "xs", "xz"), node("Shape", ["d"], ["s"]), node("Gather", ["s", "at"], ["n"]),
        node("Mul", ["n", "by"], ["rows"]), node("Concat", ["n", "more"], ["plain"], axis=0),
        node("Concat", ["rows", "more"], ["several"], axis=0), node("Reshape", ["d", "plain"], ["a"], name="shaped"),
        *pair("a", "y", "uint8", "xs", "xz"),
    ]  # fmt: skip
    x = np.random.default_rng(3).normal(size=(3 if batch == "N" else 1, *sizes)).astype(np.float32)
    return model(nodes, {"x": [batch, *sizes]}, constants=constants), x


@pytest.mark.parametrize("batch", ["N", 1])
@pytest.mark.parametrize("several, target", [(False, (2, 6)), (False, (-1,)), (True, (4,)), (True, (2, 2))])
def test_shapes_that_are_computed(batch, several, target):
    """The number of samples may be open; several rows may be made of each."""
    proto, x = of_shape((3, 4), target, batch)
    if several:
        next(part for part in proto.graph.node if part.op_type == "Reshape").input[1] = "several"
    assert differences(proto, x) == [0, 0]


def test_shapes_with_samples_behind_others_are_refused():
    proto, _ = of_shape((3, 4), (2, 6))
    shape = next(part for part in proto.graph.node if "plain" in part.output)
    shape.input[:] = ["more", "n"]
    with pytest.raises(UnquantisedModel, match="Reshape 'shaped': shape must have the samples in its first axis"):
        load(proto)
    proto, _ = of_shape((3, 4), (2, 6))
    next(part for part in proto.graph.node if "plain" in part.output).op_type = "ConstantOfShape"
    proto.graph.node[5].CopyFrom(node("ConstantOfShape", ["s"], ["plain"], name="filled"))
    with pytest.raises(
        UnquantisedModel,
        match=r"'filled': makes a constant of the shape .*; export it with a fixed number",
    ):
        load(proto)


def test_maxima_with_a_pool_of_an_input():
    """What no pair stands in front of is computed in binary32 up to the first codes."""
    nodes = [node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2]), node("Relu", ["a"], ["b"]), *pair("b", "y", "uint8")]
    constants = {"ys": np.float32(0.02), "yz": np.uint8(3)}
    proto = model(nodes, {"x": ["N", 2, 5, 4]}, constants=constants)
    x = np.random.default_rng(3).normal(size=(4, 2, 5, 4)).astype(np.float32)
    assert differences(proto, x) == [0, 0]


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_softmax_of_16_bits(axis):
    """Of numbers in binary32: ONNX Runtime has no kernel on such codes."""
    proto, _ = between("Softmax", kind="int16", scale=0.001, result=0.00002, sizes=(8, 16), axis=axis)
    x = np.random.default_rng(5).normal(size=(3, 8, 16)).astype(np.float32) * 3
    made = [qdq.compared(load(proto), proto, x, optimised) for optimised in (True, False)]
    assert max(each.furthest for each in made) <= 1 and max(each.different for each in made) < made[0].count // 50


@pytest.mark.parametrize("result", [1 / 256, 1 / 300, 0.002])
def test_a_softmax_that_is_read_twice(result):
    """ONNX Runtime has a kernel on codes for it, but not where codes of int8 are read twice."""
    proto, x = between("Softmax", sizes=(8, 16), result=result, axis=-1, opset=17)
    assert max(differences(proto, x)) <= 1
    proto.graph.node.append(node("Mul", ["y", "y"], ["twice"]))
    proto.graph.node.extend(pair("twice", "z", "int8"))
    proto.graph.output[0].name = "z"
    assert max(differences(proto, x)) <= 2


def test_folders(tmp_path):
    """Products of two tensors, a softmax of 16 bits, numbers of a function, and a constant without axes."""
    first, inputs = two_products("int16", (3, 4), (4, 5), 0.002)
    second, x = between("Softmax", kind="int16", scale=0.001, result=0.00002, axis=-1)
    third, _ = between("Tanh")
    third.graph.output[0].name = "a0"
    fourth, _ = between("Add", ["other"])
    fourth.graph.initializer[-1].CopyFrom(qdq.tensor("codes", np.int8(5)))
    fourth.graph.node.insert(2, node("DequantizeLinear", ["codes", "xs", "xz"], ["o0"]))
    for k, proto in enumerate((first, second, third, fourth)):
        network, given = load(proto), inputs if k == 0 else {"x": x}
        (want,), (got,) = (part.run(given).values() for part in (network, stored(network, tmp_path / str(k))))
        assert np.array_equal(want, got)


def summary(seeds):
    """Numbers of random networks, of those that load, and have ONNX Runtime's codes; of codes, and of others."""
    drawn = loaded = equal = codes = different = 0
    for seed in seeds:
        proto, x, _ = qdq.network(seed)
        drawn += 1
        try:
            network = load(proto)
        except UnquantisedModel as refusal:
            assert refusal.reasons
            continue
        try:
            made = qdq.compared(network, proto, x, optimised=True)
        except OnnxRuntimeFail:  # its optimisations give a tensor of int8 a zero point of uint8
            drawn -= 1
            continue
        loaded += 1
        equal += made.different == 0
        codes += made.count
        different += made.different
    return drawn, loaded, equal, codes, different


@pytest.mark.slow
def test_a_sample_of_random_networks():
    drawn, loaded, equal, codes, different = summary(range(60))
    assert loaded >= drawn * 0.9 and equal >= loaded * 0.95 and codes > 2000 and different <= codes * 0.01


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1000, 2500, 300))
def test_random_networks(first):
    drawn, loaded, equal, codes, different = summary(range(first, first + 300))
    print(f"{loaded} of {drawn} networks load, {equal} equal; {different} of {codes} codes differ")
    assert drawn >= 297 and loaded >= drawn * 0.9 and equal >= loaded * 0.95 and different <= codes * 0.01


def test_outputs_that_follow_from_constants_alone():
    proto, _ = biased("Gemm")
    proto.graph.node.append(node("Relu", ["v"], ["more"]))
    proto.graph.node.extend(pair("more", "z", "int8", "ws", "wz"))
    proto.graph.output.add().CopyFrom(proto.graph.output[0])
    proto.graph.output[-1].name = "z"
    with pytest.raises(UnquantisedModel, match="output 'z': must follow from an input; compute it outside the"):
        load(proto)
