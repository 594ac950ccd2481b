"""Every ONNX function against the golden model, bit for bit, with every level of optimisation of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from concord.derive.backends import onnx_functions
from concord.derive.backends.onnx_functions import DOMAIN, FUNCTIONS, IR_VERSION, OPSET
from concord.derive.backends.onnx_host_functions import POWERS
from concord.golden.host_math import host_exp, host_log
from derive_flag_numbers import CONDITIONS, prove_condition
from derive_numbers import PRIMITIVES, assert_same, patterns, prove, several

LEVELS = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def run_nodes(nodes, inputs, functions, arrays, level):
    """The only output, y, of a graph."""
    types = dict.fromkeys(CONDITIONS, onnx.TensorProto.BOOL)
    types |= {"AnyOfSample": onnx.TensorProto.INT32}
    types |= dict.fromkeys(("HostExp", "HostLog"), onnx.TensorProto.DOUBLE)
    called = nodes[-1].op_type
    axes = [None] * (1 if called == "AnyOfSample" else arrays[0].ndim)
    outputs = [helper.make_tensor_value_info("y", types.get(called, onnx.TensorProto.FLOAT), axes)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, dict(zip([one.name for one in inputs], arrays, strict=True)))[0]


def runner(level, change=lambda function: function):
    """Calls functions in ONNX Runtime; ``change`` is applied to each."""

    def run(name, attributes, *arrays):
        functions = [change(function) for function in onnx_functions.needed([name])]
        called = next(function for function in functions if function.name == name)
        node = helper.make_node(name, list(called.input), ["y"], domain=DOMAIN, **attributes)
        inputs = [
            helper.make_tensor_value_info(given, helper.np_dtype_to_tensor_dtype(array.dtype), [None, *array.shape[1:]])
            for given, array in zip(called.input, arrays, strict=True)
        ]
        return run_nodes([node], inputs, functions, arrays, level)

    return run


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", PRIMITIVES)
def test_function(name, level):
    assert prove(name, runner(level)) >= 1_900


def test_all_functions_are_proven():
    assert set(FUNCTIONS) == {*PRIMITIVES, *CONDITIONS, "SumOfTwo", "SumOfThree", "AnyOfSample", "HostExp", "HostLog"}


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_condition(name, level):
    assert prove_condition(name, runner(level)) >= 900


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 2, 5)])
def test_any_of_sample(shape):
    where = np.zeros(shape, np.bool_)
    where.reshape(3, -1)[1, -1] = True
    assert runner("all")("AnyOfSample", {}, where).tolist() == [0, 1, 0]


def same_doubles(found, want):
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(found.view(np.int64)[numbers], want.view(np.int64)[numbers])
    assert np.isnan(found[~numbers]).all()


def test_the_logarithm_of_the_host():
    """At both sides of every step of its reduction, subnormal numbers included."""
    rng = np.random.default_rng(4)
    powers = np.ldexp(1.0, np.arange(-1074, 1024))
    roots = np.sqrt(0.5) * powers[20:]
    x = np.concatenate([powers, roots, np.exp(rng.uniform(-744, 709, 4000)), rng.uniform(0.6, 1.6, 4000)])
    odd = [0.0, -0.0, -1.0, -np.inf, np.inf, np.nan, 5e-324, np.finfo(np.float64).max]
    x = np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, np.inf), rng.integers(1, 2**52, 99) * 5e-324, odd])
    for level in ("none", "all"):
        same_doubles(runner(level)("HostLog", {}, x), host_log(x))


def test_square_roots_are_those_of_ieee_754():
    rng = np.random.default_rng(5)
    y = rng.uniform(0.5, 2.0, 20_000) * np.ldexp(1.0, rng.integers(-400, 400, 20_000))
    x = np.concatenate([y, y * y, y * y + y * np.spacing(y)])
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [None])]
    nodes = [helper.make_node("Sqrt", ["x"], ["r"]), helper.make_node("HostLog", ["r"], ["y"], domain=DOMAIN)]
    for level in ("none", "all"):
        found = run_nodes(nodes, given, onnx_functions.needed(["HostLog"]), [x], level)
        same_doubles(found, host_log(np.sqrt(x)))


def test_the_exponential_function_of_the_host():
    rng = np.random.default_rng(3)
    ties = (np.arange(-1080, 1030) + 0.5) * np.log(2.0)
    odd = [0.0, -0.0, -np.inf, np.inf, np.nan, -745.14, -744.5, 709.79, 5e-324, 1e308]
    x = np.concatenate([ties, np.nextafter(ties, 0), rng.uniform(-750, 711, 4000), -rng.exponential(2.0, 4000), odd])
    with np.errstate(all="ignore"):
        want = host_exp(x)
    for level in ("none", "all"):
        found = runner(level)("HostExp", {}, x, POWERS)
        same_doubles(found, want)


@pytest.mark.parametrize("name", ["SumOfTwo", "SumOfThree"])
def test_sums_of_several(name):
    numbers, want = several({"SumOfTwo": 2, "SumOfThree": 3}[name])
    names = ["a", "b", "c"][: len(numbers)]
    nodes = [
        helper.make_node(name, names, ["sum", "rest"], domain=DOMAIN),
        helper.make_node("RoundSumToHalf", ["sum", "rest"], ["y"], domain=DOMAIN),
    ]
    inputs = [helper.make_tensor_value_info(one, onnx.TensorProto.DOUBLE, [None]) for one in names]
    found = run_nodes(nodes, inputs, onnx_functions.needed([name, "RoundSumToHalf"]), numbers, "all")
    assert_same(patterns(found), want, numbers)


def changed(name, old, new):
    """A change of an operator, or of a constant, in the function of this name."""

    def change(function):
        if function.name != name:
            return function
        text = onnx.printer.to_text(function)
        assert text.count(old) == 1, text
        return onnx.parser.parse_function(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("RoundToHalf", "odd = Add (high, moved)", "odd = Identity (sum)"),  # rounds twice
        ("RoundToHalf", "side = Sign (low)", "side = Sign (high)"),
        ("HalfAdd", "Cast <to: int = 10>", "Cast <to: int = 16>"),
        ("HalfMax", "y = Where (zeros, zero, either)", "y = Identity (either)"),  # zeros in the order of the operands
        ("HalfRelu", "LessOrEqual", "Less"),
        ("HalfTable", "Round", "Floor"),
        ("BlockQuantize", "Greater (nearest, peak)", "GreaterOrEqual (nearest, peak)"),
        ("StaticQuantize", "number = Where (nan, zero, x)", "number = Identity (x)"),
        ("CanonicalNaN", "Where (nan, canonical, x)", "Neg (x)"),
    ],
)
def test_changes_are_noticed(name, old, new):
    with pytest.raises(AssertionError, match=r"differ|\[|^$|assert"):
        prove(name, runner("all", changed(name, old, new)))
