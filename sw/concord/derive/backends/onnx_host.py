"""Exponential function and logarithm of :mod:`concord.golden.host_math` in ONNX: part of :mod:`.onnx_functions`.

HostExp
    The function of DOUBLE, with the bits of :func:`concord.golden.host_math.host_exp`. ``powers`` are :data:`POWERS`:
    the result is multiplied by two of them, the first product is exact.
HostLog
    The logarithm of DOUBLE, with the bits of :func:`concord.golden.host_math.host_log`. No operator of ONNX splits a
    number into mantissa and exponent, so powers of two take it to the range from 1 to 2 in steps, which are exact.
"""

from __future__ import annotations

import math

import numpy as np

from concord.golden.host_math import EXP_COEFFICIENTS, EXP_RANGE, LN2_HIGH, LN2_LOW, LOG2_E, LOG_COEFFICIENTS, ROOT_HALF

#: Halves of the exponents of two that occur, and these powers of two.
_HALVES = np.arange(-540, 515)
POWERS = np.ldexp(1.0, _HALVES)


def _constant(name: str, value: float) -> str:
    return f"{name} = Constant <value = double {{{value!r}}}> ()\n"


def _horner(coefficients: tuple[float, ...], x: str) -> str:
    lines = _constant("p0", coefficients[0])
    for number, coefficient in enumerate(coefficients[1:], 1):
        lines += _constant(f"c{number}", coefficient)
        lines += f"t{number} = Mul (p{number - 1}, {x})\np{number} = Add (t{number}, c{number})\n"
    return lines


def _steps() -> str:
    """``m0`` and ``k0`` to the last ``m`` and ``k``: numbers from 1 up to 2, and what they were divided by."""
    # A subnormal number becomes a normal one first. Below a limit: a factor, and the limit; then above it.
    down = [(-1022, 54), *((1 - (1 << n), 1 << n) for n in reversed(range(10)))]
    up = [(1 << n, -(1 << n)) for n in reversed(range(10))]
    lines = ""
    for number, (limit, shift) in enumerate([*down, *up]):
        lines += _constant(f"l{number}", 2.0**limit) + _constant(f"f{number}", 2.0**shift)
        lines += _constant(f"n{number}", float(-shift))
        compare = "Less" if shift > 0 else "GreaterOrEqual"
        lines += f"""
            w{number} = {compare} (m{number}, l{number})
            a{number} = Where (w{number}, f{number}, unity)
            b{number} = Where (w{number}, n{number}, zero)
            m{number + 1} = Mul (m{number}, a{number})
            k{number + 1} = Add (k{number}, b{number})
        """
    return lines + f"m = Identity (m{len(down + up)})\nk = Identity (k{len(down + up)})\n"


#: Constants of both functions.
_COMMON = (
    _constant("zero", 0.0) + _constant("down", 0.5) + _constant("ln2_high", LN2_HIGH) + _constant("ln2_low", LN2_LOW)
)

_EXP = (
    _constant("least", EXP_RANGE[0])
    + _constant("greatest", EXP_RANGE[1])
    + _constant("log2_e", LOG2_E)
    + _COMMON
    + _constant("first", float(-_HALVES[0]))
    + """
    above = Max (x, least)
    limited = Min (above, greatest)
    scaled = Mul (limited, log2_e)
    k = Round (scaled)
    high = Mul (k, ln2_high)
    low = Mul (k, ln2_low)
    most = Sub (limited, high)
    r = Sub (most, low)
    """
    + _horner(EXP_COEFFICIENTS, "r")
    + f"""
    nan = IsNaN (k)
    whole = Where (nan, zero, k)
    halved = Mul (whole, down)
    a = Floor (halved)
    b = Sub (whole, a)
    place_a = Add (a, first)
    place_b = Add (b, first)
    index_a = Cast <to = 7> (place_a)
    index_b = Cast <to = 7> (place_b)
    power_a = Gather (powers, index_a)
    power_b = Gather (powers, index_b)
    nearly = Mul (p{len(EXP_COEFFICIENTS) - 1}, power_a)
    y = Mul (nearly, power_b)
    """
)

_LOG = (
    _COMMON
    + _constant("unity", 1.0)
    + _constant("two", 2.0)
    + _constant("root", 2.0 * ROOT_HALF)
    + _constant("infinity", math.inf)
    + _constant("least", -math.inf)
    + """
    positive = Greater (x, zero)
    finite = Less (x, infinity)
    usual = And (positive, finite)
    m0 = Where (usual, x, unity)
    k0 = Mul (m0, zero)
    """
    + _steps()
    + """
    above = GreaterOrEqual (m, root)
    factor = Where (above, down, unity)
    more = Where (above, unity, zero)
    mantissa = Mul (m, factor)
    exponent = Add (k, more)
    f = Sub (mantissa, unity)
    wide = Add (f, two)
    s = Div (f, wide)
    z = Mul (s, s)
    """
    + _horner(LOG_COEFFICIENTS, "z")
    + f"""
    halved = Mul (f, down)
    h = Mul (halved, f)
    rest = Mul (p{len(LOG_COEFFICIENTS) - 1}, z)
    inner = Add (h, rest)
    scaled = Mul (s, inner)
    high = Mul (exponent, ln2_high)
    low = Mul (exponent, ln2_low)
    added = Add (scaled, low)
    less = Sub (h, added)
    taken = Sub (less, f)
    log = Sub (high, taken)
    below = LessOrEqual (x, zero)
    end = Where (below, least, x)
    y = Where (usual, log, end)
    """
)

HOST_TEXTS = {"HostExp": ("(x, powers) => (y)", _EXP), "HostLog": ("(x) => (y)", _LOG)}
