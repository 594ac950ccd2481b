"""A signed product in carry chains, of which every bit adds two partial products: where multipliers run out."""

from __future__ import annotations

from amaranth import *

from concord_rtl.families.carry import CarryBit, always, both, both_less
from concord_rtl.families.primitives import Primitives
from concord_rtl.parts.stages import delay

#: Cycles from the operands to the product.
LATENCY = 4
#: Greatest width of the second operand.
MOST_B = 8


def logic_product(m: Module, a: Value, b: Value, o: Value, name: str, cells: Primitives) -> None:
    """``o`` is the signed product of ``a`` and ``b`` four cycles before; ``b`` has 2 to :data:`MOST_B` bits.

    ``cells`` builds the carry chains; ``name`` begins the names of everything.
    """
    factor = Signal.like(a, name=f"{name}_a", reset_less=True)
    digits = Signal.like(b, name=f"{name}_b", reset_less=True)
    m.d.sync += [factor.eq(a), digits.eq(b)]
    terms = []
    if len(b) % 2:
        terms.append((0, Mux(digits[0], factor, 0).as_signed()))
    for n in range(len(b) % 2, len(b), 2):
        terms.append((n, _two_rows(m, factor, digits[n], digits[n + 1], n + 2 == len(b), f"{name}_rows{n}_", cells)))
    levels = 1
    while True:
        terms = [(at, delay(m, value, 1, f"{name}_{levels}_{at}")) for at, value in terms]
        levels += 1
        if len(terms) == 1:
            break
        added = [_sum(*terms[k : k + 2]) for k in range(0, len(terms) - 1, 2)]
        terms = added + terms[len(terms) & ~1 :]
    ((_, value),) = terms
    m.d.comb += o.eq(delay(m, value, LATENCY - levels, f"{name}_late"))


def _two_rows(m: Module, a: Value, u: Value, v: Value, signs: bool, name: str, cells: Primitives) -> Value:
    """``a * (u + 2 * v)``, or ``a * (u - 2 * v)`` if ``v`` is the sign."""
    wide = [a[min(i, len(a) - 1)] for i in range(len(a) + 2)]  # places beyond the sign repeat it
    places = range(1, len(wide))
    if signs:
        chain = [CarryBit(always, ()), *(CarryBit(both_less, (wide[i - 1], v, wide[i], u)) for i in places)]
        rest = cells.carry_chain(m, name, chain)[1:]
    else:
        rest = cells.carry_chain(m, name, [CarryBit(both, (wide[i], u, wide[i - 1], v)) for i in places])
    return Cat(a[0] & u, rest).as_signed()


def _sum(low: tuple[int, Value], high: tuple[int, Value]) -> tuple[int, Value]:
    """Sum of two signed numbers at their places; bits below the higher place pass."""
    (at, below), (then, above) = low, high
    return at, Cat(below[: then - at], below[then - at :].as_signed() + above).as_signed()
