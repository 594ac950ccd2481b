"""The stages of the multifunction units in an element-serial configuration."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.operations import ADDRESSED
from concord_rtl.control import SLOT_BITS, Act, AddOp
from concord_rtl.element_serial.element import Take
from concord_rtl.pipe.layouts import chain_layout

#: Operations of the multifunction units, in order; each has an operand port or none.
MFU_STAGES = (("mul", 0), ("add", 0), ("act", 0), ("mul", 1), ("add", 1), ("act", 1))


class MfuStages(wiring.Component):
    """What a chain does at one stage. Combinational.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    chain : In(chain_layout)
        The chain.
    number : In(range(len(MFU_STAGES)))
        The stage.
    last : Out(1)
        It is the last one.
    wanted : Out(1)
        The chain uses it.
    port : Out
        Its operand, a number in ``ADDRESSED``, if it has one.
    take, add, slot : Out
        To the element unit.
    """

    chain: data.View
    number: Signal
    last: Signal
    wanted: Signal
    port: Signal
    take: Any
    add: Any
    slot: Signal

    def __init__(self, config: NpuConfig):
        super().__init__(
            {
                "chain": In(chain_layout(config)),
                "number": In(range(len(MFU_STAGES))),
                "last": Out(1),
                "wanted": Out(1),
                "port": Out(range(len(ADDRESSED))),
                "take": Out(Take),
                "add": Out(AddOp),
                "slot": Out(SLOT_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.comb += self.last.eq(self.number == len(MFU_STAGES) - 1)
        with m.Switch(self.number):
            for k, (kind, unit) in enumerate(MFU_STAGES):
                with m.Case(k):
                    controls = self.chain[f"unit{unit}"]
                    m.d.comb += [self.wanted.eq(Value.cast(controls[kind]).any())]
                    if kind == "act":
                        take = Mux(controls.act == Act.RELU, Take.RELU, Take.TABLE)
                    else:
                        take = Take[kind.upper()]
                        m.d.comb += self.port.eq(ADDRESSED.index(f"{kind}{unit}"))
                    m.d.comb += [self.take.eq(take), self.add.eq(controls.add), self.slot.eq(controls.slot)]
        return m
