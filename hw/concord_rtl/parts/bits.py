"""Expressions of bits that are shallower than a carry chain."""

from amaranth import *


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
    """Bit that is set if ``count`` is less than a constant, as a table: shallower than a carry chain for few bits."""
    size = 1 << len(count)
    return (Const((1 << min(max(limit, 0), size)) - 1, size) >> count)[0]


def at_least(value, limit):
    """Bit that is set if a value is at least a constant, without a carry chain."""
    value = Value.cast(value)
    if value.shape().signed:  # the order of two's complement is that of numbers with the sign turned
        value, limit = Cat(value[:-1], ~value[-1]), limit + (1 << len(value) - 1)
    if not 0 < limit < 1 << len(value):
        return Const(limit <= 0, 1)
    reached: Value = Const(1, 1)
    for k, bit in enumerate(value):
        reached = bit & reached if limit >> k & 1 else bit | reached
    return reached
