"""The whole NPU with a byte link: what simulations and boards build on."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered

from concord.spec.config import NpuConfig
from concord.spec.operations import Op
from concord_rtl.core.core import NpuCore
from concord_rtl.core.implementation import Contents, implementation_of
from concord_rtl.dram.pins import PHASES, sdram_port
from concord_rtl.feeder.feeder import Feeder
from concord_rtl.link.message_processor import MessageProcessor
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.register_slice import RegisterSlice
from concord_rtl.parts.shapes import stream_of

#: Reply bytes that wait for whatever carries them; also cuts the path of its handshake. None if element-serial.
REPLY_BYTES = 4


class NpuTop(Component):
    """Message processor and core, and a buffer for requests that come while another one is answered.

    A byte takes two cycles more with the buffer.

    Parameters
    ----------
    config : NpuConfig
    contents : Contents
        Initial contents of the memories.
    phases : int
        Steps of the clock of the external memory, if there is one, that are a period or more.
    """

    rx = Input(stream_of(8), "Bytes from the host, framed as in :mod:`concord.spec.link`.")
    tx = Output(stream_of(8), "Bytes to the host, likewise.")
    busy = Output(1, "A program runs, for a light.")
    done = Output(1, "The last run came to its end, for a light.")
    trapped = Output(1, "The last run ended with a trap, for a light.")
    sdram = sdram_port()

    def __init__(self, config: NpuConfig, contents: Contents | None = None, *, phases: int = PHASES):
        self.config = config
        self.contents = contents
        self.phases = phases
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        buffered = not implementation_of(self.config).held
        m.submodules.messages = messages = MessageProcessor(self.config, buffered=buffered)
        m.submodules.core = core = NpuCore(self.config, self.contents, phases=self.phases)
        if self.config.has(Op.COPY):
            wiring.connect(m, core.sdram, wiring.flipped(self.sdram))
        if not self.config.request_buffer:
            wiring.connect(m, wiring.flipped(self.rx), messages.rx)
        else:
            m.submodules.requests = requests = SyncFIFOBuffered(width=8, depth=self.config.request_buffer)
            m.submodules.bytes = bytes_ = RegisterSlice(8)  # a block RAM gives its word late in the cycle
            wiring.connect(m, wiring.flipped(self.rx), requests.w_stream)
            wiring.connect(m, requests.r_stream, bytes_.i)
            wiring.connect(m, bytes_.o, messages.rx)
        if not buffered:
            wiring.connect(m, messages.tx, wiring.flipped(self.tx))
        else:
            m.submodules.replies = replies = SyncFIFO(width=8, depth=REPLY_BYTES)
            wiring.connect(m, messages.tx, replies.w_stream)
            wiring.connect(m, replies.r_stream, wiring.flipped(self.tx))
        feeding = Signal()  # raw inputs are being laid out, or a program runs on them
        if self.config.inbox:
            self._feeder(m, messages, core, feeding)
        else:
            wiring.connect(m, messages.bus, core.bus)
        m.d.comb += [
            messages.busy.eq(core.busy | feeding),
            messages.status.eq(core.status | feeding),
            core.link_errors.eq(messages.errors),
            self.busy.eq(core.busy),
            self.done.eq(core.done),
            self.trapped.eq(core.trapped),
        ]
        return m

    def _feeder(self, m, messages, core, feeding):
        m.submodules.feeder = feeder = Feeder(self.config)
        wiring.connect(m, messages.bus, feeder.bus)
        wiring.connect(m, messages.raw, feeder.raw)
        wiring.connect(m, feeder.core, core.bus)
        m.d.comb += [
            messages.room.eq(feeder.room),
            messages.produced.eq(feeder.produced),
            feeder.acknowledge.eq(messages.acknowledge),
            feeder.acknowledged.eq(messages.acknowledged),
            feeder.core_busy.eq(core.busy),
            feeder.core_trapped.eq(core.trapped),
            feeding.eq(feeder.busy),
        ]
