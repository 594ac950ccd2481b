"""Sums of functions, as plain logic and as carry chains, against integers."""

import random

import pytest
from amaranth import Cat, Const, Module, Signal

from concord_rtl.families.carry import plain_chain, summed
from concord_rtl.families.ecp5.primitives import Ecp5Primitives
from concord_rtl.families.primitives import Primitives
from support.bench import simulate

BITS = 6
#: Terms that a place of a chain has room for.
MOST = 3
FUNCTIONS = {
    "negated": (lambda a, sign: a ^ sign, 2),
    "limited": (lambda limit, whole, high: limit & (whole | high), 3),
    "masked": (lambda bit, keep, sign: bit & keep ^ sign, 3),
    "itself": (lambda a: a, 1),
    "complement": (lambda a: ~a, 1),
}


class Chains(Ecp5Primitives):
    """The chains of ECP5, whose cells are plain logic."""

    def carry_chain(self, m, name, bits):
        return plain_chain(bits)


@pytest.mark.parametrize("cells", [Primitives(), Chains()], ids=["plain", "chains"])
@pytest.mark.parametrize(
    ("name", "with_first"),
    [(name, first) for name, (_, count) in FUNCTIONS.items() for first in (False, True) if count + first <= MOST],
)
def test_sums_are_those_of_integers(name, with_first, cells):
    function, count = FUNCTIONS[name]
    terms, carry, first = [Signal(BITS, name=f"term{k}") for k in range(count)], Signal(), Signal(BITS)
    m, total = Module(), Signal(BITS + 3)
    m.d.comb += total.eq(cells.sum_of_function(m, "sum", function, terms, carry, first if with_first else None))
    m.d.sync += Signal(name="clocked").eq(carry)  # the simulator wants a clock
    rng = random.Random(name)

    async def bench(ctx):
        for _ in range(300):
            values = [rng.choice([0, 2**BITS - 1, rng.getrandbits(BITS)]) for _ in terms]
            one, added = rng.getrandbits(1), rng.getrandbits(BITS) * with_first
            for signal, value in zip([*terms, carry, first], [*values, one, added], strict=True):
                ctx.set(signal, value)
            await ctx.delay(1e-7)
            assert ctx.get(total) == (added + function(*values) + one) % 2**BITS

    simulate(m, bench)


def test_a_place_of_a_chain_has_three_terms():
    terms = [Const(0, 2)] * 4
    for first, many, most in ((None, 4, 3), (Const(0, 2), 3, 2), (None, 0, 3)):
        with pytest.raises(ValueError, match=rf"terms must be 1 to {most} values, not {many}"):
            summed(lambda *bits: Cat(bits), first, terms[:many], Const(0))
