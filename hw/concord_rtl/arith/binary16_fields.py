"""Fields of binary16 patterns, their order, and rounding."""

from amaranth import *

from concord.spec.formats import BINARY16_NAN, BINARY16_PRECISION, BINARY16_WIDTH

#: Bits of the fraction, and of fraction and exponent field together.
FRACTION = BINARY16_PRECISION - 1
MAGNITUDE = BINARY16_WIDTH - 1


def is_special(x):
    """Bit that is set if a binary16 pattern is an infinity or a NaN."""
    return x[FRACTION:MAGNITUDE].all()


def is_nan(x):
    """Bit that is set if a binary16 pattern is a NaN."""
    return is_special(x) & x[:FRACTION].any()


def is_normal(x):
    """Bit that is set if the exponent field is not zero: the hidden bit of the significand."""
    return x[FRACTION:MAGNITUDE].any()


def significand(x):
    """The significand of a finite binary16 pattern, hidden bit included."""
    return Cat(x[:FRACTION], is_normal(x))


def exponent(x):
    """The exponent field, 1 for subnormal numbers: the number is ``significand * 2**(exponent - 25)``."""
    return Cat(x[FRACTION] | ~is_normal(x), x[FRACTION + 1 : MAGNITUDE])


def order_key(x):
    """Unsigned number that orders binary16 patterns as -inf < ... < -0 < +0 < ... < inf < +NaN."""
    return Cat(x[:MAGNITUDE] ^ x[MAGNITUDE].replicate(MAGNITUDE), ~x[MAGNITUDE])


def from_order_key(key):
    """Inverse of :func:`order_key`."""
    return Cat(key[:MAGNITUDE] ^ (~key[MAGNITUDE]).replicate(MAGNITUDE), ~key[MAGNITUDE])


def quiet(x):
    """``x`` with the canonical NaN for every NaN."""
    return Mux(is_nan(x), BINARY16_NAN, x)


def round_up(lsb, guard, sticky):
    """Bit that is set if round to nearest even adds one to a number with these last kept and first dropped bits."""
    return guard & (sticky | lsb)
