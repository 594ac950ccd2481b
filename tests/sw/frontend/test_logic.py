"""Whole numbers, comparisons and truth values: the graph against onnxruntime, and the NPU for every binary16 number."""

from functools import cache

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.onnx_expressions import BOOL, FLOAT, given, model_of, op
from support.onnx_models import agrees, model, node, ops

LANES = 256
ROWS = given(1, LANES)
X, Z = given(1, 3, 7), given(1, 3, 7, name="z")
#: Numbers next to which comparisons and whole numbers are hardest.
CORNERS = np.array([0.0, 2.0**-24, 1.5, -1.5, 0.1, 511.5, 1023.5, 2047.0, 65504.0])


@cache
def everything():
    """Every finite number of binary16, in rows."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values)].astype(np.float64)
    return np.concatenate([values, np.zeros(-len(values) % LANES)]).reshape(-1, LANES)


def computed(y, inputs):
    """What the emulator has for the outputs of a network."""
    return emulate(compile_graph(import_model(model_of(y)), ECP5_85F), inputs)["y"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "function"),
    [("Round", np.rint), ("Floor", np.floor), ("Ceil", np.ceil), ("Sign", np.sign)],
)
def test_whole_numbers_are_exact_for_every_number(name, function):
    x = everything()
    np.testing.assert_array_equal(computed(getattr(op, name)(ROWS), {"x": x}), function(x))


@pytest.mark.slow
@pytest.mark.parametrize("divisor", [1.0, -2.0, 8.0, 32768.0])
def test_remainders_are_exact_for_every_number(divisor):
    x = everything()
    got = computed(op.Mod(ROWS, divisor, fmod=1), {"x": x})
    np.testing.assert_array_equal(got, np.fmod(x, divisor))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("Greater", np.greater), ("GreaterOrEqual", np.greater_equal), ("Less", np.less), ("Equal", np.equal),
        ("LessOrEqual", np.less_equal),
    ],
)  # fmt: skip
def test_comparisons_are_exact_for_every_number(name, function):
    """With numbers at corners, and with the next number, whose difference is the least that there is."""
    x = everything()
    other = np.roll(np.resize(CORNERS, x.size).reshape(x.shape), 1, axis=1)
    other[::3] = np.nextafter(x[::3].astype(np.float16), np.float16(0)).astype(np.float64)
    other[1::9] = x[1::9]
    compared = getattr(op, name)(ROWS, given(1, LANES, name="z"))
    got = computed(op.Cast(compared, to=FLOAT), {"x": x, "z": other})
    np.testing.assert_array_equal(got, function(x, other))


def numbers(*names, shape=(2, 3, 7)):
    rng = np.random.default_rng(4)
    return {name: np.round(rng.normal(0, 2, shape) * 2) / 2 for name in names}


@pytest.mark.parametrize("name", ["Round", "Floor", "Ceil", "Sign"])
def test_functions_with_steps(name):
    agrees(getattr(op, name)(X), numbers("x"))


def test_remainders():
    agrees(op.Mod(X, np.float32([1, 2, 4] * 2 + [8]), fmod=1), numbers("x"))


@pytest.mark.parametrize("divisor", [3.0, 0.5, 0.1, -2.5])
def test_remainders_for_the_host(divisor):
    """Quotients that binary16 does not hold are those of the host, with the bits of double precision."""
    assert "Truncate" in ops(agrees(op.Mod(X, divisor, fmod=1), numbers("x"), tolerance=1e-6))
    with pytest.raises(UnsupportedModel, match="must be a power of two from 1 to 32768"):
        import_model(model_of(op.Mod(X, np.nan, fmod=1)))


@pytest.mark.parametrize("name", ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"])
@pytest.mark.parametrize("names", ["xz", "xc", "cx"])
def test_comparisons(name, names):
    operands = {"x": X, "z": Z, "c": np.float32([-1e9, -2, -0.5, 0, 0.5, 2, 1e9])}
    compared = getattr(op, name)(*(operands[letter] for letter in names))
    agrees(op.Cast(compared, to=FLOAT), numbers(*names.replace("c", "")))


def test_logical_operators_and_moved_truth():
    a, b = op.Greater(X, Z), op.Less(X, 1.0)
    same = op.Equal(op.Xor(op.And(a, b), b), op.Not(op.Or(a, b)))
    turned, t = (op.Transpose(each, perm=[0, 2, 1]) for each in (same, X))
    agrees(op.Where(turned, t, 0.0), numbers("x", "z"))


@pytest.mark.parametrize("operands", [(X, Z), (X, 3.0), (3.0, X), (3.0, 0.0), (0.0, 0.0)])
def test_computed_conditions(operands):
    agrees(op.Where(op.Greater(X, 0.5), *operands), numbers("x", *(["z"] if Z in operands else [])))


def test_a_result_has_the_shape_of_all_operands():
    x = given(1, 1, 7)
    graph = agrees(op.Where(op.Greater(x, 0.5), x, np.zeros((3, 7))), numbers("x", shape=(2, 1, 7)))
    assert graph.shapes["y"] == (1, 3, 7)


def test_casts_to_truth():
    graph = agrees(op.Cast(op.Cast(op.Cast(X, to=BOOL), to=BOOL), to=FLOAT), numbers("x"))
    assert [item.op for item in graph.nodes] == ["Compare", "Mul"]  # of which the host need compute nothing


def test_truth_as_a_result_is_0_or_1():
    graph = import_model(model_of(op.Greater(X, Z)))
    inputs = numbers("x", "z")
    np.testing.assert_array_equal(run(graph, inputs)["y"], inputs["x"] > inputs["z"])


def test_a_condition_that_is_no_truth_is_refused():
    x = given(1, 3)
    proto = model_of(op.Where(given(1, 3, name="c"), x, x))
    with pytest.raises(UnsupportedModel, match="condition must be constant or a comparison, not 'c'"):
        import_model(proto)


@pytest.mark.parametrize(
    ("name", "attrs"), [("ThresholdedRelu", {"alpha": 0.75}), ("Shrink", {"lambd": 1.0, "bias": 0.25})]
)
def test_functions_that_onnx_defines_by_comparisons(name, attrs):
    agrees(getattr(op, name)(X, **attrs), numbers("x"))


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
    operands = {"x": X, computed: op.ReduceMean(X, keepdims=0), **constants}
    graph = agrees(model_of(op.Clip(*(operands[name] for name in names)), opset=opset), numbers("x"))
    assert ops(graph)[-1] == {"low": "Max", "high": "Min"}[computed] and "Clip" not in ops(graph)


@pytest.mark.parametrize(
    ("names", "what"), [(["x", "inf"], "min"), (["x", "inf", "low"], "min"), (["x", "", "nan"], "max")]
)
def test_limits_that_no_number_keeps_are_refused(names, what):
    constants = {key: np.float32(value) for key, value in (("inf", np.inf), ("nan", np.nan)) if key in names}
    inputs = {"x": (1, 3, 7)} | ({"low": ()} if "low" in names else {})
    with pytest.raises(UnsupportedModel, match=f"{what} must be a finite number, or -?inf for no limit, not (inf|nan)"):
        import_model(model([node("Clip", names, ["y"])], inputs, constants=constants))


@pytest.mark.parametrize("name", ["Less", "Greater", "Equal"])
@pytest.mark.parametrize("constant", [1e9, -1e9])
def test_constants_beyond_binary16_are_its_ends(name, constant):
    compared = getattr(op, name)(op.Relu(given(1, 4)), constant)
    graph = agrees(op.Cast(compared, to=FLOAT))
    sizes = [float(np.abs(item.attrs["constant"]).max()) for item in graph.nodes if item.op == "Sub"]
    assert sizes[:1] == [65504.0] and max(sizes) == 65504.0


@pytest.mark.parametrize("constant", [1e9, -1e9])
def test_inputs_are_compared_with_constants_as_they_are(constant):
    """The NPU takes the end of binary16, the host the constant."""
    graph = agrees(op.Cast(op.Greater(given(1, 4), constant), to=FLOAT))
    assert [item.attrs["constant"] for item in graph.nodes if item.op == "Compare"] == [np.float32(constant)]
    x = np.array([[0.0, 65472.0, -65472.0, 1.0]])
    compiled = compile_graph(graph, ECP5_85F)
    assert (emulate(compiled, {"x": x})["y"] == (constant < 0)).all()
