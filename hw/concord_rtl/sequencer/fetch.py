"""Instruction fetch: a short queue in front of the decoder."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from concord.spec import isa
from concord.spec.config import NpuConfig

#: Words on their way or waiting; covers the latency of the memory at one word per cycle.
DEPTH = 4
#: Cycles from an address at the program memory to the word.
MEMORY_LATENCY = 2


def word_layout(config: NpuConfig) -> data.StructLayout:
    """A fetched word, its address, and whether that lies beyond the end of the memory."""
    return data.StructLayout({"pc": 16, "beyond": 1, "word": isa.WORD_BITS})


class Fetch(wiring.Component):
    """Reads words one after the other, from ``target`` on after a ``jump``.

    Throughput: one word per cycle. The first word after a jump is there 4 cycles later.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    enable : In(1)
        Fetch; when low, nothing new is read.
    jump : In(1)
        Drop everything and go on at ``target``.
    target : In(16)
        Instruction address.
    addr : Out
        Address of the program memory.
    data : In
        Its word, ``MEMORY_LATENCY`` cycles later.
    o : Out(stream)
        Words in order.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "enable": In(1),
                "jump": In(1),
                "target": In(16),
                "addr": Out(range(config.program_depth)),
                "data": In(isa.WORD_BITS),
                "o": Out(stream.Signature(word_layout(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        layout = word_layout(self.config)
        m.submodules.queue = queue = ResetInserter(self.jump)(SyncFIFO(width=layout.size, depth=DEPTH))
        pc = Signal(16)
        room = Signal(range(DEPTH + 1), init=DEPTH)
        issue, taken = Signal(), Signal()
        m.d.comb += [
            self.addr.eq(pc),
            issue.eq(self.enable & ~self.jump & (room != 0)),
            self.o.valid.eq(queue.r_rdy & ~self.jump),
            self.o.p.eq(queue.r_data),
            taken.eq(self.o.valid & self.o.ready),
            queue.r_en.eq(taken),
        ]
        valid, address = issue, pc
        for k in range(MEMORY_LATENCY):
            next_valid, next_address = Signal(name=f"valid_{k}"), Signal(16, name=f"pc_{k}")
            m.d.sync += [next_valid.eq(valid & ~self.jump), next_address.eq(address)]
            valid, address = next_valid, next_address
        arrived = Signal(layout)
        m.d.comb += [
            arrived.pc.eq(address),
            arrived.beyond.eq(address >= self.config.program_depth),
            arrived.word.eq(self.data),
            queue.w_en.eq(valid & ~self.jump),
            queue.w_data.eq(arrived),
        ]
        m.d.sync += room.eq(room - issue + taken)
        with m.If(issue):
            m.d.sync += pc.eq(pc + 1)
        with m.If(self.jump):
            m.d.sync += [pc.eq(self.target), room.eq(DEPTH)]
        return m
