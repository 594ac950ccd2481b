"""External memory as the core has it: the controller, with the search for its clock in front."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring

from concord.spec.dram import SdramPart, SdramTiming
from concord_rtl.dram.controller import SdramController
from concord_rtl.dram.native_port import NativePort
from concord_rtl.dram.pins import SdramPins
from concord_rtl.dram.search import PhaseSearch
from concord_rtl.dram.unit import SdramUnit
from concord_rtl.parts.component import Input, Output
from concord_rtl.parts.shapes import stream_of


class SdramMemory(SdramUnit):
    """An SDRAM behind the native port, which accepts commands when its clock phase is known.

    Parameters
    ----------
    part : SdramPart
        Sizes.
    timing : SdramTiming
        Times.
    phases : int
        Steps of the clock that are a period or more, a power of two, at least 8.
    """

    port = Input(lambda self: NativePort(self.part), "The requester. Nothing is accepted before ``works``.")
    pins = Output(lambda self: SdramPins(self.part), "Pins.")
    step = Output(stream_of(1), "The clock of the memory is to be one phase later, for 1 earlier.")
    restart = Input(1, "A refresh begins, and the interval of refreshes with it.")
    idle = Output(1, "Commands are accepted.")
    busy = Output(1, "The search goes on.", init=1)
    works = Output(1, "The search has a phase that works.")
    phase = Output(lambda self: range(2 * self.phases), "Phase that was chosen.")
    width = Output(lambda self: range(self.phases + 1), "Number of neighbouring phases that work.")
    late = Output(1, "Data read come a cycle later than they can at the earliest.")

    def __init__(self, part: SdramPart, timing: SdramTiming, phases: int):
        self.phases = phases
        super().__init__(part, timing)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.controller = controller = SdramController(self.part, self.timing)
        m.submodules.search = search = PhaseSearch(self.part, self.phases)
        wiring.connect(m, controller.pins, wiring.flipped(self.pins))
        wiring.connect(m, search.step, wiring.flipped(self.step))
        m.d.comb += [
            search.idle.eq(controller.idle),
            controller.initialise.eq(search.initialise),
            controller.late.eq(search.late),
            controller.restart.eq(self.restart & ~search.busy),
            self.idle.eq(controller.idle & search.works),
        ]
        m.d.comb += [
            getattr(self, name).eq(getattr(search, name)) for name in ("busy", "works", "phase", "width", "late")
        ]
        for name in controller.port.signature.members:
            inner, own, other = (getattr(port, name) for port in (controller.port, self.port, search.port))
            if name == "rdata":
                m.d.comb += [port.payload.eq(inner.payload) for port in (own, other)]
                m.d.comb += [own.valid.eq(inner.valid & ~search.busy), other.valid.eq(inner.valid & search.busy)]
                continue
            m.d.comb += [
                inner.valid.eq(Mux(search.busy, other.valid, own.valid & search.works)),
                inner.p.eq(Mux(search.busy, other.p, own.p)),
                own.ready.eq(inner.ready & search.works),
                other.ready.eq(inner.ready & search.busy),
            ]
        return m
