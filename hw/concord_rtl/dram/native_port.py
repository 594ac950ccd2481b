"""The port of a memory controller: commands, data to write, and data read."""

from __future__ import annotations

from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from concord.spec.dram import SdramPart
from concord_rtl.parts.component import Input, Interface, Output
from concord_rtl.parts.shapes import stream_of


def columns_written(part: SdramPart) -> wiring.Signature:
    """Stream of columns to write, and of which bytes of each."""
    return stream_of(data.StructLayout({"data": part.width, "we": part.width // 8}))


def columns_read(part: SdramPart) -> wiring.Signature:
    """Columns that were read, which cannot be stalled."""
    return wiring.Signature({"valid": Out(1), "payload": Out(part.width)})


class NativePort(Interface):
    """Streams of a requester, with the meaning that the native port of LiteDRAM has, seen from the requester.

    A command is the address of one column, read or written. Data to write come in the order of the commands, each with
    its command or later; data read come in the order of the commands, and cannot be stalled.

    Parameters
    ----------
    part : SdramPart
    """

    cmd = Output(
        lambda self: stream_of(data.StructLayout({"we": 1, "addr": self.part.address_bits})),
        "Columns to read or write.",
    )
    wdata = Output(lambda self: columns_written(self.part), "What is written, and which bytes of it.")
    rdata = Input(lambda self: columns_read(self.part), "What was read.")

    def __init__(self, part: SdramPart) -> None:
        self.part = part
        super().__init__()
