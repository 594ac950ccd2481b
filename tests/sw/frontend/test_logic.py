"""Whole numbers, comparisons and truth values: the graph against onnxruntime, and the NPU for every binary16 number."""

from functools import cache

import numpy as np
import pytest
from onnx import TensorProto

from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.onnx_models import agrees, model, node, ops

BOOL, FLOAT = TensorProto.BOOL, TensorProto.FLOAT
LANES = 256
#: Numbers next to which comparisons and whole numbers are hardest.
CORNERS = np.array([0.0, 2.0**-24, 1.5, -1.5, 0.1, 511.5, 1023.5, 2047.0, 65504.0])


@cache
def everything():
    """Every finite number of binary16, in rows."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values)].astype(np.float64)
    return np.concatenate([values, np.zeros(-len(values) % LANES)]).reshape(-1, LANES)


def computed(nodes, inputs, constants=None, opset=17):
    """What the emulator has for the outputs of a network."""
    proto = model(nodes, dict.fromkeys(inputs, (1, LANES)), constants=constants, opset=opset)
    return emulate(compile_graph(import_model(proto), ECP5_85F), inputs)["y"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "function"),
    [("Round", np.rint), ("Floor", np.floor), ("Ceil", np.ceil), ("Sign", np.sign)],
)
def test_whole_numbers_are_exact_for_every_number(op, function):
    x = everything()
    np.testing.assert_array_equal(computed([node(op, ["x"], ["y"])], {"x": x}), function(x))


@pytest.mark.slow
@pytest.mark.parametrize("divisor", [1.0, -2.0, 8.0, 32768.0])
def test_remainders_are_exact_for_every_number(divisor):
    x = everything()
    got = computed([node("Mod", ["x", "d"], ["y"], fmod=1)], {"x": x}, {"d": np.float32(divisor)})
    np.testing.assert_array_equal(got, np.fmod(x, divisor))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("Greater", np.greater), ("GreaterOrEqual", np.greater_equal), ("Less", np.less), ("Equal", np.equal),
        ("LessOrEqual", np.less_equal),
    ],
)  # fmt: skip
def test_comparisons_are_exact_for_every_number(op, function):
    """With numbers at corners, and with the next number, whose difference is the least that there is."""
    x = everything()
    other = np.roll(np.resize(CORNERS, x.size).reshape(x.shape), 1, axis=1)
    other[::3] = np.nextafter(x[::3].astype(np.float16), np.float16(0)).astype(np.float64)
    other[1::9] = x[1::9]
    nodes = [node(op, ["x", "z"], ["c"]), node("Cast", ["c"], ["y"], to=FLOAT)]
    got = computed(nodes, {"x": x, "z": other})
    np.testing.assert_array_equal(got, function(x, other))


def numbers(*names, shape=(2, 3, 7)):
    rng = np.random.default_rng(4)
    return {name: np.round(rng.normal(0, 2, shape) * 2) / 2 for name in names}


@pytest.mark.parametrize("op", ["Round", "Floor", "Ceil", "Sign"])
def test_functions_with_steps(op):
    agrees(model([node(op, ["x"], ["y"])], {"x": (1, 3, 7)}), numbers("x"))


def test_remainders():
    proto = model(
        [node("Mod", ["x", "d"], ["y"], fmod=1)], {"x": (1, 3, 7)}, constants={"d": np.float32([1, 2, 4] * 2 + [8])}
    )
    agrees(proto, numbers("x"))


@pytest.mark.parametrize("divisor", [3.0, 0.5, 0.1, -2.5])
def test_remainders_for_the_host(divisor):
    """Quotients that binary16 does not hold are those of the host, with the bits of double precision."""
    proto = model([node("Mod", ["x", "d"], ["y"], fmod=1)], {"x": (1, 3, 7)}, constants={"d": np.float32(divisor)})
    assert "Truncate" in ops(agrees(proto, numbers("x"), tolerance=1e-6))
    with pytest.raises(UnsupportedModel, match="must be a power of two from 1 to 32768"):
        import_model(
            model([node("Mod", ["x", "d"], ["y"], fmod=1)], {"x": (1, 7)}, constants={"d": np.float32(np.nan)})
        )


@pytest.mark.parametrize("op", ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"])
@pytest.mark.parametrize("names", [["x", "z"], ["x", "c"], ["c", "x"]])
def test_comparisons(op, names):
    nodes = [node(op, names, ["b"]), node("Cast", ["b"], ["y"], to=FLOAT)]
    shapes = {name: (1, 3, 7) for name in names if name != "c"}
    constants = {"c": np.float32([-1e9, -2, -0.5, 0, 0.5, 2, 1e9])} if "c" in names else {}
    proto = model(nodes, shapes, constants=constants)
    agrees(proto, numbers(*shapes))


def test_logical_operators_and_moved_truth():
    nodes = [
        node("Greater", ["x", "z"], ["a"]),
        node("Less", ["x", "one"], ["b"]),
        node("And", ["a", "b"], ["both"]),
        node("Or", ["a", "b"], ["either"]),
        node("Xor", ["both", "b"], ["one_of"]),
        node("Not", ["either"], ["none"]),
        node("Equal", ["one_of", "none"], ["same"]),
        node("Transpose", ["same"], ["turned"], perm=[0, 2, 1]),
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("Where", ["turned", "t", "zero"], ["y"]),
    ]
    constants = {"one": np.float32(1), "zero": np.float32(0)}
    agrees(model(nodes, {"x": (1, 3, 7), "z": (1, 3, 7)}, constants=constants), numbers("x", "z"))


@pytest.mark.parametrize("operands", [["x", "z"], ["x", "c"], ["c", "x"], ["c", "zero"], ["zero", "zero"]])
def test_computed_conditions(operands):
    nodes = [node("Greater", ["x", "half"], ["b"]), node("Where", ["b", *operands], ["y"])]
    constants = {"half": np.float32(0.5), "c": np.float32(3), "zero": np.float32(0)}
    inputs = ("x", "z") if "z" in operands else ("x",)
    proto = model(nodes, dict.fromkeys(inputs, (1, 3, 7)), constants=constants)
    agrees(proto, numbers(*inputs))


def test_a_result_has_the_shape_of_all_operands():
    nodes = [node("Greater", ["x", "half"], ["b"]), node("Where", ["b", "x", "zeros"], ["y"])]
    constants = {"half": np.float32(0.5), "zeros": np.zeros((3, 7), np.float32)}
    assert agrees(model(nodes, {"x": (1, 1, 7)}, constants=constants), numbers("x", shape=(2, 1, 7))).shapes["y"] == (
        1,
        3,
        7,
    )


def test_casts_to_truth():
    nodes = [
        node("Cast", ["x"], ["b"], to=BOOL),
        node("Cast", ["b"], ["c"], to=BOOL),
        node("Cast", ["c"], ["y"], to=FLOAT),
    ]
    graph = agrees(model(nodes, {"x": (1, 3, 7)}), numbers("x"))
    assert [item.op for item in graph.nodes] == ["Compare", "Mul"]  # of which the host need compute nothing


def test_truth_as_a_result_is_0_or_1():
    graph = import_model(model([node("Greater", ["x", "z"], ["y"])], {"x": (1, 3, 7), "z": (1, 3, 7)}))
    inputs = numbers("x", "z")
    np.testing.assert_array_equal(run(graph, inputs)["y"], inputs["x"] > inputs["z"])


def test_a_condition_that_is_no_truth_is_refused():
    proto = model([node("Where", ["c", "x", "x"], ["y"])], {"x": (1, 3), "c": (1, 3)})
    with pytest.raises(UnsupportedModel, match="condition must be constant or a comparison, not 'c'"):
        import_model(proto)


@pytest.mark.parametrize(
    ("op", "attrs"), [("ThresholdedRelu", {"alpha": 0.75}), ("Shrink", {"lambd": 1.0, "bias": 0.25})]
)
def test_functions_that_onnx_defines_by_comparisons(op, attrs):
    agrees(model([node(op, ["x"], ["y"], **attrs)], {"x": (1, 3, 7)}), numbers("x"))


@pytest.mark.parametrize(
    "names", [["x", "low", "high"], ["x", "low", "two"], ["x", "minus", "high"], ["x", "", "high"]]
)
def test_limits_that_are_computed(names):
    constants = {key: np.float32(value) for key, value in (("two", 2), ("minus", -2)) if key in names}
    inputs = [name for name in names if name and name not in constants]
    rng = np.random.default_rng(4)
    proto = model([node("Clip", names, ["y"])], {"x": (1, 3, 7)} | dict.fromkeys(inputs[1:], ()), constants=constants)
    values = {"x": rng.normal(0, 2, (2, 3, 7))} | {name: rng.normal(0, 1, 2) for name in inputs[1:]}
    graph = import_model(proto)
    got = run(graph, values)["y"]
    for k in range(2):
        low = constants.get(names[1], values.get(names[1], np.full(2, -np.inf))[k] if names[1] not in constants else 0)
        high = constants[names[2]] if names[2] in constants else values[names[2]][k]
        np.testing.assert_array_equal(got[k], np.minimum(np.maximum(values["x"][k], low), high))


@pytest.mark.parametrize("opset", [11, 12, 13])
@pytest.mark.parametrize("names", [["x", "low", "inf"], ["x", "low"], ["x", "minus", "high"], ["x", "low", "largest"]])
def test_a_computed_limit_beside_one_that_is_infinite(names, opset):
    limits = {"inf": np.inf, "minus": -np.inf, "largest": np.finfo(np.float32).max}
    constants = {key: np.float32(value) for key, value in limits.items() if key in names}
    (computed,) = (name for name in names if name in ("low", "high"))
    nodes = [node("ReduceMean", ["x"], [computed], keepdims=0), node("Clip", names, ["y"])]
    graph = agrees(model(nodes, {"x": (1, 3, 7)}, constants=constants, opset=opset), numbers("x"))
    assert ops(graph)[-1] == {"low": "Max", "high": "Min"}[computed] and "Clip" not in ops(graph)


@pytest.mark.parametrize(
    ("names", "what"), [(["x", "inf"], "min"), (["x", "inf", "low"], "min"), (["x", "", "nan"], "max")]
)
def test_limits_that_no_number_keeps_are_refused(names, what):
    constants = {key: np.float32(value) for key, value in (("inf", np.inf), ("nan", np.nan)) if key in names}
    inputs = {"x": (1, 3, 7)} | ({"low": ()} if "low" in names else {})
    with pytest.raises(UnsupportedModel, match=f"{what} must be a finite number, or -?inf for no limit, not (inf|nan)"):
        import_model(model([node("Clip", names, ["y"])], inputs, constants=constants))


@pytest.mark.parametrize("op", ["Less", "Greater", "Equal"])
@pytest.mark.parametrize("constant", [1e9, -1e9])
def test_constants_beyond_binary16_are_its_ends(op, constant):
    nodes = [
        node("Relu", ["x"], ["r"]), node(op, ["r", "c"], ["t"]), node("Cast", ["t"], ["y"], to=TensorProto.FLOAT)
    ]  # fmt: skip
    graph = agrees(model(nodes, {"x": (1, 4)}, constants={"c": np.float32(constant)}))
    sizes = [float(np.abs(item.attrs["constant"]).max()) for item in graph.nodes if item.op == "Sub"]
    assert sizes[:1] == [65504.0] and max(sizes) == 65504.0


@pytest.mark.parametrize("constant", [1e9, -1e9])
def test_inputs_are_compared_with_constants_as_they_are(constant):
    """The NPU takes the end of binary16, the host the constant."""
    nodes = [node("Greater", ["x", "c"], ["t"]), node("Cast", ["t"], ["y"], to=TensorProto.FLOAT)]
    graph = agrees(model(nodes, {"x": (1, 4)}, constants={"c": np.float32(constant)}))
    assert [item.attrs["constant"] for item in graph.nodes if item.op == "Compare"] == [np.float32(constant)]
    x = np.array([[0.0, 65472.0, -65472.0, 1.0]])
    compiled = compile_graph(graph, ECP5_85F)
    assert (emulate(compiled, {"x": x})["y"] == (constant < 0)).all()
