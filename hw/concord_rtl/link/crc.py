"""The checksum of :mod:`concord.spec.link`."""

from functools import reduce
from operator import xor
from typing import Any

from amaranth import *
from amaranth.lib.crc import catalog

from concord.spec.link import CRC_BYTES, CRC_POLYNOMIAL
from concord_rtl.parts.component import Component, Input, Output

#: CRC-32 of IEEE 802.3. ``PARAMETERS.compute(data)`` is the model.
PARAMETERS = catalog.CRC32_ISO_HDLC(data_width=8)
_BITS = 8 * CRC_BYTES


def _after_byte() -> list[set[int]]:
    """Bits of the register after a byte, each the sum of bits of the register with the byte already added to it."""
    state = [{n} for n in range(_BITS)]
    for _ in range(8):
        out, state = state[0], [*state[1:], set()]
        state = [bit ^ out if CRC_POLYNOMIAL >> n & 1 else bit for n, bit in enumerate(state)]
    return state


class Crc32(Component):
    """Checksum of a sequence of bytes.

    Does not start anew in the same cycle in which it takes a byte (``clear`` wins), which keeps it half the size.

    One byte per cycle; the outputs are up to date in the next one.
    """

    clear = Input(1, "Begin a new sequence.")
    valid = Input(1, "Take ``data``.")
    data = Input(8, "Next byte.")
    crc = Output(_BITS, "Checksum of the bytes so far, to be sent low byte first.")
    match = Output(1, "The last four bytes are the checksum of those before.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        state = Signal(_BITS, init=-1)
        mixed = state ^ self.data
        with m.If(self.valid):
            m.d.sync += state.eq(Cat(reduce(xor, (mixed[n] for n in sorted(bits))) for bits in _after_byte()))
        with m.If(self.clear):
            m.d.sync += state.eq(state.init)
        m.d.comb += [self.crc.eq(~state), self.match.eq(self.crc == PARAMETERS.residue() ^ (1 << _BITS) - 1)]
        return m
