"""The taps of an element-serial configuration are those of the software expansion, in its order."""

import random

import numpy as np
import pytest

from concord.program.chains import Address, Chain, Pad, Quant, VectorPlace, Window
from concord.spec.isa import Mem, MvMode, Op
from concord.spec.presets import UP5K
from concord_rtl.element_serial.taps import TapLoops
from concord_rtl.pipe.layouts import vector_addr_bits
from support.bench import simulate

CONFIGS = {"whole tiles": UP5K, "parts of a tile": UP5K.replace(lanes=2)}
REDUCTION = {None: 0, Op.MV_MUL: 1, Op.V_MAX: 2, Op.V_REDMAX: 3}


def random_chain(rng):
    """A chain whose windows lie partly above, below, left and right of an image that is higher than wide, or wider."""
    reduce = rng.choice([None, Op.MV_MUL, Op.MV_MUL, Op.V_MAX, Op.V_REDMAX])
    mode = rng.choice(list(MvMode)) if reduce is Op.MV_MUL else MvMode.DENSE
    strides, dilation = [rng.randint(-9, 9) for _ in range(2)], rng.randint(1, 2)
    window, pad = Window(), Pad()
    if reduce is not None:
        window = Window(rng.randint(1, 3), rng.randint(1, 3), *strides, dilation, 1)
        y0, x0, height, width = -rng.randint(0, 2), -rng.randint(0, 2), rng.choice([0, 2, 4]), rng.randint(1, 4)
        pad = Pad(y0, x0, rng.randint(1, 2), 1, height, width)
    address = Address(*(rng.randint(0, 63) for _ in range(4)))
    return Chain(
        pc=0, mem=Mem.NARROW, source=address, rows=rng.randint(1, 3),
        cols=rng.randint(1, 3) if reduce is Op.MV_MUL and mode is MvMode.DENSE else 1,
        inner=rng.randint(1, 3), outer=rng.randint(1, 3), window=window, pad=pad, reduce=reduce, mode=mode,
        matrix=rng.randint(0, 20), mfu_ops=(), destinations=(VectorPlace(Mem.WIDE, address),), quant=Quant(),
    )  # fmt: skip


def descriptor(chain):
    """What the loops need to know of a chain."""
    names = ("stride_y", "stride_x", "dil_y", "dil_x", "kh", "kw")
    window = {name: getattr(chain.window, name) for name in names}
    window |= {"cols": chain.cols, "height": chain.pad.height, "width": chain.pad.width}
    bits = vector_addr_bits(UP5K)
    window |= {name: window[name] & (1 << bits) - 1 for name in ("stride_y", "stride_x")}
    kind = {"reduction": REDUCTION[chain.reduce], "depthwise": int(chain.mode), "matrix": chain.matrix}
    return {**kind, "window": window}


def expected(chain, config, place):
    """(address, outside, matrix word, lane, part, last) of every step for one vector."""
    o, i, r = place
    sources = chain.sources(config)[place] & (1 << vector_addr_bits(config)) - 1
    inside, words = chain.inside()[o, i], chain.matrix_words(config) if chain.dense or chain.depthwise else None
    steps = config.steps if chain.dense else 1
    every = list(np.ndindex(*sources.shape, steps))
    for tap, col, part in every:
        word = lane = None
        if chain.dense:
            word = int(words[r, tap, col, part])
        elif chain.depthwise:
            word, lane = int(words[r, tap // config.lanes]), tap % config.lanes
        yield int(sources[tap, col]), not inside[tap], word, lane, part, (tap, col, part) == every[-1]


def walk(chain, config):
    """The same from the RTL, for every vector; without what means nothing for this kind of chain."""
    dut, found = TapLoops(config), {}

    async def bench(ctx):
        async def pulse(port):
            ctx.set(port, 1)
            await ctx.tick()
            ctx.set(port, 0)

        ctx.set(dut.chain, descriptor(chain))
        for o, i, r in np.ndindex(chain.shape):
            await pulse(dut.proceed if r else dut.rewind)
            ctx.set(dut.source, int(chain.sources(config)[o, i, r, 0, 0]) & (1 << vector_addr_bits(config)) - 1)
            ctx.set(dut.y, chain.pad.y0 + o * chain.pad.step_y)
            ctx.set(dut.x, chain.pad.x0 + i * chain.pad.step_x)
            for _ in range(2):  # as often as a vector has elements: from the same weights each time
                await pulse(dut.start)
                steps = found[o, i, r] = []
                while not steps or not steps[-1][-1]:
                    word = ctx.get(dut.matrix) if chain.dense or chain.depthwise else None
                    lane = ctx.get(dut.lane) if chain.depthwise else None
                    outside, last = bool(ctx.get(dut.outside)), bool(ctx.get(dut.last))
                    steps.append((ctx.get(dut.addr), outside, word, lane, ctx.get(dut.part), last))
                    await pulse(dut.step)

    simulate(dut, bench, cycles=20_000)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_taps(config):
    rng, outside = random.Random(7), set()
    for _ in range(25):
        chain = random_chain(rng)
        found = walk(chain, config)
        for place, steps in found.items():
            assert steps == list(expected(chain, config, place))
            outside |= {step[1] for step in steps}
    assert outside == {False, True}
