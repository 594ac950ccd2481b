"""Records of functions: values in double precision against exact ones, and whether what they say is so."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest

from concord.compiler.lowering import decomposition
from concord.functions import (
    FUNCTIONS,
    Function,
    by_onnx_name,
    by_recurrent_name,
    catalogue,
    evaluate,
    function,
    standard_table,
    trainable,
)
from concord.graph.host_functions import HOST_FUNCTIONS
from concord.graph.passes import piecewise
from concord.spec.presets import TINY

PARAMETERS = {
    "leaky_relu": {"alpha": 0.3},
    "elu": {"alpha": 1.7},
    "hardsigmoid": {"alpha": 0.4, "beta": 0.1},
    "celu": {"alpha": 0.6},
    "celu_ratio": {"alpha": 2.5},
    "linear": {"slope": 0.5, "offset": -1.0},
}
POINTS = np.concatenate(
    [
        np.random.default_rng(1).normal(0, 4, 60),
        [0.0, 1.0, -1.0, 6.0, -3.0, 3.0, 1e-9, -1e-9, 40.0, -40.0, 700.0, -700.0],
    ]
)


@pytest.mark.parametrize("parameters", [{}, PARAMETERS], ids=["defaults", "parameters"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_exact_arithmetic(name, parameters):
    own = parameters.get(name, {})
    exact = function(name).exact_with(**own)
    want = np.array([float(exact(Fraction(x))) for x in POINTS])
    got = function(name).values(POINTS, **own)
    assert got.shape == POINTS.shape
    assert np.allclose(got, want, rtol=1e-13, atol=3e-15)


def test_functions_are_applied_in_order():
    x = np.array([[0.25, 4.0]])
    assert np.array_equal(evaluate((("sqrt", {}), ("leaky_relu", {"alpha": 2.0})), x), [[0.5, 2.0]])
    assert evaluate((("log", {}), ("exp", {})), x) == pytest.approx(x)


# Facts of the records ----------------------------------------------------------------------------

INPUTS = np.sort(np.concatenate([POINTS, np.random.default_rng(2).normal(0, 1, 400), np.linspace(-70, 70, 281)]))
RECORDS = pytest.mark.parametrize("record", FUNCTIONS.values(), ids=FUNCTIONS)


@RECORDS
def test_values_are_in_the_range_and_rise_where_it_says_so(record):
    with np.errstate(over="ignore"):
        values = record.values(INPUTS)
    assert record.range[0] <= values.min() and values.max() <= record.range[1]
    assert not record.rises or np.all(values[1:] >= values[:-1])


@RECORDS
def test_what_is_special_at_zero(record):
    exact = record.exact_with()
    assert record.pole == (exact(Fraction(0)) in (math.inf, -math.inf))
    if record.constant_below_zero:
        assert exact(Fraction(-1, 1 << 30)) == exact(Fraction(-65504)) == exact(Fraction(0))
        assert len(set(record.values(-np.abs(POINTS)))) == 1


@RECORDS
def test_functions_that_settle_have_tables_that_settle(record):
    constant_ends = standard_table(record.name, TINY).constant_ends
    assert constant_ends == (True, True) or not record.constant_ends


@pytest.mark.parametrize("record", trainable(), ids=lambda record: record.name)
def test_slopes_are_derivatives(record):
    exact, step = record.exact_with(), Fraction(1, 10**12)
    for x in (Fraction(n, 7) for n in range(-30, 31)):
        rise = Fraction(exact(x + step)) - Fraction(exact(x - step))
        assert float(record.slope(Fraction(exact(x)))) == pytest.approx(float(rise / (2 * step)), abs=1e-10)


@pytest.mark.parametrize("record", by_onnx_name().values(), ids=lambda record: record.name)
def test_parameters_are_the_attributes_of_the_operator(record):
    attributes = onnx.defs.get_schema(record.onnx).attributes
    assert {name: value.default_value.f for name, value in attributes.items()} == pytest.approx(record.parameters)


def test_the_page_of_operators_names_every_function():
    page = (Path(__file__).parents[3] / "docs" / "operators.md").read_text()
    (row,) = re.findall(r"^\| functions of one element \| (.*) \|$", page, re.MULTILINE)
    assert set(by_onnx_name()) - set(row.split(", ")) == set()


def test_functions_are_found_by_their_names():
    assert by_onnx_name()["HardSigmoid"] is by_recurrent_name()["HardSigmoid"] is function("hardsigmoid")
    assert by_recurrent_name()["Relu"] is function("relu") and "Relu" not in by_onnx_name()
    for names in ("name", "onnx", "recurrent"):
        given = [getattr(record, names) for record in catalogue._RECORDS if getattr(record, names)]
        assert len(set(given)) == len(given)
    with pytest.raises(ValueError, match=r"function must be one of \['celu', .*\], not 'sine'"):
        function("sine")


def test_what_tables_of_rules_name_is_in_the_catalogue():
    named = {*piecewise.LINES, *HOST_FUNCTIONS, *(name for names in decomposition.RULES for name in names)}
    assert named <= FUNCTIONS.keys()


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"domain": (1, 1)}, r"domain of f must be \(low, high\) with low < high, not \(1, 1\)"),
        ({"range": (1, 0)}, r"range of f must be \(low, high\) with low < high, not \(1, 0\)"),
        ({"positive": ("beta",)}, r"positive of f must be names of parameters, not \['beta'\]"),
        ({"slope": lambda y: y}, r"f must have no parameters to have a slope, not \['alpha'\]"),
    ],
)
def test_records_that_make_no_sense(facts, message):
    with pytest.raises(ValueError, match=message):
        Function(name="f", exact=max, bounds=max, float64=max, parameters={"alpha": 1.0}, **facts)
