"""The two sides of transfer tables, and what is refused."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given

from concord.golden import binary16
from concord.transfer import Binary16, Codes, TransferTable, table_index, transfer_table
from concord.transfer.targets import numbers_of
from support.random_schemes import S, U, schemes, symmetric

PAIR = symmetric(2, 1)


def test_one_bit():
    assert transfer_table(Codes(1, 1, 0, U), [], Codes(1, 1, 0, U)).entries.tolist() == [0, 1]
    assert transfer_table(Codes(1, 1, 0, S), ["relu"], symmetric(1, 1)).entries.tolist() == [0, 0]
    single = transfer_table(symmetric(1, 1), ["sigmoid"], Binary16())
    assert (
        single.entries.tolist() == [binary16.encode(0.5)]
        and single.apply([0, 0]).tolist() == [binary16.encode(0.5)] * 2
    )
    with pytest.raises(ValueError, match=r"codes must be in 0\.\.0, not 0\.\.1"):
        single.apply([0, 1])


@pytest.mark.parametrize("zero", [0, 255])
def test_zero_point_at_the_ends(zero):
    source = Codes(8, 0.5, zero, U)
    table = transfer_table(source, [("mul", {"by": -1})], Codes(8, 0.5, 255 - zero, U))
    assert table.entries.tolist() == list(range(255, -1, -1))


def test_infinities_saturate():
    to = Codes(4, 2, 3)
    assert transfer_table(symmetric(8, 1), [], to).entries.tolist()[:3] == [-8, -8, -8]
    assert transfer_table(table_index(0, 2, 0), ["reciprocal"], symmetric(4, 1)).entries.tolist() == [7, 1, 0]
    assert transfer_table(table_index(-1, 2, 0), ["log"], symmetric(4, 1)).entries.tolist() == [-7, -7, 0, 1]


@given(schemes)
def test_bounds_on_the_numbers_of_codes(codes):
    bounds = numbers_of(codes)
    for k in (0, codes.count // 2, codes.count - 1):
        assert float(bounds.low[k]) <= codes.dequantize(codes.low + k) <= float(bounds.high[k])


def test_the_widths_of_both_sides_and_stored_types():
    for target, dtype in ((symmetric(8, 1), "i1"), (symmetric(9, 1), "<i2"), (Codes(8, 1, 0, U), "u1")):
        assert transfer_table(symmetric(16, 1), ["relu"], target).entries.dtype == np.dtype(dtype)
    assert transfer_table(PAIR, [], Codes(16, 1, 0, U)).entries.dtype == np.dtype("<u2")


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
        transfer_table(symmetric(8, 1), [], symmetric(8, 1)).apply(codes)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: transfer_table(Codes(17, 1), [], Codes(8, 1)), "codes of a table must have at most 16 bits, not 17"),
        (lambda: transfer_table(Codes(8, 1), [], Codes(32, 1)), "codes of a table must have at most 16 bits, not 32"),
        (lambda: table_index(1, 0, 0), "last must be"),
        (lambda: table_index(0, 1, 32), r"scale must be an integer in -32\.\.31, not 32"),
        (lambda: Binary16().quantize(Decimal("nan")), "number must not be NaN"),
        (lambda: Binary16().dequantize(0x7C00), "code must be a finite binary16 pattern, not 0x7c00"),
        (lambda: TransferTable(PAIR, (), PAIR, [0, 1]), r"must have shape \(3,\), not \(2,\)"),
        (lambda: TransferTable(PAIR, (), PAIR, [0, 1, 2]), r"codes must be in -1\.\.1"),
        (lambda: TransferTable(symmetric(1, 1), (), Binary16(), [0x7E00]), "codes must be finite binary16 patterns"),
        (lambda: transfer_table(Codes(2, 0.3), [], Binary16()).npu_table(), "must be from table_index to Binary16"),
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
        transfer_table(symmetric(4, 1), functions, symmetric(4, 1))
