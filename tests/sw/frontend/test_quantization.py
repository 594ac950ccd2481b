"""Models in QDQ form: floats stay, scales and zero points are remembered."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from support.onnx_models import model, node, ops, samples

RNG = np.random.default_rng(11)


def codes(*shape, dtype=np.int8):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape).astype(dtype)


def pair(source, name, scale="xs", zero="xz", **attrs):
    """QuantizeLinear and DequantizeLinear from a tensor to another one."""
    quantize = node("QuantizeLinear", [source, scale, zero], [f"{name}_q"], **attrs)
    return [quantize, node("DequantizeLinear", [f"{name}_q", scale, zero], [name], **attrs)]


def network(per_axis, transposed=False):
    """Conv, Relu, Flatten, Gemm with quantised weights, biases and activations."""
    scale = np.abs(RNG.standard_normal(4 if per_axis else ())).astype(np.float32) + 0.01
    weight = codes(36, 5) if transposed else codes(5, 36)
    constants = {
        "w": codes(4, 2, 3, 3), "ws": scale, "wz": np.zeros(scale.shape, np.int8),
        "b": codes(4, dtype=np.int32) // 2**24, "bs": np.float32(0.01),
        "v": weight, "vs": np.abs(RNG.standard_normal(5)).astype(np.float32) + 0.01, "vz": codes(5),
        "xs": np.float32(0.05), "xz": np.uint8(128), "ys": np.float32(0.1), "yz": np.int8(-3),
    }  # fmt: skip
    nodes = [
        *pair("x", "xd"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], **({"axis": 0} if per_axis else {})),
        node("DequantizeLinear", ["b", "bs"], ["bd"]),
        node("Conv", ["xd", "wd", "bd"], ["a"], name="conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["a"], ["r"]),
        *pair("r", "rd", "ys", "yz"),
        node("Flatten", ["rd"], ["f"]),
        node("DequantizeLinear", ["v", "vs", "vz"], ["vd"], axis=1 if transposed else 0),
        node("Gemm", ["f", "vd"], ["g"], name="gemm", transB=0 if transposed else 1),
        *pair("g", "y", "ys", "yz"),
    ]
    return model(nodes, {"x": ["N", 2, 6, 6]}, constants=constants), constants


@pytest.mark.parametrize("per_axis", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_network(per_axis, transposed):
    proto, constants = network(per_axis, transposed)
    graph = import_model(proto)
    assert ops(graph) == ["Conv", "Relu", "Reshape", "Dense", "FakeQuantize"]
    kept = {name: graph.quantization[name] for name in ("x", "r", "y")}
    assert set(graph.quantization) == set(kept)
    assert (kept["x"].bits, kept["x"].signed, kept["x"].axis) == (8, False, None)
    assert kept["x"].scale == float(np.float32(0.05)) and kept["x"].zero == 128
    assert kept["r"].signed and kept["y"].zero == -3
    weights = graph.weight_quantization
    assert set(weights) == {"conv", "gemm"}
    assert weights["conv"].axis == (0 if per_axis else None)
    for name, shape in (("conv", (-1, 1, 1, 1)), ("gemm", (-1, 1))):
        layer = next(n for n in graph.nodes if n.name == name)
        known = weights[name]
        scale = known.steps.reshape(shape) if known.axis == 0 else known.steps
        zero = known.zero_points.reshape(shape) if known.axis == 0 else known.zero_points
        back = layer.attrs["weight"] / scale + zero
        assert np.allclose(back, np.round(back), atol=1e-4) and np.abs(np.round(back)).max() <= 128
    v = constants["v"].T if transposed else constants["v"]
    assert np.array_equal(np.round(graph.nodes[-2].attrs["weight"] / weights["gemm"].steps[:, None]
                                   + weights["gemm"].zero_points[:, None]), v)  # fmt: skip


def test_the_graph_computes_what_the_model_does_without_rounding():
    """The same network in floats, by onnxruntime."""
    from support.onnx_models import disagreement

    proto, _ = network(True)
    graph = import_model(proto)
    del graph.nodes[-1]  # the result is codes
    graph.outputs, graph.batched = ["g"], {"x", "g"}
    floats = model(
        [n for n in proto.graph.node if n.op_type != "QuantizeLinear" and not n.input[0].endswith("_q")],
        {"x": ["N", 2, 6, 6]},
        ["g"],
    )
    floats.graph.initializer.extend(proto.graph.initializer)
    source = {"xd": "x", "rd": "r"}
    for item in floats.graph.node:
        item.input[:] = [source.get(name, name) for name in item.input]
    assert disagreement(graph, floats, samples(graph)) < 1e-5


def test_other_widths():
    nodes = [*pair("x", "a"), node("Relu", ["a"], ["y"])]
    proto = model(nodes, {"x": [1, 3]}, constants={"xs": np.float32(0.5), "xz": np.int16(7)}, opset=21)
    known = import_model(proto).quantization["x"]
    assert (known.bits, known.signed, known.zero) == (16, True, 7)
    proto = model([node("DequantizeLinear", ["w", "s"], ["d"], axis=0), node("MatMul", ["x", "d"], ["y"], name="m")],
                  {"x": [1, 2]}, constants={"s": np.float32(0.5)}, opset=21)  # fmt: skip
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [2, 2], [-8, 7, 1, 0]))
    graph = import_model(proto)
    assert graph.weight_quantization["m"].bits == 4
    assert np.array_equal(graph.nodes[0].attrs["weight"], [[-4.0, 0.5], [3.5, 0.0]])


def test_a_transposed_weight_keeps_its_axis():
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], axis=0),
        node("Transpose", ["d"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["y"], name="m"),
    ]
    constants = {"w": codes(3, 2), "s": np.array([1, 2, 4], np.float32)}
    graph = import_model(model(nodes, {"x": [1, 2]}, constants=constants))
    assert graph.weight_quantization["m"].axis == 0
    assert np.array_equal(graph.nodes[0].attrs["weight"], constants["w"] * [[1.0], [2.0], [4.0]])


def test_a_permuted_weight_keeps_its_axis():
    """Where a permutation is not its own inverse: windows first, outputs last."""
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], axis=3),
        node("Transpose", ["d"], ["t"], perm=[3, 2, 0, 1]),
        node("Conv", ["x", "t"], ["y"], name="m"),
    ]
    constants = {"w": codes(3, 1, 2, 4), "s": np.array([1, 2, 4, 8], np.float32)}
    graph = import_model(model(nodes, {"x": [1, 2, 5, 5]}, constants=constants))
    assert graph.weight_quantization["m"].axis == 0
    want = constants["w"].transpose(3, 2, 0, 1) * constants["s"].reshape(-1, 1, 1, 1)
    assert np.array_equal(graph.nodes[0].attrs["weight"], want)


def refused(nodes, constants, outputs=("y",), inputs=None):
    with pytest.raises(UnsupportedModel) as caught:
        import_model(model(nodes, inputs or {"x": [1, 3]}, outputs, constants))
    (reason,) = caught.value.reasons
    return reason


def test_forms_that_are_refused():
    constants = {"xs": np.float32(0.5), "xz": np.int8(0)}
    quantize = pair("x", "a")[:1]
    behind = [node("Pad", ["a_q", "s"], ["b"]), node("DequantizeLinear", ["b", "xs"], ["y"])]
    reason = refused([*quantize, *behind], constants | {"s": np.array([0, 0, 0, 3])})
    assert "reads the integers of QuantizeLinear" in reason.split(";")[0]


def limited_pair(low, high, zero, **constants):
    """QuantizeLinear, Clip of its codes, and DequantizeLinear, as Brevitas exports codes of few bits."""
    ends = {"low": np.array(low, zero.dtype), "high": np.array(high, zero.dtype)}
    first, second = pair("x", "a")
    second.input[0] = "limited"
    nodes = [first, node("Clip", ["a_q", "low", "high"], ["limited"]), second, node("Sigmoid", ["a"], ["y"])]
    return nodes, {"xs": np.float32(0.5), "xz": zero} | ends | constants


@pytest.mark.parametrize(
    ("low", "high", "zero", "bits"),
    [(-16, 15, np.int8(3), 5), (0, 15, np.uint8(3), 4), (-2, 1, np.int8(0), 2), (-128, 127, np.int8(3), 8)],
)
def test_limited_codes_have_fewer_bits(low, high, zero, bits):
    nodes, constants = limited_pair(low, high, zero)
    graph = import_model(model(nodes, {"x": ["N", 3]}, constants=constants))
    known = graph.quantization["x"] if bits == 8 else graph.nodes[0].attrs["quantization"]
    assert (known.bits, known.signed, known.zero) == (bits, low < 0, int(zero))
    x = np.linspace(-20, 20, 60).reshape(20, 3)
    codes = np.clip(np.rint(x / 0.5) + int(zero), low, high)
    assert bits == 8 or np.allclose(run(graph, {"x": x})["y"], 1 / (1 + np.exp(-(codes - int(zero)) / 2)))
    assert [float(end) for end in known.span] == [(end - int(zero)) / 2 for end in (low, high)]


@pytest.mark.parametrize(("low", "high"), [(-15, 15), (-10, 4)])
def test_other_limits_of_codes_limit_values(low, high):
    nodes, constants = limited_pair(low, high, np.int8(3))
    proto = model(nodes, {"x": ["N", 3]}, constants=constants)
    graph = import_model(proto)
    x = np.linspace(-20, 20, 60).reshape(20, 3)
    codes = np.clip(np.rint(x / 0.5) + 3, low, high)
    assert ops(graph)[0] == "Clip" and graph.quantization[graph.nodes[0].outputs[0]].bits == 8
    assert np.allclose(run(graph, {"x": np.rint(x / 0.5) / 2})["y"], 1 / (1 + np.exp(-(codes - 3) / 2)))


def test_limits_of_codes_that_are_refused():
    axis = {"xs": np.float32([1, 2, 3]), "xz": np.zeros(3, np.int8)}
    for low, high, more, reason in [
        (4, -4, {}, "min and max must be in order and leave some of the codes -128 to 127, unlike 4 and -4"),
        (-9, 9, axis, "min and max must be those of a number of bits where there is a scale per channel"),
    ]:
        nodes, constants = limited_pair(low, high, np.int8(3), **more)
        assert reason in refused(nodes, constants)


@pytest.mark.parametrize(
    ("scale", "zero", "want"),
    [
        (0.1, np.uint8(0), ["Dense", "Relu"]),
        (0.1, np.int8(-128), ["Dense", "Relu"]),
        (6 / 255, np.uint8(0), ["Dense", "Clip"]),
        (0.1, np.uint8(1), ["Dense"]),
        (0.1, np.int8(0), ["Dense"]),
    ],
)
def test_codes_that_begin_at_zero_are_a_relu(scale, zero, want):
    constants = {"xs": np.float32(scale), "xz": zero, "w": RNG.standard_normal((3, 4)).astype(np.float32)}
    nodes = [node("MatMul", ["x", "w"], ["a"]), *pair("a", "b"), node("Sum", ["b", "x4"], ["y"])]
    graph = import_model(model(nodes, {"x": ["N", 3], "x4": ["N", 4]}, constants=constants))
    assert ops(graph) == [*want, "Add"]
    x = 5 * RNG.standard_normal((20, 3))
    limit = 6 if "Clip" in want else np.inf
    assert np.allclose(
        run(graph, {"x": x, "x4": np.zeros((20, 4))})["y"],
        np.clip(x @ constants["w"], -np.inf if want == ["Dense"] else 0, limit),
    )
    (known,) = graph.quantization.values()
    assert known.span[0] == (np.iinfo(zero.dtype).min - int(zero)) * np.float32(scale)


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Softmax"])
def test_no_second_relu(op):
    constants = {"xs": np.float32(0.1), "xz": np.uint8(0)}
    nodes = [node(op, ["x"], ["a"]), *pair("a", "b"), node("MaxPool", ["b"], ["c"], kernel_shape=[2]), *pair("c", "y")]
    graph = import_model(model(nodes, {"x": [1, 1, 5]}, constants=constants))
    assert [name for name in ops(graph) if name in ("Relu", "Clip")] == ["Relu"] * (op == "Relu")
    assert set(graph.quantization) == {"a", "y"}


def test_executor_ignores_rounding():
    constants = {"xs": np.float32(10), "xz": np.int8(0)}
    graph = import_model(model([*pair("x", "a"), node("Relu", ["a"], ["y"])], {"x": [1, 3]}, constants=constants))
    assert np.array_equal(run(graph, {"x": [[0.25, -1, 2]]})["y"], [[0.25, 0, 2]])
