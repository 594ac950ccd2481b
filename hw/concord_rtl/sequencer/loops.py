"""The stack of instruction loops."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec import isa
from concord_rtl.parts.component import Input, NpuUnit, Output


class LoopStack(NpuUnit):
    """Start addresses and remaining turns of the loops that are open.

    Parameters
    ----------
    config : NpuConfig
    """

    clear = Input(1, "Forget all loops.")
    open = Input(1, "A loop of ``count`` turns begins, its body at ``after``; only when not ``full``.")
    close = Input(1, "The end of the innermost body is reached; only when not ``empty``.")
    count = Input(isa.FORMS[isa.Op.LOOP].fields["count"].width, "See ``open``.")
    after = Input(16, "See ``open``.")
    again = Output(1, "The innermost loop has another turn to go after this one.")
    target = Output(16, "Start of its body.")
    full = Output(1, "The stack is full.")
    empty = Output(1, "The stack is empty.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        size = self.config.loop_levels
        level = Signal(range(size + 1))
        left = [Signal.like(self.count, name=f"left_{k}") for k in range(size)]
        more = [Signal(name=f"more_{k}") for k in range(size)]  # a turn is left after this one
        start = [Signal(range(self.config.program_depth + 1), name=f"start_{k}") for k in range(size)]
        m.d.comb += [self.full.eq(level == size), self.empty.eq(level == 0)]
        with m.If(self.close & ~self.again):
            m.d.sync += level.eq(level - 1)
        with m.If(self.open):
            m.d.sync += level.eq(level + 1)
        for k in range(size):
            with m.If(self.open & (level == k)):
                m.d.sync += [left[k].eq(self.count), more[k].eq(self.count != 1), start[k].eq(self.after)]
            with m.If(level == k + 1):
                m.d.comb += [self.again.eq(more[k]), self.target.eq(start[k])]
                with m.If(self.close):
                    m.d.sync += [left[k].eq(left[k] - 1), more[k].eq(left[k] != 2)]
        with m.If(self.clear):
            m.d.sync += level.eq(0)
        return m
