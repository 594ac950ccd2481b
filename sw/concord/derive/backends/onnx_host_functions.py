"""The exponential function of the host (:mod:`concord.hostmath`) as an ONNX function: part of :mod:`.onnx_functions`.

HostExp
    The function of DOUBLE, with the bits of :func:`concord.hostmath.host_exp`. ``powers`` are :data:`POWERS`: the
    result is multiplied by two of them, the first product is exact.
"""

from __future__ import annotations

import numpy as np

from concord.hostmath import EXP_COEFFICIENTS, EXP_RANGE, LN2_HIGH, LN2_LOW, LOG2_E

#: Halves of the exponents of two that occur, and these powers of two.
_HALVES = np.arange(-540, 515)
POWERS = np.ldexp(1.0, _HALVES)


def _constant(name: str, value: float) -> str:
    return f"{name} = Constant <value = double {{{value!r}}}> ()\n"


def _horner() -> str:
    lines = _constant("p0", EXP_COEFFICIENTS[0])
    for number, coefficient in enumerate(EXP_COEFFICIENTS[1:], 1):
        lines += _constant(f"c{number}", coefficient)
        lines += f"t{number} = Mul (p{number - 1}, r)\np{number} = Add (t{number}, c{number})\n"
    return lines


_EXP = (
    _constant("least", EXP_RANGE[0])
    + _constant("greatest", EXP_RANGE[1])
    + _constant("log2_e", LOG2_E)
    + _constant("ln2_high", LN2_HIGH)
    + _constant("ln2_low", LN2_LOW)
    + _constant("one_half", 0.5)
    + _constant("zero", 0.0)
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
    + _horner()
    + f"""
    nan = IsNaN (k)
    whole = Where (nan, zero, k)
    halved = Mul (whole, one_half)
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

HOST_TEXTS = {"HostExp": ("(x, powers) => (y)", _EXP)}
