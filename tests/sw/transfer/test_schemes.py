"""Schemes of transfer tables: their codes and numbers, and what is refused."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.golden import binary16
from concord.spec.formats import Rounding
from concord.transfer import (
    Binary16,
    FixedPoint,
    MinMax,
    Symmetric,
    TableIndex,
    TransferTable,
    UniformAffine,
    transfer_table,
)
from support.random_schemes import AWAY, S, U, Y, schemes


@pytest.mark.slow
@given(schemes, st.fractions())
def test_quantisation_takes_the_nearest_code(scheme, x):
    code = scheme.quantize(x)
    error = abs(scheme.dequantize(code) - x)
    others = (min(max(code + d, scheme.low), scheme.high) for d in (-1, 1))
    assert all(error <= abs(scheme.dequantize(other) - x) for other in others)
    assert scheme.quantize(scheme.dequantize(code)) == code


def test_one_bit():
    assert transfer_table(UniformAffine(1, 1, 0, U), [], UniformAffine(1, 1, 0, U)).entries.tolist() == [0, 1]
    assert transfer_table(UniformAffine(1, 1, 0, S), ["relu"], Symmetric(1, 1)).entries.tolist() == [0, 0]
    single = transfer_table(Symmetric(1, 1), ["sigmoid"], Binary16())
    assert (
        single.entries.tolist() == [binary16.encode(0.5)]
        and single.apply([0, 0]).tolist() == [binary16.encode(0.5)] * 2
    )
    with pytest.raises(ValueError, match=r"codes must be in 0\.\.0, not 0\.\.1"):
        single.apply([0, 1])


@pytest.mark.parametrize("zero", [0, 255])
def test_zero_point_at_the_ends(zero):
    source = UniformAffine(8, 0.5, zero, U)
    table = transfer_table(source, [("mul", {"by": -1})], UniformAffine(8, 0.5, 255 - zero, U))
    assert table.entries.tolist() == list(range(255, -1, -1))


def test_ties_and_saturation():
    to = UniformAffine(4, 2, 3, S)  # the zero point is odd: rounding comes first
    assert [to.quantize(x) for x in (1, 3, 5, -1, -3)] == [3, 5, 5, 3, 1]
    away = UniformAffine(4, 2, 3, S, AWAY)
    assert [away.quantize(x) for x in (1, 3, 5, -1, -3)] == [4, 5, 6, 2, 1]
    assert [to.quantize(x) for x in (1e9, -1e9, math.inf, -math.inf, Decimal("inf"), Decimal(-99))] == [
        7,
        -8,
        7,
        -8,
        7,
        -8,
    ]
    assert transfer_table(Symmetric(8, 1), [], to).entries.tolist()[:3] == [-8, -8, -8]
    assert transfer_table(TableIndex(0, 2, 0), ["reciprocal"], Symmetric(4, 1)).entries.tolist() == [7, 1, 0]
    assert transfer_table(TableIndex(-1, 2, 0), ["log"], Symmetric(4, 1)).entries.tolist() == [-7, -7, 0, 1]


@pytest.mark.parametrize(
    "scheme, ends, step, zero",
    [
        (MinMax(8, -1, 1), (0, 255), Fraction(2, 255), 128),
        (MinMax(8, 0.5, 2), (0, 255), Fraction(2, 255), 0),
        (MinMax(8, -3, -1, S), (-128, 127), Fraction(3, 255), 127),
        (MinMax(4, -1, 2, Y), (-7, 7), Fraction(3, 14), -2),
        (MinMax(1, 0, 1), (0, 1), Fraction(1), 0),
        (MinMax(8, -0.1, 0.3), (0, 255), (Fraction(0.3) + Fraction(0.1)) / 255, 64),
        (FixedPoint(0, 7), (-128, 127), Fraction(1, 128), 0),
        (FixedPoint(8, 8, U), (0, 65535), Fraction(1, 256), 0),
        (FixedPoint(-2, 9), (-128, 127), Fraction(1, 512), 0),
        (FixedPoint(9, -2, Y), (-127, 127), Fraction(4), 0),
        (FixedPoint(0, 0), (-1, 0), Fraction(1), 0),
        (Symmetric(16, 0.1), (-32767, 32767), Fraction(0.1), 0),
        (TableIndex(-3, 9, 4), (-3, 9), Fraction(1, 16), 0),
    ],
    ids=str,
)
def test_schemes(scheme, ends, step, zero):
    assert (scheme.low, scheme.high, scheme.step, scheme.zero) == (*ends, step, zero)
    assert scheme.dequantize(ends[1]) == (ends[1] - zero) * step
    bounds = scheme.numbers()
    for k in (0, scheme.count // 2, scheme.count - 1):
        assert Fraction(bounds.low[k]) <= scheme.dequantize(scheme.low + k) <= Fraction(bounds.high[k])


def test_the_widths_of_both_sides_and_stored_types():
    for target, dtype in ((Symmetric(8, 1), "i1"), (Symmetric(9, 1), "<i2"), (UniformAffine(8, 1, 0, U), "u1")):
        assert transfer_table(Symmetric(16, 1), ["relu"], target).entries.dtype == np.dtype(dtype)
    assert transfer_table(Symmetric(2, 1), [], UniformAffine(16, 1, 0, U)).entries.dtype == np.dtype("<u2")


@pytest.mark.parametrize(
    "codes, message",
    [
        ([-128], r"codes must be in -127\.\.127, not -128\.\.-128"),
        ([0, 128], "codes must be in"),
        (np.array([2**63], dtype=np.uint64), "codes must be in"),
        ([0.0], "codes must be integers, not float64"),
        ([True], "codes must be integers, not bool"),
    ],
)
def test_look_ups_outside_are_refused(codes, message):
    with pytest.raises(ValueError, match=message):
        transfer_table(Symmetric(8, 1), [], Symmetric(8, 1)).apply(codes)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Symmetric(0, 1), r"bits must be an integer in 1\.\.16, not 0"),
        (lambda: Symmetric(17, 1), "bits must be"),
        (lambda: Symmetric(True, 1), "bits must be"),
        (lambda: Symmetric(8.0, 1), r"bits must be an integer in 1\.\.16, not 8\.0"),
        (lambda: Symmetric(8, 0), "scale must be positive, not 0"),
        (lambda: Symmetric(8, -0.1), "scale must be positive"),
        (lambda: Symmetric(8, math.nan), "scale must be a finite number, not nan"),
        (lambda: Symmetric(8, "1"), "scale must be a finite number, not '1'"),
        (lambda: Symmetric(8, 1, Rounding.STOCHASTIC), "rounding must be NEAREST_EVEN or NEAREST_AWAY"),
        (lambda: UniformAffine(8, 1, 128), r"zero_point must be an integer in -128\.\.127, not 128"),
        (lambda: UniformAffine(8, 1, -128, Y), r"zero_point must be an integer in -127\.\.127"),
        (lambda: UniformAffine(8, 1, 0, "signed"), "codes must be a CodeRange, not 'signed'"),
        (lambda: MinMax(8, 0, 0), "must not be 0 alone"),
        (lambda: MinMax(8, 1, -1), "minimum must be at most maximum=-1, not 1"),
        (lambda: MinMax(8, -math.inf, 1), "minimum must be a finite number"),
        (lambda: MinMax(1, 0, 1, Y), r"bits must be an integer in 2\.\.16, not 1"),
        (lambda: FixedPoint(9, 7), r"integer must be an integer in -7\.\.8, not 9"),
        (lambda: FixedPoint(0, 0, U), "integer must be"),
        (lambda: FixedPoint(0, 2000), "fraction must be"),
        (lambda: TableIndex(1, 0, 0), "last must be"),
        (lambda: TableIndex(0, 1, 32), r"scale must be an integer in -32\.\.31, not 32"),
        (lambda: Symmetric(8, 1).quantize(math.nan), "number must not be NaN"),
        (lambda: Binary16().quantize(Decimal("nan")), "number must not be NaN"),
        (lambda: Symmetric(8, 1).dequantize(-128), "code must be"),
        (lambda: Binary16().dequantize(0x7C00), "code must be a finite binary16 pattern, not 0x7c00"),
        (lambda: TransferTable(Symmetric(2, 1), (), Symmetric(2, 1), [0, 1]), r"must have shape \(3,\), not \(2,\)"),
        (lambda: TransferTable(Symmetric(2, 1), (), Symmetric(2, 1), [0, 1, 2]), r"codes must be in -1\.\.1"),
        (lambda: TransferTable(Symmetric(1, 1), (), Binary16(), [0x7E00]), "codes must be finite binary16 patterns"),
        (lambda: transfer_table(Symmetric(2, 1), [], Binary16()).npu_table(), "must be from TableIndex to Binary16"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "functions, error, message",
    [
        (["sine"], ValueError, "operator must be one of .* not 'sine'"),
        ([("sigmoid", {"alpha": 1})], TypeError, "alpha"),
        ([("elu", {"alpha": math.nan})], ValueError, "alpha of elu must be a finite number, not nan"),
        ([("clip", {"min": 1, "max": 0})], ValueError, "min of clip must be at most max=0, not 1"),
        (["reciprocal", "tanh"], ValueError, r"tanh must be given a finite number, not inf \(for the input 0\)"),
        ([lambda x: math.nan], ValueError, "must give a number, not NaN"),
    ],
)
def test_operators_that_are_refused(functions, error, message):
    with pytest.raises(error, match=message):
        transfer_table(Symmetric(4, 1), functions, Symmetric(4, 1))
