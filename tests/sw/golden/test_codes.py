"""Codes, the one format of numbers that are not blocks: against the definition, by looking at every code."""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.golden.codes import CODE_ROUNDINGS, CodeRange, Codes
from concord.golden.rounding import nearest_integers, round_floats, round_number
from concord.spec.formats import Rounding
from support.random_schemes import AWAY, EVEN, S, U, Y, schemes

FLOOR = Rounding.FLOOR
THIRD = Fraction(1, 3)


def whole(number, rounding):
    """The integer of a number by looking at those around it: below, or the nearest one."""
    near = [math.floor(number) + d for d in (-1, 0, 1, 2)]
    if rounding is FLOOR:
        return max(n for n in near if n <= number)
    tie = (lambda n: n % 2) if rounding is EVEN else (lambda n: -abs(n))
    return min(near, key=lambda n: (abs(number - n), tie(n)))


def code_of(codes, number, index=0):
    """The code of a number by the definition."""
    code = whole(number / codes.scales[index], codes.rounding) + codes.zeros[index]
    return sorted((codes.low, code, codes.high))[1]


def few_bits():
    """All codes of 1 to 3 bits, with every zero point and some scales."""
    for bits, used, rounding in product((1, 2, 3), (U, S, Y, (-1, 0), (0, 1)), CODE_ROUNDINGS):
        ends = used.ends(bits) if isinstance(used, CodeRange) else used
        for zero, scale in product(range(ends[0], ends[1] + 1), (1, THIRD, Fraction(0.1))):
            yield Codes(bits, scale, zero, used, rounding)


def test_numbers_exhaustively():
    for codes in few_bits():
        for quarter in range(-40, 41):
            number = quarter * codes.scale / 4
            assert codes.quantize(number) == code_of(codes, number), (codes, quarter)
        for code in range(codes.low, codes.high + 1):
            assert codes.dequantize(code) == (code - codes.zero) * codes.scale
            assert codes.quantize(codes.dequantize(code)) == code


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [2.0**-3, 1.0, 4.0])
def test_arrays_exhaustively(kind, scale):
    """Quotients by powers of two are exact, so arrays have the codes of their numbers."""
    quarters = np.arange(-40, 41) * (scale / 4)
    for known in few_bits():
        codes = replace(known, scales=(Fraction(scale),))
        want = [codes.quantize(x) for x in quarters.tolist()]
        got = codes.codes_of(quarters.astype(kind))
        assert got.dtype == np.int64 and got.tolist() == want
        numbers = [float(codes.dequantize(code)) for code in want]
        assert codes.rounded(quarters).tolist() == numbers and not np.signbit(codes.rounded([-0.0])).any()


@given(schemes, st.fractions())
def test_quantisation_takes_the_nearest_code(codes, x):
    code = codes.quantize(x)
    error = abs(codes.dequantize(code) - x)
    others = (min(max(code + d, codes.low), codes.high) for d in (-1, 1))
    assert all(error <= abs(codes.dequantize(other) - x) for other in others)
    assert codes.quantize(codes.dequantize(code)) == code


@pytest.mark.parametrize("rounding", CODE_ROUNDINGS)
@pytest.mark.parametrize("seed", range(4))
def test_a_scale_for_each_index(seed, rounding):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 5, 3))
    axis = int(rng.integers(3))
    powers, zeros = rng.integers(-4, 4, shape[axis]), rng.integers(-8, 8, shape[axis])
    codes = Codes(4, 2.0**powers, zeros, S, rounding, axis)
    values = rng.integers(-60, 60, (5, *shape)) / 16
    got = codes.codes_of(values)
    for at, value in np.ndenumerate(values):
        k = at[axis + 1]
        assert got[at] == code_of(codes, Fraction(value), k)
        assert codes.rounded(values)[at] == (got[at] - zeros[k]) * 2.0 ** powers[k]
    assert codes.exponents == tuple(powers) and codes.zero_points.tolist() == zeros.tolist()
    assert codes.span[0].tolist() == ((-8 - zeros) * 2.0**powers).tolist()
    assert codes.offsets[1].tolist() == (7 - zeros).tolist()
    for name in ("scale", "zero"):
        with pytest.raises(ValueError, match="too many values to unpack"):
            getattr(replace(codes, scales=(*codes.scales, THIRD), zeros=(*codes.zeros, 0)), name)


def test_a_quotient_is_in_the_type_of_the_array():
    """The middle between two codes in binary32 is none in binary64."""
    codes = Codes(8, float(np.float32(0.1)))
    x = np.float32(0.1) * np.arange(-120, 120, 0.25, dtype=np.float32)
    for kind in (np.float32, np.float64):
        quotients = x.astype(kind) / kind(np.float32(0.1))
        assert codes.codes_of(x.astype(kind)).tolist() == [whole(Fraction(float(q)), EVEN) for q in quotients]
    assert not np.array_equal(codes.codes_of(x), codes.codes_of(x.astype(np.float64)))


@pytest.mark.parametrize("rounding", CODE_ROUNDINGS)
def test_roundings(rounding):
    eighths = np.arange(-65, 66) / 8
    want = [round_number(Fraction(x), rounding) for x in eighths]
    assert want == [whole(Fraction(x), rounding) for x in eighths]
    for kind in (np.float32, np.float64):
        assert round_floats(eighths.astype(kind), rounding).tolist() == want
    assert nearest_integers(eighths, rounding).tolist() == want
    assert nearest_integers([math.inf, -1e300], rounding).tolist() == [2**62, -(2**62)]
    almost = np.nextafter(0.5, 0)  # plus one half it is 1 in binary64
    assert round_floats(np.array([almost, -almost]), rounding).tolist() == [0, -1 if rounding is FLOOR else 0]


def test_ties_and_saturation():
    to = Codes(4, 2, 3)  # the zero point is odd: rounding comes first
    assert [to.quantize(x) for x in (1, 3, 5, -1, -3)] == [3, 5, 5, 3, 1]
    away = replace(to, rounding=AWAY)
    assert [away.quantize(x) for x in (1, 3, 5, -1, -3)] == [4, 5, 6, 2, 1]
    ends = (1e9, -1e9, math.inf, -math.inf, Decimal("inf"), Decimal(-99))
    assert [to.quantize(x) for x in ends] == [7, -8] * 3
    for codes in (to, away, replace(to, rounding=FLOOR)):
        assert codes.codes_of(np.array([1e9, -1e9, math.inf, -math.inf])).tolist() == [7, -8] * 2
        assert codes.codes_of(np.float32([3e38, -3e38])).tolist() == [7, -8]
    assert np.isnan(to.rounded(np.array([math.nan])))


@pytest.mark.parametrize("bits", [53, 54, 60, 62, 63, 64])
def test_wide_codes(bits):
    codes, top = Codes(bits, 1), 2 ** (bits - 1)
    numbers = [top - 1, top, -top, -top - 1, 2.0**52 + 1, -(2.0**52) - 1]
    want = [top - 1, top - 1, -top, -top, *(min(max(s * (2**52 + 1), -top), top - 1) for s in (1, -1))]
    assert [codes.quantize(x) for x in numbers] == want
    assert codes.codes_of([1e30, -1e30, 2.0**51, 3.0]).tolist() == [top - 1, -top, 2**51, 3]
    assert codes.dtype == np.dtype("<i8")
    if bits < 63:
        assert Codes(bits, 1, 3).codes_of([1e30, -1e30, -1.0]).tolist() == [top - 1, -top, 2]


@pytest.mark.parametrize(
    "codes, ends, scale, zero",
    [
        (Codes.of_range(8, -1, 1), (0, 255), Fraction(2, 255), 128),
        (Codes.of_range(8, 0.5, 2), (0, 255), Fraction(2, 255), 0),
        (Codes.of_range(8, -3, -1, S), (-128, 127), Fraction(3, 255), 127),
        (Codes.of_range(4, -1, 2, Y), (-7, 7), Fraction(3, 14), -2),
        (Codes.of_range(1, 0, 1), (0, 1), Fraction(1), 0),
        (Codes.of_range(8, -0.1, 0.3), (0, 255), (Fraction(0.3) + Fraction(0.1)) / 255, 64),
        (Codes.fixed_point(0, 7), (-128, 127), Fraction(1, 128), 0),
        (Codes.fixed_point(8, 8, U), (0, 65535), Fraction(1, 256), 0),
        (Codes.fixed_point(-2, 9), (-128, 127), Fraction(1, 512), 0),
        (Codes.fixed_point(9, -2, Y), (-127, 127), Fraction(4), 0),
        (Codes.fixed_point(0, 0), (-1, 0), Fraction(1), 0),
        (Codes.symmetric(16, 0.1), (-32767, 32767), Fraction(0.1), 0),
        (Codes(8, 0.5, 0, (-32, 31)), (-32, 31), Fraction(1, 2), 0),
        (Codes(64, 1, 0, U), (0, 2**64 - 1), 1, 0),
    ],
    ids=str,
)
def test_what_codes_stand_for(codes, ends, scale, zero):
    assert (codes.low, codes.high, codes.scale, codes.zero) == (*ends, scale, zero)
    assert codes.dequantize(ends[1]) == (ends[1] - zero) * scale
    assert codes.count == ends[1] - ends[0] + 1 and codes.signed == (ends[0] < 0)
    assert np.iinfo(codes.dtype).min <= codes.low and codes.high <= np.iinfo(codes.dtype).max
    powers = {Fraction(2) ** n: n for n in range(-20, 20)}
    assert codes.exponents == ((powers[scale],) if scale in powers else None)


def test_equal_codes_are_equal_however_they_are_made():
    assert Codes(8, 0.5) == Codes(8, [Fraction(1, 2)], np.array(0), (-128, 127)) == Codes.fixed_point(6, 1)
    assert hash(Codes(8, 0.5)) == hash(Codes(8, np.float32(0.5), np.int64(0)))
    assert Codes(8, [0.5, 1], 3, axis=1).zeros == (3, 3)
    others = [(9, 0.5), (8, 0.25), (8, 0.5, 1), (8, 0.5, 0, U), (8, 0.5, 0, S, AWAY), (8, 0.5, 0, S, EVEN, 0)]
    assert all(Codes(8, 0.5) != Codes(*other) for other in others)
    assert replace(Codes(8, 0.5), bits=4).ends == (-8, 7)


@pytest.mark.parametrize(
    "codes, text",
    [
        (Codes(8, 0.125, 3, U), "uint8, zero point 3, scale 0.125"),
        (Codes(16, np.float32(0.05)), "int16, scale 0.05"),
        (Codes(4, [0.5, 0.25], [1, -1], axis=0), "int4, zero point -1 to 1, scale 0.25 to 0.5"),
    ],
)
def test_codes_as_a_text(codes, text):
    assert str(codes) == text


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Codes(0, 1), r"bits must be an integer in 1\.\.64, not 0"),
        (lambda: Codes(65, 1), "bits must be"),
        (lambda: Codes(True, 1), "bits must be"),
        (lambda: Codes(8.0, 1), r"bits must be an integer in 1\.\.64, not 8\.0"),
        (lambda: Codes(8, 0), "scale must be positive, not 0"),
        (lambda: Codes(8, [1, -0.1], axis=0), "scale must be positive"),
        (lambda: Codes(8, math.nan), "scale must be a finite number, not nan"),
        (lambda: Codes(8, "1"), "scale must be a finite number, not '1'"),
        (lambda: Codes(8, []), "scales must be one, or one for each index of an axis, not 0"),
        (lambda: Codes(8, [1, 2]), "scales must be one, or one for each index of an axis, not 2 for axis None"),
        (lambda: Codes(8, [1, 2], [0, 0, 0], axis=0), "scales must be one, or one for each index"),
        (lambda: Codes(8, 1, rounding=Rounding.STOCHASTIC), "rounding must be NEAREST_EVEN, NEAREST_AWAY or FLOOR"),
        (lambda: Codes(8, 1, 128), r"zero point must be an integer in -128\.\.127, not 128"),
        (lambda: Codes(8, 1, -128, Y), r"zero point must be an integer in -127\.\.127"),
        (lambda: Codes(8, 1, 0.5), "zero point must be an integer"),
        (lambda: Codes(8, 1, 0, "signed"), "range must be a CodeRange or the least and the greatest code"),
        (lambda: Codes(8, 1, -156, (0, 100)), r"zero point must be an integer in -155\.\.255, not -156"),
        (lambda: Codes(8, 1, 0, (-256, -1)), r"least code must be an integer in -255\.\.255, not -256"),
        (lambda: Codes(8, 1, 0, (-64, 192)), r"greatest code must be an integer in -64\.\.191, not 192"),
        (lambda: Codes.of_range(8, 0, 0), "must not be 0 alone"),
        (lambda: Codes.of_range(8, 1, -1), "minimum must be at most maximum=-1, not 1"),
        (lambda: Codes.of_range(8, -math.inf, 1), "minimum must be a finite number"),
        (lambda: Codes.of_range(1, 0, 1, Y), r"bits must be an integer in 2\.\.64, not 1"),
        (lambda: Codes.fixed_point(57, 7), r"integer must be an integer in -7\.\.56, not 57"),
        (lambda: Codes.fixed_point(0, 0, U), "integer must be"),
        (lambda: Codes.fixed_point(0, 2000), "fraction must be"),
        (lambda: Codes(8, 1).quantize(math.nan), "number must not be NaN"),
        (lambda: Codes(8, 1).codes_of([math.nan]), "inputs must be numbers, not NaN"),
        (lambda: Codes.symmetric(8, 1).dequantize(-128), "code must be"),
        (lambda: Codes.symmetric(8, 1).check([-128]), r"codes must be in -127\.\.127, not -128\.\.-128"),
        (lambda: Codes(8, 1).check([0.0]), "codes must be integers, not float64"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
