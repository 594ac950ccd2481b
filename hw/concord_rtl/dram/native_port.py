"""The port of a memory controller: commands, data to write, and data read."""

from __future__ import annotations

from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from concord.spec.dram import SdramPart
from concord_rtl.parts.component import Input, Interface, Output
from concord_rtl.parts.shapes import stream_of


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
    wdata = Output(
        lambda self: stream_of(data.StructLayout({"data": self.part.width, "we": self.part.width // 8})),
        "What is written, and which bytes of it.",
    )
    rdata = Input(lambda self: wiring.Signature({"valid": Out(1), "payload": Out(self.part.width)}), "What was read.")

    def __init__(self, part: SdramPart) -> None:
        self.part = part
        super().__init__()
