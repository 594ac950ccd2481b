"""Placement of dot products on the accumulator grid."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import timing
from concord_rtl.parts.component import Component, Input, Output


class Align(Component):
    """Shift left by ``shift``, in two stages.

    Does not check the shift: one beyond ``max_shift`` gives an undefined value. One value per cycle, ``LATENCY``
    cycles later.

    Parameters
    ----------
    width : int
        Bits of the value.
    max_shift : int
        Greatest shift, in places.
    keep : int or None
        Bits of the result, sign included, at least ``width``; by default as many as it can need, and no check.
    """

    i = Input(lambda self: signed(self.width), "Value.")
    shift = Input(lambda self: range(self.max_shift + 1), "Shift of this value.")
    o = Output(lambda self: signed(self.keep), "``i << shift``, its low bits if it does not fit.")
    over = Output(1, "One cycle after ``o``: it did not fit. With ``keep``.", when=lambda self: self.checked)
    negative = Output(
        1,
        "One cycle after ``o``: its sign, if it had fitted. With ``keep``.",
        when=lambda self: self.checked,
    )

    LATENCY = timing.ALIGN

    def __init__(self, width, max_shift, keep=None):
        self.width = width
        self.max_shift = max_shift
        self.keep = width + max_shift if keep is None else min(keep, width + max_shift)
        if self.keep < width:
            raise ValueError(f"keep must be at least width={width}, not {keep!r}")
        self.checked = keep is not None
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # The first stage shifts by less than a group, the second by whole groups.
        fine_bits = (len(self.shift) + 1) // 2
        group = 1 << fine_bits
        fine = Signal(signed(self.width + group - 1), reset_less=True)
        coarse = Signal(len(self.shift) - fine_bits, reset_less=True)
        m.d.sync += [fine.eq(self.i << self.shift[:fine_bits]), coarse.eq(self.shift[fine_bits:])]

        placed = Signal.like(self.o, reset_less=True)
        groups = self.max_shift // group + 1
        with m.Switch(coarse):
            for k in range(groups):
                with m.Case(k) if k < groups - 1 else m.Default():
                    m.d.sync += placed.eq(fine << k * group)
        m.d.comb += self.o.eq(placed)
        if self.checked:
            self._check(m, fine, coarse, [k * group for k in range(groups)])
        return m

    def _check(self, m, fine, coarse, shifts):
        """Drives ``over`` if bits that count are lost: those from the sign of the result up must be alike.

        In two cycles, that of the second stage and the next one: what each coarse shift would lose, and which it was.
        """
        lost, late = Signal(len(shifts), reset_less=True), Signal.like(coarse, name="late", reset_less=True)
        m.d.sync += late.eq(coarse)
        for k, shift in enumerate(shifts):
            top = Cat(Const(0, max(0, shift - self.keep + 1)), fine)[max(0, self.keep - 1 - shift) :]
            m.d.sync += lost[k].eq((top[1:] ^ top[:-1]).any())
        over, sign, negative = (Signal(name=name, reset_less=True) for name in ("over", "sign", "negative"))
        m.d.sync += [over.eq(lost.bit_select(late, 1)), sign.eq(fine[-1]), negative.eq(sign)]
        m.d.comb += [self.over.eq(over), self.negative.eq(negative)]
