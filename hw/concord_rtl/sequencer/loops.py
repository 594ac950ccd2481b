"""The stack of instruction loops."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec import isa
from concord.spec.config import NpuConfig


class LoopStack(wiring.Component):
    """Start addresses and remaining turns of the loops that are open.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    clear : In(1)
        Forget all loops.
    open : In(1)
        A loop of ``count`` turns begins, its body at ``after``; only when not ``full``.
    close : In(1)
        The end of the innermost body is reached; only when not ``empty``.
    count, after : In
        See ``open``.
    again : Out(1)
        The innermost loop has another turn to go after this one.
    target : Out(16)
        Start of its body.
    full, empty : Out(1)
        State of the stack.
    """

    clear: Signal
    open: Signal
    close: Signal
    count: Signal
    after: Signal
    again: Signal
    target: Signal
    full: Signal
    empty: Signal

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "clear": In(1),
                "open": In(1),
                "close": In(1),
                "count": In(isa.FORMS[isa.Op.LOOP].fields["count"].width),
                "after": In(16),
                "again": Out(1),
                "target": Out(16),
                "full": Out(1),
                "empty": Out(1),
            }
        )

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
