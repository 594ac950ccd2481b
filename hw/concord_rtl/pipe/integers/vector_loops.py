"""The loops of an integer chain over its vectors."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.pipe.counters import Countdown
from concord_rtl.pipe.integers.ports import loops_layout


class VectorLoops(NpuUnit):
    """Turns of ``rows``, ``inner`` and ``outer``, rows first.

    A strobe takes effect in the next cycle.

    Parameters
    ----------
    config : NpuConfig
    """

    loops = Input(lambda self: loops_layout(self.config), "Numbers of turns, which stay.")
    load = Input(1, "Begin with the first vector.")
    step = Input(1, "Go to the next vector.")
    last = Output(3, "Of each loop: the turn is the last one.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        steps = [self.step]
        for k, turns in enumerate((self.loops.rows, self.loops.inner, self.loops.outer)):
            m.submodules[f"loop{k}"] = loop = Countdown(len(turns), held=True)
            m.d.comb += [
                loop.load.eq(self.load),
                loop.turns.eq(turns),
                loop.step.eq(Cat(steps).all()),
                self.last[k].eq(loop.last),
            ]
            steps.append(loop.last)
        return m
