"""Connections of the chain pipe to the memories."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class VectorPort(wiring.Signature):
    """One read and one write per cycle of a vector memory, seen from the pipe; ``write`` has a bit per column."""

    def __init__(self, addr, word, columns=1):
        super().__init__(
            {
                "read": Out(1),
                "read_addr": Out(addr),
                "read_data": In(word),
                "write": Out(columns),
                "write_addr": Out(addr),
                "write_data": Out(word),
            }
        )
