"""Registered multiplier: the vendor's DSP block where the family is known, plain logic elsewhere."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.multipliers import PAIR_MOST_OTHER, PAIR_MOST_SHARED, pairs_take
from concord_rtl.families import primitives_of
from concord_rtl.parts.component import Component, Input, Output

#: Greatest width of an operand of :class:`Multiplier` and :class:`DualMultiplier`.
MOST_BITS = 18


def check_widths(a_width: int, b_width: int) -> None:
    """Raise ``ValueError`` if operands cannot have these widths."""
    for name, width in [("a_width", a_width), ("b_width", b_width)]:
        if not isinstance(width, int) or not 1 <= width <= MOST_BITS:
            raise ValueError(f"{name} must be in 1..{MOST_BITS}, not {width!r}")


class Multiplier(Component):
    """Signed product with registered inputs and a registered output.

    Does not stall, and its registers have no reset: the product of a cycle is only worth as much as its operands.
    One product per cycle, ``LATENCY`` cycles later. The DSP block of a known device is instantiated, because synthesis
    does not infer its registers (:mod:`concord_rtl.families`); the registers of plain logic behave the same.

    Parameters
    ----------
    a_width, b_width : int
        Widths of the operands, 1 to :data:`MOST_BITS`.
    """

    a = Input(lambda self: signed(self.a_width), "First operand.")
    b = Input(lambda self: signed(self.b_width), "Second operand.")
    o = Output(lambda self: signed(self.a_width + self.b_width), "Product.")

    LATENCY = timing.MULTIPLIER

    def __init__(self, a_width: int, b_width: int):
        check_widths(a_width, b_width)
        self.a_width, self.b_width = a_width, b_width
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        primitives_of(platform).multiplier(m, self.a, self.b, self.o)
        return m


class PairMultiplier(Component):
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
    """

    a = Input(lambda self: signed(self.a_width), "The shared operand.")
    b = Input(lambda self: data.ArrayLayout(signed(self.b_width), 2), "The other operands.")
    o = Output(
        lambda self: data.ArrayLayout(signed(self.a_width + self.b_width - 1), 2),
        "Products of ``a`` and each of ``b``.",
    )

    LATENCY = timing.PAIR_MULTIPLIER

    def __init__(self, a_width: int, b_width: int, *, in_logic: bool = False):
        self.a_width, self.b_width = a_width, b_width
        self.in_logic = in_logic
        if not pairs_take(a_width, b_width):
            most = f"2..{PAIR_MOST_SHARED} and 2..{PAIR_MOST_OTHER}"
            raise ValueError(f"widths must be in {most}, not {a_width!r} and {b_width!r}")
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        cells = primitives_of(platform)
        build = cells.pair_in_logic if self.in_logic else cells.pair_multiplier
        build(m, self.a, list(self.b), list(self.o))
        return m


class DualMultiplier(Component):
    """Two signed products, as late as one of :class:`Multiplier`.

    Does not stall, and its registers have no reset. One pair of products per cycle, ``LATENCY`` cycles later; operands
    are registered first, so any logic may stand before them. Exact for all operands. A device whose multipliers can be
    split makes both products in one of them, if the operands are narrow enough.

    Parameters
    ----------
    a_width, b_width : int
        Widths of the first and of the second operands, 1 to :data:`MOST_BITS`.
    """

    a = Input(lambda self: data.ArrayLayout(signed(self.a_width), 2), "First operands.")
    b = Input(lambda self: data.ArrayLayout(signed(self.b_width), 2), "Second operands.")
    o = Output(
        lambda self: data.ArrayLayout(signed(self.a_width + self.b_width), 2),
        "Products of each of ``a`` and the one of ``b`` beside it.",
    )

    LATENCY = Multiplier.LATENCY

    def __init__(self, a_width: int, b_width: int):
        check_widths(a_width, b_width)
        self.a_width, self.b_width = a_width, b_width
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        primitives_of(platform).dual_multiplier(m, list(self.a), list(self.b), list(self.o))
        return m


class LeftShifter(Component):
    """A signed value, shifted to the left by 0 to 15.

    Does not stall, and its registers have no reset. One value per cycle, ``LATENCY`` cycles later. On small devices
    with multipliers to spare it is the product with a power of two.

    Parameters
    ----------
    width : int
        Bits of the value.
    """

    i = Input(lambda self: signed(self.width), "The value.")
    shift = Input(lambda self: self.SHIFT_BITS, "Places to shift it.")
    o = Output(lambda self: signed(self.width + (1 << self.SHIFT_BITS) - 1), "The result.")

    LATENCY = 2
    #: Bits of ``shift``.
    SHIFT_BITS = 4

    def __init__(self, width: int):
        if not isinstance(width, int) or width < 1:
            raise ValueError(f"width must be an integer of at least 1, not {width!r}")
        self.width = width
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        primitives_of(platform).left_shift(m, self.i, self.shift, self.o)
        return m
