"""Connections of the pipe with memories, registers and counters, each defined once."""

from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.spec.isa import Trap
from concord_rtl.parts.component import Component, Input, Interface, NpuInterface, Output
from concord_rtl.parts.memory_ports import ReadPort, WritePort
from concord_rtl.parts.shapes import stream_of
from concord_rtl.pipe.layouts import chain_layout, program_addr_bits
from concord_rtl.vector.table import TableAccess


class VectorPort(Interface):
    """One read and one write per cycle of a vector memory, seen from the pipe.

    Parameters
    ----------
    addr, word, columns
        As of :class:`concord_rtl.parts.memory_ports.WritePort`.
    """

    read = Output(lambda self: ReadPort(self.addr_shape, self.word), "A read.")
    write = Output(lambda self: WritePort(self.addr_shape, self.word, self.columns), "A write.")

    def __init__(self, addr, word, columns=1):
        self.addr_shape, self.word, self.columns = addr, word, columns
        super().__init__()


class RunPort(Interface):
    """A run of a program, seen from the registers."""

    start = Output(1, "Begin at ``pc``; only when not ``busy``.")
    pc = Output(16, "First instruction.")
    busy = Input(1, "A program runs.")
    done = Input(1, "The last run came to its end.")
    trapped = Input(1, "The last run ended with a trap.")
    trap = Input(range(max(Trap) + 1), "Why the last run trapped.")
    trap_pc = Input(16, "Where the last run trapped.")


class RetirePort(NpuInterface):
    """Vectors that leave the pipe, seen from there.

    Parameters
    ----------
    config : NpuConfig
    """

    valid = Output(1, "A vector has been written.")
    pc = Output(lambda self: program_addr_bits(self.config), "Address of its chain.")
    flags = Output(len(Flag), "Its sticky flags.")


class EventPort(Interface):
    """Events that are counted while a program runs, seen from the pipe."""

    dense_step = Output(1, "A tile step of a dense product.")
    depthwise_step = Output(1, "A tile step of a depthwise product.")
    chain = Output(1, "A chain is taken.")
    vector = Output(1, "A vector has been written.")
    stalled = Output(1, "A vector waits for another one.")


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
