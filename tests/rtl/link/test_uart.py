# amaranth: UnusedElaboratable=no
import random

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.link.uart import Uart
from support.bench import QUIET, get, simulate, sink, source

DATA = bytes([0x00, 0xFF, 0x55, 0xAA, 0x01, 0x80, 0x7E, 0x7D])


class Loopback(wiring.Component):
    """Two ports with their wires crossed."""

    def __init__(self, divisors):
        self.ports = [Uart(divisor) for divisor in divisors]
        stream = self.ports[0].signature.members["o"].signature
        super().__init__({"i": In(stream).array(2), "o": Out(stream).array(2), "dropped": Out(2)})

    def elaborate(self, platform):
        m = Module()
        for n, port in enumerate(self.ports):
            m.submodules += port
            m.d.comb += [port.rx.eq(self.ports[1 - n].tx), self.dropped[n].eq(port.dropped)]
            wiring.connect(m, wiring.flipped(self.i[n]), port.i)
            wiring.connect(m, port.o, wiring.flipped(self.o[n]))
        return m


async def drive(ctx, dut, bits, divisor, exact=1.0):
    """Put ``bits`` on the line, each ``divisor * exact`` cycles long."""
    start, now = 0.0, 0
    for bit in bits:
        ctx.set(dut.rx, bit)
        start += divisor * exact
        while now < round(start):
            await ctx.tick()
            now += 1


def character(byte, stop=1):
    return [0, *(byte >> n & 1 for n in range(8)), stop]


@pytest.mark.slow
@pytest.mark.parametrize("divisor", [4, 5, 16])
def test_both_ways_at_once(divisor):
    rng = random.Random(1)
    there, back = DATA + rng.randbytes(10), rng.randbytes(12)
    dut = Loopback([divisor, divisor])
    benches = [source(dut.i[0], there), sink(dut.o[1], there), source(dut.i[1], back, stall=0.9), sink(dut.o[0], back)]
    simulate(dut, *benches)


def test_bytes_follow_each_other_without_a_pause():
    dut = Loopback([8, 8])
    simulate(dut, source(dut.i[0], DATA), sink(dut.o[1], DATA), cycles=8 * 10 * len(DATA) + 20 + QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [-1, 1], ids=["fast", "slow"])
@pytest.mark.parametrize("divisor", [4, 5, 6, 8, 24])
def test_bit_rates_that_differ(divisor, sign):
    """Up to the tolerance, wherever between two edges of the clock a byte begins."""
    dut, rng = Uart(divisor), random.Random(divisor)
    data = (DATA + rng.randbytes(24)) * 2
    exact = 1 + sign * 0.98 * Uart.tolerance(divisor)

    async def line(ctx):
        for byte in data:
            start, now = rng.random(), 0
            for bit in [*character(byte), 1]:
                while now < round(start):
                    await ctx.tick()
                    now += 1
                ctx.set(dut.rx, bit)
                start += divisor * exact

    simulate(dut, line, sink(dut.o, data), cycles=20 * divisor * len(data))


@pytest.mark.parametrize(("divisor", "tolerance"), [(4, 0.025), (5, 0.04), (8, 0.0375), (24, 0.0458)])
def test_the_tolerance(divisor, tolerance):
    assert Uart.tolerance(divisor) == pytest.approx(tolerance, abs=1e-4)


@pytest.mark.slow
def test_a_bit_rate_that_differs_too_much_is_noticed():
    dut = Uart(24)
    drops = []

    async def line(ctx):
        await drive(ctx, dut, [bit for byte in DATA for bit in character(byte)] + [1] * 20, 24, 0.85)
        drops.append("end")

    async def watch(ctx):
        ctx.set(dut.o.ready, 1)
        while "end" not in drops:
            *_, dropped = await ctx.tick().sample(dut.dropped)
            if dropped:
                drops.append(dropped)

    simulate(dut, line, watch)
    assert len(drops) > 1


def test_framing_error_drops_the_byte_and_the_next_one_arrives():
    dut = Uart(8)

    async def line(ctx):
        await drive(ctx, dut, [*character(0x55), *character(0x33, stop=0), 0, 0, 1, 1, *character(0xC3)], 8)

    simulate(dut, line, sink(dut.o, [0x55, 0xC3]))


def test_break_is_one_framing_error():
    dut = Uart(8)
    drops = []

    async def line(ctx):
        await drive(ctx, dut, [0] * 50 + [1] * 2, 8)
        await drive(ctx, dut, character(0x42), 8)

    async def watch(ctx):
        ctx.set(dut.o.ready, 1)
        while True:
            *_, dropped, valid, byte = await ctx.tick().sample(dut.dropped, dut.o.valid, dut.o.payload)
            drops.append(dropped)
            if valid:
                assert byte == 0x42
                return

    simulate(dut, line, watch)
    assert sum(drops) == 1


def test_a_glitch_is_no_start_bit():
    dut = Uart(16)

    async def line(ctx):
        await drive(ctx, dut, [1, 0, 1, 1, 1, 1, 1], 3)
        await drive(ctx, dut, [1] * 12 + character(0x5A), 16)

    simulate(dut, line, sink(dut.o, [0x5A]))


def test_a_byte_that_is_not_taken_stays_and_the_next_is_dropped():
    dut = Uart(8)
    drops = []

    async def line(ctx):
        await drive(ctx, dut, character(1) + character(2) + [1] * 4 + character(3), 8)

    async def watch(ctx):
        for _ in range(8 * 21):
            *_, dropped = await ctx.tick().sample(dut.dropped)
            drops.append(dropped)
        assert await get(ctx, dut.o) == 1
        assert await get(ctx, dut.o) == 3

    simulate(dut, line, watch)
    assert sum(drops) == 1


def test_a_byte_that_is_taken_in_the_cycle_of_the_next_is_none_too_many():
    """The latest cycle in which the first of two bytes can be taken is the one in which the second arrives."""

    def drops(taken):
        dut, found, got = Uart(8), [], []

        async def line(ctx):
            await drive(ctx, dut, character(1) + character(2) + [1] * 4, 8)

        async def watch(ctx):
            for now in range(8 * 22):
                ctx.set(dut.o.ready, now in (taken, 8 * 22 - 1))
                *_, dropped, moved, byte = await ctx.tick().sample(
                    dut.dropped, dut.o.valid & dut.o.ready, dut.o.payload
                )
                found.extend([now] * dropped)
                got.extend([byte] * moved)

        simulate(dut, line, watch)
        return found, got

    (when,), got = drops(None)
    assert got == [1]
    assert drops(when) == ([], [1, 2])
    assert drops(when + 1) == ([when], [1])


@pytest.mark.parametrize("divisor", [3, 0, 8.0])
def test_divisor_is_checked(divisor):
    with pytest.raises(ValueError, match=f"divisor must be an integer of at least 4, not {divisor!r}"):
        Uart(divisor)
