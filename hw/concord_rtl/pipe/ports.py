"""Connections of the chain pipe."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord_rtl.pipe.layouts import chain_layout
from concord_rtl.ports import EventPort, RetirePort
from concord_rtl.shapes import stream_of
from concord_rtl.table import TableAccess


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


def pipe_ports(config: NpuConfig) -> dict[str, wiring.Member]:
    """Members of a chain pipe beside the memories, as described in :class:`concord_rtl.pipe.pipe.ChainPipe`."""
    return {
        "chains": In(stream_of(chain_layout(config))),
        "drained": Out(1),
        "retired": Out(RetirePort(config)),
        "events": Out(EventPort()),
        "tables": In(TableAccess(config)),
    }
