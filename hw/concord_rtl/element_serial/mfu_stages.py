"""The stages of the multifunction units in an element-serial configuration."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.operations import ADDRESSED
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.control import ACTS, SLOT_BITS, AddOp, Take
from concord_rtl.pipe.layouts import chain_layout

#: Operations of the multifunction units, in order; each has an operand port or none.
MFU_STAGES = (("mul", 0), ("add", 0), ("act", 0), ("mul", 1), ("add", 1), ("act", 1))


class MfuStages(NpuUnit):
    """Stages of a chain, one after the other. The outputs are registers.

    Parameters
    ----------
    config : NpuConfig
    """

    chain = Input(lambda self: chain_layout(self.config), "The chain.")
    step = Input(1, "Go to the next stage; to the first one after the last one, and in the beginning.")
    last = Output(1, "The stage is the last one.")
    wanted = Output(1, "The chain uses it.")
    port = Output(range(len(ADDRESSED)), "Its operand, a number in ``ADDRESSED``, if it has one.")
    take = Output(Take, "Source of the element, to the element unit.")
    add = Output(AddOp, "Operation of ``Take.ADD``, likewise.")
    slot = Output(SLOT_BITS, "Descriptor of the table, likewise.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        following = Signal(range(len(MFU_STAGES)))
        last = following == len(MFU_STAGES) - 1
        with m.If(self.step):
            m.d.sync += [following.eq(Mux(last, 0, following + 1)), self.last.eq(last)]
            with m.Switch(following):
                for k, (kind, unit) in enumerate(MFU_STAGES):
                    with m.Case(k):
                        self._choose(m, kind, unit)
        return m

    def _choose(self, m, kind, unit):
        """The next stage is this one."""
        controls = self.chain[f"unit{unit}"]
        m.d.sync += self.wanted.eq(Value.cast(controls[kind]).any())
        if kind == "act":
            take = Take.TABLE
            for act in ACTS.values():
                take = Mux(controls.act == act, Take[act.name], take)
        else:
            take = Take[kind.upper()]
            m.d.sync += self.port.eq(ADDRESSED.index(f"{kind}{unit}"))
        m.d.sync += [self.take.eq(take), self.add.eq(controls.add), self.slot.eq(controls.slot)]
