"""Connections of the pipe with memories, registers and counters, each defined once."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.spec.isa import Trap
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.pipe.layouts import chain_layout, program_addr_bits
from concord_rtl.vector.table import TableAccess


class WritePort(wiring.Signature):
    """Writes to a vector memory, seen from where the vectors come from.

    Members
    -------
    en : Out(columns)
        One bit per column of a word: it is written at the edge.
    addr, data : Out
        Address and word.
    """

    def __init__(self, addr, word, columns=1):
        super().__init__({"en": Out(columns), "addr": Out(addr), "data": Out(word)})


class VectorPort(wiring.Signature):
    """One read and one write per cycle of a vector memory, seen from the pipe.

    Members
    -------
    read : Out(en, addr, data)
        Address, and the word when the memory has it.
    write : Out(WritePort)
        A write.
    """

    def __init__(self, addr, word, columns=1):
        read = wiring.Signature({"en": Out(1), "addr": Out(addr), "data": In(word)})
        super().__init__({"read": Out(read), "write": Out(WritePort(addr, word, columns))})


class RunPort(wiring.Signature):
    """A run of a program, seen from the registers.

    Members
    -------
    start : Out(1)
        Begin at ``pc``; only when not ``busy``.
    pc : Out(16)
        First instruction.
    busy, done, trapped : In(1)
        State; ``done`` and ``trapped`` of the last run.
    trap, trap_pc : In
        Why and where the last run trapped.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": Out(1),
                "pc": Out(16),
                "busy": In(1),
                "done": In(1),
                "trapped": In(1),
                "trap": In(range(max(Trap) + 1)),
                "trap_pc": In(16),
            }
        )


class RetirePort(wiring.Signature):
    """Vectors that leave the pipe, seen from there.

    Members
    -------
    valid : Out(1)
        A vector has been written.
    pc, flags : Out
        Address of its chain and its sticky flags.
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__({"valid": Out(1), "pc": Out(program_addr_bits(config)), "flags": Out(len(Flag))})


class EventPort(wiring.Signature):
    """Events that are counted while a program runs, seen from the pipe.

    Members
    -------
    dense_step, depthwise_step : Out(1)
        A tile step of a dense (depthwise) product.
    chain : Out(1)
        A chain is taken.
    vector : Out(1)
        A vector has been written.
    stalled : Out(1)
        A vector waits for another one.
    """

    def __init__(self) -> None:
        super().__init__({name: Out(1) for name in ("dense_step", "depthwise_step", "chain", "vector", "stalled")})


class PipePorts(Component):
    """Ports of the chain pipe of any configuration, beside its memories."""

    config: NpuConfig

    chains = Input(
        lambda self: stream_of(chain_layout(self.config)),
        "Chain descriptors; the next one is taken as soon as the last vector of the one before has been issued.",
    )
    drained = Output(1, "No chain is under way or was offered in the cycle before.")
    retired = Output(lambda self: RetirePort(self.config), "Vectors that have been written.")
    events = Output(EventPort(), "Events for the counters.")
    tables = Input(lambda self: TableAccess(self.config), "Accesses of the host to tables.")
