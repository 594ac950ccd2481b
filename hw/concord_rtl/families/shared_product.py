"""Two products with a shared operand in one multiplier of 18 bits: ``a * (b0 + b1 * 2**k) = a*b0 + a*b1 * 2**k``.

Their bits overlap. How far ``a * b0`` reaches into ``a * b1`` follows from the lowest bits of ``a * b1``, which little
logic makes beside the multiplier.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth import *

from concord_rtl.families.carry import (
    CarryBit,
    at_least,
    both,
    less_or_equal,
    not_plus_not,
    plus,
    plus_not,
    sum_of_three,
)
from concord_rtl.families.primitives import Primitives

#: Bits of an operand of the multiplier.
BITS = 18


def distance(a_width: int, b_width: int) -> int:
    """Places k between the operands: at most ``a_width + b_width - 2``, not beyond the sign of the lower product."""
    return min(BITS - b_width, a_width + b_width - 2)


def shared_product(m: Module, a: Value, b: Sequence[Value], o: Sequence[Value], cells: Primitives) -> None:
    """Both ``o`` are the products of ``a`` and ``b`` four cycles before, if these are symmetric codes.

    ``cells`` builds the multiplier and the carry chains.
    """
    bits, k = len(o[0]), distance(len(a), len(b[0]))
    over = bits - k  # bits in which the products overlap, the sign of the lower one among them

    # Operands: the upper one is one less where the lower one is negative. Symmetric codes leave room for that.
    factor = Signal.like(a, name="a", reset_less=True)
    low = Signal.like(b[0], name="b0", reset_less=True)
    high = Signal.like(b[1], name="b1", reset_less=True)
    packed = Cat(low, low[-1].replicate(k - len(low)), high)
    m.d.sync += [factor.eq(a), low.eq(b[0]), high.eq(b[1] - b[0][-1])]

    # The lowest bits of the upper product, as late as the product of the multiplier.
    unit = Signal(over, name="unit", reset_less=True)
    wide = Signal(over)
    m.d.sync += unit.eq(b[1].as_signed())
    m.d.comb += wide.eq(factor)
    rest = _lowest(m, wide, unit, cells)

    product = Signal(signed(len(a) + len(packed)))
    m.submodules.shared = shared = Module()
    cells.multiplier(shared, factor, packed.as_signed(), product)
    _separate(m, product, rest, o, k, cells)


def _lowest(m: Module, a: Value, u: Value, cells: Primitives) -> Value:
    """The product of two numbers of few bits modulo ``2**len(a)``, two cycles later."""
    width = len(a)
    sums = []
    for n in range(0, width, 2):
        # Two rows of partial products; nothing is added to the lowest bit.
        first = a[0] & u[n]
        if n + 1 < width:
            chain = [CarryBit(both, (a[i + 1], u[n], a[i], u[n + 1])) for i in range(width - n - 1)]
            first = Cat(first, cells.carry_chain(m, f"rows{n}_", chain))
        row = Signal(width - n, name=f"rows{n}", reset_less=True)
        m.d.sync += row.eq(first)
        sums.append((n, row))
    rest = Signal(width, name="rest", reset_less=True)
    m.d.sync += rest.eq(_total(m, sums, width, cells))
    return rest


def _total(m: Module, sums: list[tuple[int, Signal]], width: int, cells: Primitives) -> Value:
    """Sum of rows of which each begins at its own place; the last one may be a single bit at the top."""
    (_, lowest), *others = sums
    top = others.pop()[1] if len(others) == 2 and width % 2 else None
    if len(others) != 1:
        return sum((row << at for at, row in others), lowest)
    at, row = others[0]
    chain = [CarryBit(plus, (lowest[i], row[i - at])) for i in range(at, width)]
    if top is not None:
        chain[-1] = CarryBit(sum_of_three, (lowest[-1], row[-1], top))
    return Cat(lowest[:at], cells.carry_chain(m, "total", chain))


def _separate(m: Module, product: Value, rest: Value, o: Sequence[Value], k: int, cells: Primitives) -> None:
    """Take both products out of their sum, a cycle later; ``rest`` are the lowest bits of the upper one.

    In one subtraction: its lowest bits are what of the lower product is beyond ``k`` bits, counted from the least
    value, its other bits are the rest of the upper product.
    """
    bits, over = len(o[0]), len(rest)
    upper = product[k : k + bits]
    sign = upper[over - 1]
    chain = [CarryBit(at_least if over > 1 else less_or_equal, (upper[0], rest[0]))]
    chain += [CarryBit(plus_not, (upper[i], rest[i])) for i in range(1, over - 1)]
    if over > 1:
        chain.append(CarryBit(not_plus_not, (sign, rest[over - 1])))
    chain += [CarryBit(plus_not, (upper[i], sign)) for i in range(over, bits)]
    parts = cells.carry_chain(m, "parts", chain)
    beyond = Cat(upper[0] ^ rest[0], parts[1 : over - 1], ~parts[over - 1]) if over > 1 else upper[0] ^ rest[0]
    lower, higher = (Signal.like(product, name=f"o{n}", reset_less=True) for n, product in enumerate(o))
    m.d.sync += [lower.eq(Cat(product[:k], beyond)), higher.eq(Cat(rest, parts[over:]))]
    m.d.comb += [o[0].eq(lower), o[1].eq(higher)]
