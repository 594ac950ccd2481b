"""The bus between message processor and core: one request at a time, reads answered in order."""

from amaranth.lib import data

from concord.spec.config import NpuConfig, clog2
from concord.spec.memmap import RegionId, regions
from concord_rtl.parts.component import Input, NpuInterface, Output
from concord_rtl.parts.shapes import stream_of

ADDR_BITS = 24


def word_bits(config: NpuConfig) -> int:
    """Bits of the widest word of any region."""
    return max(region.word.width for region in regions(config).values())


def request_layout(config: NpuConfig) -> data.StructLayout:
    """Payload of a request: region, word address, direction and, for a write, the word."""
    return data.StructLayout(
        {"region": clog2(max(RegionId) + 1), "addr": ADDR_BITS, "write": 1, "data": word_bits(config)}
    )


class HostBus(NpuInterface):
    """Word accesses of the host, seen from the message processor.

    Parameters
    ----------
    config : NpuConfig
    """

    req = Output(
        lambda self: stream_of(request_layout(self.config)),
        "A request. The initiator has checked region, address and access rights.",
    )
    rsp = Input(
        lambda self: stream_of(word_bits(self.config)),
        "The word read, one per read request, in order. Writes have no response.",
    )
