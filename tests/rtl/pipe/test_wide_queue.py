# amaranth: UnusedElaboratable=no
"""A wide queue does in every cycle what a plain buffered one does."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered

from concord_rtl.pipe.wide_queue import WideQueue
from support.bench import simulate

WIDTH, DEPTH = 70, 5


class Beside(wiring.Component):
    """Both queues with the same words and the same reads; ``coming`` and ``soon`` are those of the next cycle."""

    def __init__(self):
        self.queue = WideQueue(WIDTH, DEPTH)
        self.plain = SyncFIFOBuffered(width=WIDTH, depth=DEPTH + 1)
        self.word = Signal(WIDTH)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue, m.submodules.plain = self.queue, self.plain
        m.d.sync += [self.plain.w_en.eq(self.queue.coming), self.plain.r_en.eq(self.queue.soon)]
        m.d.comb += [self.queue.word.eq(self.word), self.plain.w_data.eq(self.word)]
        return m


@pytest.mark.slow
@pytest.mark.parametrize("pace", [(1.0, 1.0), (0.9, 0.3), (0.2, 0.9), (0.5, 0.5)], ids=str)
def test_the_same_words_in_the_same_cycles(pace):
    dut, rng = Beside(), random.Random(6)
    queue, plain = dut.queue, dut.plain
    taken = []

    async def bench(ctx):
        held, soon = 0, False
        for _ in range(800):
            ctx.set(dut.word, rng.getrandbits(WIDTH))
            held -= soon and ctx.get(plain.r_rdy)
            if soon and ctx.get(plain.r_rdy):
                taken.append(ctx.get(plain.r_data))
            soon, coming = rng.random() < pace[1], held < DEPTH and rng.random() < pace[0]
            held += coming
            ctx.set(queue.coming, coming)
            ctx.set(queue.soon, soon)
            *_, valid, o, there, word = await ctx.tick().sample(queue.valid, queue.o, plain.r_rdy, plain.r_data)
            assert valid == there
            assert not valid or o == word

    simulate(dut, bench)
    assert len(set(taken)) > 100


def test_what_a_queue_must_be():
    with pytest.raises(ValueError, match=r"^depth must be at least 2, not 1$"):
        WideQueue(8, 1)
    with pytest.raises(ValueError, match=r"^width must be a multiple of parts=4, not 10$"):
        WideQueue(10, 4, parts=4)
