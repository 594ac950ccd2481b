"""Connections of the chain pipe."""

from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import Flag

from ..table import access_ports
from .layouts import chain_layout, program_addr_bits


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


def pipe_ports(config: NpuConfig) -> dict:
    """Members of a chain pipe beside the memories, as described in :class:`concord_rtl.pipe.pipe.ChainPipe`."""
    return {
        "chains": In(stream.Signature(chain_layout(config))),
        "drained": Out(1),
        "retired": Out(1),
        "retired_pc": Out(program_addr_bits(config)),
        "retired_flags": Out(len(Flag)),
        "dense_step": Out(1),
        "depthwise_step": Out(1),
        "stalled": Out(1),
        **{f"table_{name}": member for name, member in access_ports(config).items()},
    }
