"""A master of SPI beside a simulated slave: edges at the times at which a board has them."""

from __future__ import annotations

import random
from itertools import chain

from amaranth.sim import Simulator

from concord.spec.link import ESCAPE, FLAG, RESUME


class SpiMaster:
    """Clocks bytes in mode 0 while a simulation runs.

    Parameters
    ----------
    dut : SpiSlave
        Its pins are driven.
    hz : float
        Clock.
    pads : pair of float
        Seconds that pads and wires take to the slave and back.
    gap : float
        Periods between two bytes at the most; how many is random.
    seed : int
        For the gaps.

    Members
    -------
    dropped : int
        Bytes that the slave dropped so far.
    """

    def __init__(self, dut, hz, *, pads=(0.0, 0.0), gap=0.0, seed=0):
        self.dut, self.period, self.pads, self.gap = dut, 1 / hz, pads, gap
        self.dropped = 0
        self._rng = random.Random(seed)

    def _bits(self, data, cut):
        """Times of the bits of a transfer, and the bits; ``cut``: how many are left out at the end."""
        now, bits = 2 * self.period, []
        for byte in data:
            now += self._rng.random() * self.gap * self.period
            for k in reversed(range(8)):
                bits.append((now, byte >> k & 1))
                now += self.period
        return bits[: len(bits) - cut]

    def _events(self, bits):
        """Time, order, what, and value: of a bit it is taken back, put on the wire, and clocked in."""
        there, back = self.pads
        for start, bit in bits:
            rise = start + self.period / 2
            yield start + there, 0, "sck", 0  # the falling edge of the bit before
            yield start + there, 1, "copi", bit
            yield rise - back, 2, "sample", None
            yield rise + there, 3, "sck", 1

    async def transfer(self, ctx, data, *, cut=0):
        """The bytes that come back while ``data`` goes there; without the last one where some of its bits are cut."""
        bits = self._bits(data, cut)
        end = bits[-1][0] + self.period + self.pads[0]
        events = sorted(chain(self._events(bits), [(end, 0, "sck", 0)]), key=lambda event: event[:2])
        ctx.set(self.dut.csn, 0)
        now, came = 0.0, []
        for time, _, what, value in events:
            if time > now:
                await ctx.delay(time - now)
                now = time
            if what == "sample":
                came.append(ctx.get(self.dut.cipo))
            else:
                self.dropped += what == "sck" and value and ctx.get(self.dut.dropped)
                ctx.set(getattr(self.dut, what), value)
        await ctx.delay(self.period)
        ctx.set(self.dut.csn, 1)
        await ctx.delay(self.period)
        return bytes(int("".join(map(str, came[k : k + 8])), 2) for k in range(0, len(came) - 7, 8))


def run(dut, sync_hz, *benches, background=()):
    """Run a simulation with the clock of the NPU, until the benches have ended."""
    sim = Simulator(dut)
    sim.add_clock(1 / sync_hz, phase=0.3 / sync_hz)
    for bench in benches:
        sim.add_testbench(bench)
    for bench in background:
        sim.add_testbench(bench, background=True)
    sim.run()


def frames_on(raw):
    """The frames on a line from the slave, still escaped: a second way to take pauses out, byte by byte.

    A pause between frames is an error.
    """
    taken, at = bytearray([FLAG]), 0
    while at < len(raw):
        end = at
        while end < len(raw) and raw[end] == ESCAPE:
            end += 1
        if end == at:
            taken.append(raw[at])
            at += 1
        elif raw[end : end + 1] == bytes([RESUME]):
            assert taken[-1] != FLAG, f"byte {at}: a pause between frames"
            at = end + 1
        else:
            taken.append(ESCAPE)
            at = end
    return [frame for frame in bytes(taken).split(bytes([FLAG])) if frame]


async def receive(ctx, stream, taken, *, stall=0.0, seed=0):
    """In the background: append what comes to ``taken``, and stall before each byte with a probability."""
    rng = random.Random(seed)
    while True:
        ctx.set(stream.ready, rng.random() >= stall)
        *_, moved, byte = await ctx.tick().sample(stream.valid & stream.ready, stream.payload)
        if moved:
            taken.append(byte)
