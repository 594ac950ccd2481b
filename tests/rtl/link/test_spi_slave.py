# amaranth: UnusedElaboratable=no
import random

import pytest

from concord.host.frames import Frame, FrameError, PauseFilter
from concord.spec.link import ESCAPE, FLAG, RESUME
from concord_rtl.link.crossing_queue import CrossingQueue
from concord_rtl.link.spi_slave import SpiSlave
from support.bench import put, source
from support.spi_master import SpiMaster, frames_on, receive, run

#: What pads and wires take each way, and the clocks of a master and of the NPU.
PADS = (4.5e-9, 4.5e-9)
MASTERS, CLOCKS = (10e6, 25e6, 50e6, 80e6, 100e6), (24e6, 48e6, 82e6)
#: Every master with every clock of the NPU, but each with one of them before landing.
PAIRS = [
    pytest.param(hz, sync, marks=pytest.mark.deep if (m - s) % len(CLOCKS) else ())
    for m, hz in enumerate(MASTERS)
    for s, sync in enumerate(CLOCKS)
]
FLAGS = bytes([FLAG])


def frames(seed, count=4):
    """Frames as both sides send them, many of whose bytes are escaped."""
    rng = random.Random(seed)
    bodies = [bytes(rng.choices([FLAG, ESCAPE, RESUME, 0, 0xFF, rng.randrange(256)], k=rng.randrange(9)))]
    bodies += [bytes(rng.choices([FLAG, ESCAPE, RESUME, *range(256)], k=rng.randrange(20))) for _ in range(count)]
    return b"".join(Frame(seq, 0, body).encode() for seq, body in enumerate(bodies))


def exchange(hz, sync, *, early=False, pads=PADS, gap=0.0, stalls=(0.0, 0.0), seed=1, rest=40):
    """Frames there and back at once; what both sides have of them."""
    dut, taken, raw = SpiSlave(early=early), [], []
    there, back = frames(seed), frames(seed + 1)
    rng = random.Random(seed)
    master = SpiMaster(dut, hz, pads=pads, gap=gap, seed=seed)

    async def host(ctx):
        data = there + FLAGS * (len(back) + rest)
        while data:
            size = rng.randrange(1, 90)
            raw.append(await master.transfer(ctx, data[:size]))
            data = data[size:]
        await ctx.delay(20 / sync)

    async def sink(ctx):
        await receive(ctx, dut.o, taken, stall=stalls[0], seed=seed)

    run(dut, sync, host, background=[source(dut.i, back, stall=stalls[1], seed=seed), sink])
    assert frames_on(bytes(taken)) == frames_on(there)
    assert frames_on(b"".join(raw)) == frames_on(back)
    assert not master.dropped
    filtered = PauseFilter()
    assert frames_on(b"".join(map(filtered.feed, raw))) == frames_on(back)
    return b"".join(raw), back


@pytest.mark.slow
@pytest.mark.parametrize(("hz", "sync"), PAIRS)
def test_both_ways_at_once(hz, sync):
    """Half a period is enough up to 50 MHz; bytes follow each other without a pause up to twice the clock."""
    raw, back = exchange(hz, sync, early=hz > 50e6)
    if hz <= 2.1 * sync:
        assert back in raw


@pytest.mark.slow
@pytest.mark.parametrize("hz", MASTERS[:3])
def test_early_at_slow_clocks(hz):
    exchange(hz, 24e6, early=True, pads=(0.5e-9, 0.5e-9))


@pytest.mark.slow
def test_pads_too_slow_for_half_a_period_are_noticed():
    with pytest.raises(AssertionError):
        exchange(50e6, 82e6, pads=(5.5e-9, 5.5e-9))
    exchange(50e6, 82e6, pads=(5.5e-9, 5.5e-9), early=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 6))])
def test_gaps_and_a_device_that_is_slow(seed):
    """Fillers between frames and pauses within them, whatever the core does."""
    raw, _ = exchange(50e6, 24e6, gap=2 * (seed % 2), stalls=(0, 0.85), seed=seed, rest=250)
    assert bytes([ESCAPE, RESUME]) in raw


@pytest.mark.slow
@pytest.mark.parametrize("length", range(4))
@pytest.mark.parametrize("byte", [0x55, RESUME, FLAG ^ 0x20, ESCAPE ^ 0x20])
def test_pauses(byte, length):
    """In front of any byte of a frame, and none between an escape and its byte that a host could misunderstand."""
    escaped = byte in (FLAG ^ 0x20, ESCAPE ^ 0x20)
    first = [FLAG, ESCAPE] if escaped else [FLAG, 0x11]
    dut, raw = SpiSlave(), []
    master = SpiMaster(dut, 50e6)

    async def host(ctx):
        for part in (first, [byte, FLAG]):
            for value in part:
                await put(ctx, dut.i, value)
            for _ in range(3 + length):
                raw.append(await master.transfer(ctx, FLAGS))

    run(dut, 82e6, host)
    line = b"".join(raw)
    assert line[:3] == bytes([FLAG, *first])
    pause = bytes([ESCAPE] * (length + 1)) + (b"" if escaped else bytes([RESUME]))
    assert line[3:].rstrip(FLAGS) == pause + bytes([byte])
    assert frames_on(line) == [bytes([first[1], byte])]


def talk(dut, transfers, back=b"", **how):
    """What both sides have of some transfers: bytes to the slave, and how many bits of the last one are missing."""
    taken, raw = [], []
    master = SpiMaster(dut, 50e6, **how)

    async def host(ctx):
        for data, cut in transfers:
            raw.append(await master.transfer(ctx, data, cut=cut))
            await ctx.delay(1e-6)

    async def sink(ctx):
        await receive(ctx, dut.o, taken)

    run(dut, 82e6, host, background=[source(dut.i, back), sink])
    return bytes(taken), b"".join(raw)


def test_the_last_byte_needs_no_further_edge_and_the_first_is_a_flag():
    assert talk(SpiSlave(), [(b"\x81\x42", 0)]) == (b"\x81\x42", FLAGS * 2)


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("cut", range(1, 8))
def test_a_transfer_that_is_broken_off(cut, early):
    """The byte is not taken, and the one that was to come back is sent anew: nothing but the one byte is lost."""
    back = frames(cut)
    rest = FLAGS * (2 * len(back))
    taken, raw = talk(SpiSlave(early=early), [(b"\x12\x34\x56", cut), (b"\x78" + rest, 0)], back, pads=PADS)
    assert taken == b"\x12\x34\x78\x7e"
    assert frames_on(raw) == frames_on(back)


def test_edges_for_another_slave_do_nothing():
    dut, taken, raw = SpiSlave(), [], []

    async def host(ctx):
        ctx.set(dut.copi, 1)
        for _ in range(21):
            for level in (1, 0):
                ctx.set(dut.sck, level)
                await ctx.delay(10e-9)
        raw.append(await SpiMaster(dut, 50e6).transfer(ctx, b"\x81"))
        await ctx.delay(1e-6)

    async def sink(ctx):
        await receive(ctx, dut.o, taken)

    run(dut, 82e6, host, background=[sink])
    assert (taken, raw) == ([0x81], [FLAGS])


def test_flags_are_passed_on_once():
    transfers = [(FLAGS * 5 + b"\x01" + FLAGS * 3, 0), (FLAGS * 9 + b"\x02\x02" + FLAGS, 0)]
    assert talk(SpiSlave(), transfers) == (b"\x7e\x01\x7e\x02\x02\x7e", FLAGS * 21)


def test_bytes_that_nobody_takes_are_dropped_and_the_checksum_says_so():
    """A flag that is dropped is not the first of those that follow it."""
    dut, taken, drops = SpiSlave(), [], []
    frame, more = Frame(1, 2, b"request").encode(), Frame(2, 2, b"again").encode()
    master = SpiMaster(dut, 50e6)

    async def host(ctx):
        for data in (frame, FLAGS * 3):
            await master.transfer(ctx, data)
            drops.append(master.dropped)
        ctx.set(dut.o.ready, 1)
        await ctx.delay(1e-6)
        await master.transfer(ctx, FLAGS + more)
        await ctx.delay(1e-6)

    async def sink(ctx):
        while True:
            *_, moved, byte = await ctx.tick().sample(dut.o.valid & dut.o.ready, dut.o.payload)
            taken.extend([byte] * moved)

    run(dut, 82e6, host, background=[sink])
    lost = len(frame) - SpiSlave.DEPTH
    assert drops == [lost, lost + 3] and master.dropped == lost + 3
    cut, whole = frames_on(bytes(taken))
    assert FLAGS + cut == frame[: SpiSlave.DEPTH] and FLAGS + whole + FLAGS == more
    with pytest.raises(FrameError):
        Frame.from_body(cut)


@pytest.mark.parametrize(("hz", "dropped"), [(110e6, False), (190e6, True)])
def test_how_fast_a_master_may_be(hz, dropped):
    """4.6 times the clock of the NPU; far above that bytes are dropped, though nobody holds them up."""
    dut, taken, sent = SpiSlave(), [], bytes(range(1, 100))
    master = SpiMaster(dut, hz)

    async def host(ctx):
        await master.transfer(ctx, sent)
        await ctx.delay(1e-6)

    async def sink(ctx):
        await receive(ctx, dut.o, taken)

    run(dut, 24e6, host, background=[sink])
    assert (master.dropped > 0) == dropped == (bytes(taken) != sent)
    assert len(taken) + master.dropped == len(sent)


@pytest.mark.parametrize("depth", [0, 1, 3, 6])
def test_depth_is_checked(depth):
    with pytest.raises(ValueError, match=f"depth must be a power of two from 2 on, not {depth}"):
        CrossingQueue(depth, writing="a", reading="b")
