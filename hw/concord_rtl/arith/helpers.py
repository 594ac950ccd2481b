"""Small expressions shared by the arithmetic units."""

from typing import Any

from amaranth import *

from concord.spec import timing
from concord.spec.formats import BINARY16_NAN, BINARY16_PRECISION, BINARY16_WIDTH

#: Bits of the fraction, and of fraction and exponent field together.
FRACTION = BINARY16_PRECISION - 1
MAGNITUDE = BINARY16_WIDTH - 1

#: Parts of signals.
_Slice = type(Signal(2)[:1])


def stages(held):
    """Return the module of a unit that takes new inputs every cycle, or, if ``held``, keeps them until it is done.

    If inputs are held, what is only passed from stage to stage needs no registers; what is computed has them still, so
    that the unit is as fast and its results are there as late as in a pipeline.
    """
    m: Any = Module()
    m.held = held
    return m


def _is_stored(value):
    """Whether a value is a signal or a part of one: no logic stands before it."""
    value = Value.cast(value)
    return _is_stored(value.value) if isinstance(value, _Slice) else isinstance(value, Signal)


def delay(m, value, cycles, name, *, reset_less=True):
    """Return ``value`` as it was ``cycles`` clock cycles ago. Data need no reset; strobes do (``reset_less=False``).

    In a module with held inputs (see :func:`stages`) values are delayed by one register at most, and by none if no
    logic stands before it.
    """
    if getattr(m, "held", False):
        cycles = min(cycles, 0 if _is_stored(value) else 1)
    for k in range(cycles):
        later = Signal(Value.cast(value).shape(), name=f"{name}_{k + 1}", reset_less=reset_less)
        m.d.sync += later.eq(value)
        value = later
    return value


def register(m, value, name):
    """Return ``value`` as it was one clock cycle ago."""
    return delay(m, value, 1, name)


def leading_zeros(bits):
    """Return the number of zeros above the highest one of ``bits``; meaningless if there is none."""
    width = len(bits)
    if width == 1:
        return Const(0, 0)
    half = 1 << (width - 1).bit_length() - 1
    low, high = bits[: width - half], bits[width - half :]
    below, above = leading_zeros(low), leading_zeros(high)
    empty = ~high.any()
    return Cat(Mux(empty, below, above)[: (half - 1).bit_length()], empty)


def below(count, limit):
    """Whether ``count`` is less than a constant, as a table: shallower than a carry chain for few bits."""
    size = 1 << len(count)
    return (Const((1 << min(max(limit, 0), size)) - 1, size) >> count)[0]


def at_least(value, limit):
    """Whether a value is at least a constant, without a carry chain."""
    value = Value.cast(value)
    if value.shape().signed:  # the order of two's complement is that of numbers with the sign turned
        value, limit = Cat(value[:-1], ~value[-1]), limit + (1 << len(value) - 1)
    if not 0 < limit < 1 << len(value):
        return Const(limit <= 0, 1)
    reached: Value = Const(1, 1)
    for k, bit in enumerate(value):
        reached = bit & reached if limit >> k & 1 else bit | reached
    return reached


def is_special(x):
    """Whether a binary16 pattern is an infinity or a NaN."""
    return x[FRACTION:MAGNITUDE].all()


def is_nan(x):
    """Whether a binary16 pattern is a NaN."""
    return is_special(x) & x[:FRACTION].any()


def is_normal(x):
    """Whether the exponent field is not zero: the hidden bit of the significand."""
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
    """Whether round to nearest even adds one to a number with these last kept and first dropped bits."""
    return guard & (sticky | lsb)


def _greatest(values):
    """The greatest of one, two or four values. Four are all compared at once, which is as fast as two."""
    if len(values) == 1:
        return values[0]
    a, b, *rest = values
    left = a < b
    if not rest:
        return Mux(left, b, a)
    c, d = rest
    right = c < d
    cross = Mux(left, Mux(right, b < d, b < c), Mux(right, a < d, a < c))
    return Mux(cross, Mux(right, d, c), Mux(left, b, a))


def max_tree(m, values, name):
    """Return the greatest of unsigned ``values``, ``concord.spec.timing.max_tree(len(values))`` cycles later.

    The number of values must be a power of two.
    """
    for stage in range(timing.max_tree(len(values))):
        groups = [values[k : k + 4] for k in range(0, len(values), 4)]
        values = [register(m, _greatest(group), f"{name}_{stage}_{k}") for k, group in enumerate(groups)]
    return values[0]
