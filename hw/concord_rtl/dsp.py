"""Registered multiplier: the vendor's DSP block where the family is known, plain logic elsewhere."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec import timing
from concord.spec.multipliers import PAIR_MOST_OTHER, PAIR_MOST_SHARED, pairs_take
from concord_rtl.families import primitives_of


class Multiplier(wiring.Component):
    """Signed product with registered inputs and a registered output.

    Does not stall, and its registers have no reset: the product of a cycle is only worth as much as its operands.
    One product per cycle, ``LATENCY`` cycles later. The DSP block of a known device is instantiated, because synthesis
    does not infer its registers (:mod:`concord_rtl.families`); the registers of plain logic behave the same.

    Parameters
    ----------
    a_width, b_width : int
        Widths of the operands, 1 to ``MOST_BITS``.

    Members
    -------
    a : In(signed(a_width))
        First operand.
    b : In(signed(b_width))
        Second operand.
    o : Out(signed(a_width + b_width))
        Product.
    """

    a: Signal
    b: Signal
    o: Signal

    LATENCY = timing.MULTIPLIER
    #: Greatest width of an operand.
    MOST_BITS = 18

    def __init__(self, a_width: int, b_width: int):
        for name, width in [("a_width", a_width), ("b_width", b_width)]:
            if not isinstance(width, int) or not 1 <= width <= self.MOST_BITS:
                raise ValueError(f"{name} must be in 1..{self.MOST_BITS}, not {width!r}")
        super().__init__({"a": In(signed(a_width)), "b": In(signed(b_width)), "o": Out(signed(a_width + b_width))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        primitives_of(platform).multiplier(m, self.a, self.b, self.o)
        return m


class PairMultiplier(wiring.Component):
    """Two signed products of one shared operand, registered.

    Does not stall, and its registers have no reset. One pair of products per cycle, ``LATENCY`` cycles later; operands
    are registered first, so any logic may stand before them. A device whose multipliers are wide enough makes both
    products in one of them (:mod:`concord_rtl.families.shared_product`).

    Codes are symmetric: the least number of two's complement is none of them, and with it as an operand both products
    are undefined.

    Parameters
    ----------
    a_width, b_width : int
        Widths of the shared operand and of the others, see :func:`concord.spec.multipliers.pairs_take`.
    in_logic : bool
        Make the products without a multiplier of the device.

    Members
    -------
    a : In(signed(a_width))
        The shared operand.
    b : In(ArrayLayout(signed(b_width), 2))
        The other operands.
    o : Out(ArrayLayout(signed(a_width + b_width - 1), 2))
        Products of ``a`` and each of ``b``.
    """

    a: Signal
    b: data.View
    o: data.View

    LATENCY = timing.PAIR_MULTIPLIER

    def __init__(self, a_width: int, b_width: int, *, in_logic: bool = False):
        self.in_logic = in_logic
        if not pairs_take(a_width, b_width):
            most = f"2..{PAIR_MOST_SHARED} and 2..{PAIR_MOST_OTHER}"
            raise ValueError(f"widths must be in {most}, not {a_width!r} and {b_width!r}")
        product = data.ArrayLayout(signed(a_width + b_width - 1), 2)
        super().__init__({"a": In(signed(a_width)), "b": In(data.ArrayLayout(signed(b_width), 2)), "o": Out(product)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cells = primitives_of(platform)
        build = cells.pair_in_logic if self.in_logic else cells.pair_multiplier
        build(m, self.a, list(self.b), list(self.o))
        return m
