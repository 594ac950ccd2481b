"""Every ONNX function against the golden model, bit for bit, with every level of optimisation of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from concord.derive.backends import onnx_functions
from concord.derive.backends.onnx_functions import FUNCTIONS
from concord.derive.backends.onnx_host import POWERS
from concord.golden.host_math import host_exp, host_log
from concord.operations.onnx_text import DOMAIN
from support.derive_flag_numbers import CONDITIONS, prove_condition
from support.derive_numbers import PRIMITIVES, assert_same, patterns, prove, several
from support.derive_runners import onnx_runner, run_onnx_nodes


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", PRIMITIVES)
def test_function(name, level):
    assert prove(name, onnx_runner(level)) >= 1_900


def test_all_functions_are_proven():
    assert set(FUNCTIONS) == {*PRIMITIVES, *CONDITIONS, "SumOfTwo", "SumOfThree", "AnyOfSample", "HostExp", "HostLog"}


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_condition(name, level):
    assert prove_condition(name, onnx_runner(level)) >= 900


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 2, 5)])
def test_any_of_sample(shape):
    where = np.zeros(shape, np.bool_)
    where.reshape(3, -1)[1, -1] = True
    assert onnx_runner("all")("AnyOfSample", {}, where).tolist() == [0, 1, 0]


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
        same_doubles(onnx_runner(level)("HostLog", {}, x), host_log(x))


def test_square_roots_are_those_of_ieee_754():
    rng = np.random.default_rng(5)
    y = rng.uniform(0.5, 2.0, 20_000) * np.ldexp(1.0, rng.integers(-400, 400, 20_000))
    x = np.concatenate([y, y * y, y * y + y * np.spacing(y)])
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [None])]
    nodes = [helper.make_node("Sqrt", ["x"], ["r"]), helper.make_node("HostLog", ["r"], ["y"], domain=DOMAIN)]
    for level in ("none", "all"):
        found = run_onnx_nodes(nodes, given, onnx_functions.needed(["HostLog"]), [x], level)
        same_doubles(found, host_log(np.sqrt(x)))


def test_the_exponential_function_of_the_host():
    rng = np.random.default_rng(3)
    ties = (np.arange(-1080, 1030) + 0.5) * np.log(2.0)
    odd = [0.0, -0.0, -np.inf, np.inf, np.nan, -745.14, -744.5, 709.79, 5e-324, 1e308]
    x = np.concatenate([ties, np.nextafter(ties, 0), rng.uniform(-750, 711, 4000), -rng.exponential(2.0, 4000), odd])
    with np.errstate(all="ignore"):
        want = host_exp(x)
    for level in ("none", "all"):
        found = onnx_runner(level)("HostExp", {}, x, POWERS)
        same_doubles(found, want)


@pytest.mark.parametrize("name", ["SumOfTwo", "SumOfThree"])
def test_sums_of_several(name):
    numbers, want = several({"SumOfTwo": 2, "SumOfThree": 3}[name])
    names = ["a", "b", "c"][: len(numbers)]
    nodes = [
        helper.make_node(name, names, ["total", "rest"], domain=DOMAIN),
        helper.make_node("RoundSumToHalf", ["total", "rest"], ["y"], domain=DOMAIN),
    ]
    inputs = [helper.make_tensor_value_info(one, onnx.TensorProto.DOUBLE, [None]) for one in names]
    found = run_onnx_nodes(nodes, inputs, onnx_functions.needed([name, "RoundSumToHalf"]), numbers, "all")
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
        ("RoundToHalf", "odd = Add (high, moved)", "odd = Identity (total)"),  # rounds twice
        ("RoundToHalf", "side = Sign (low)", "side = Sign (high)"),
        ("HalfAdd", "Cast <to: int = 10>", "Cast <to: int = 16>"),
        ("HalfMax", "y = Where (zeros, zero, either)", "y = Identity (either)"),  # zeros in the order of the operands
        ("HalfRelu", "LessOrEqual", "Less"),
        ("HalfTable", "Round", "Floor"),
        ("BlockQuantize", "Greater (nearest, peak)", "GreaterOrEqual (nearest, peak)"),
        ("StaticQuantize", "number = Where (nan, zero, x)", "number = Identity (x)"),
        ("HalfToReal", "Where (nan, canonical, x)", "Neg (x)"),
    ],
)
def test_changes_are_noticed(name, old, new):
    with pytest.raises(AssertionError, match=r"differ|\[|^$|assert"):
        prove(name, onnx_runner("all", changed(name, old, new)))
