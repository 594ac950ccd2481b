"""Chain walker and tap walker visit the addresses that the software expansion lists, in its order."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.program.chains import Address, Chain, MfuOp, Pad, Quant, VectorPlace, Window
from concord.spec.isa import Mem, MvMode, Op, PipelineStage
from concord.spec.presets import TINY
from concord_rtl.pipe.chain_walker import ChainWalker
from concord_rtl.pipe.hazard import request_layout
from concord_rtl.pipe.tap_walker import TapWalker, step_layout
from support.bench import put, simulate

MASK = (1 << 6) - 1
REDUCTION = {None: 0, Op.MV_MUL: 1, Op.V_MAX: 2, Op.V_REDMAX: 3}
TWO_ENGINES = TINY.replace(engines=2)
ONE_LANE = TINY.replace(lanes=1)
SLIDING = TINY.replace(lanes=4, window_taps=4)
NINE = TINY.replace(native=16, lanes=16, mfu_lanes=8, window_taps=9)


class Walkers(wiring.Component):
    """Both walkers, back to back."""

    def __init__(self, config):
        self.chain = ChainWalker(config)
        self.taps = TapWalker(config, request_layout(config, memories=2, payload=step_layout(config)))
        super().__init__({"enable": In(1), "moved": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.chain, m.submodules.taps = self.chain, self.taps
        m.d.comb += [
            self.moved.eq(self.chain.issued),
            self.chain.enable.eq(self.enable & (self.taps.jobs.ready | ~self.chain.with_job)),
            self.taps.jobs.valid.eq(self.chain.issued & self.chain.with_job),
            self.taps.jobs.p.eq(self.chain.job),
        ]
        return m


def descriptor(chain):
    """Payload of the chain walker's input."""

    def address(a):
        if a is None:
            return {}
        return {"addr": a.base & MASK, "row": a.row & MASK, "inner": a.inner & MASK, "outer": a.outer & MASK}

    operands = {f"{s.stage.name.lower()}": address(s.operand) for s in chain.mfu_ops}
    units = [{"mul": f"mul{k}" in operands, "add": int(f"add{k}" in operands)} for k in range(2)]
    return {
        "pc": chain.pc,
        "wide_source": int(chain.mem),
        "source": address(chain.source),
        "reduction": REDUCTION[chain.reduce],
        "depthwise": int(chain.mode),
        "matrix": chain.matrix,
        "unit0": units[0],
        "unit1": units[1],
        **operands,
        "to_wide": chain.destination(Mem.WIDE) is not None,
        "wide": address(chain.destination(Mem.WIDE)),
        "to_narrow": chain.destination(Mem.NARROW) is not None,
        "narrow": address(chain.destination(Mem.NARROW)),
        "rows": chain.rows,
        "inner": chain.inner,
        "outer": chain.outer,
        "window": {
            "cols": chain.fresh or chain.cols,
            "kh": chain.window.kh,
            "kw": chain.window.kw,
            "stride_y": chain.window.stride_y & MASK,
            "stride_x": chain.window.stride_x & MASK,
            "dil_y": chain.window.dil_y,
            "dil_x": chain.window.dil_x,
            "height": chain.pad.height,
            "width": chain.pad.width,
        },
        "y0": chain.pad.y0,
        "x0": chain.pad.x0,
        "step_y": chain.pad.step_y,
        "step_x": chain.pad.step_x,
        **({"sliding": 1} if chain.sliding else {}),
    }


def random_chain(rng):
    def address():
        return Address(*(rng.randint(0, 63) for _ in range(4)))

    reduce = rng.choice([None, Op.MV_MUL, Op.MV_MUL, Op.MV_MUL, Op.V_MAX, Op.V_REDMAX])
    mode = rng.choice(list(MvMode)) if reduce is Op.MV_MUL else MvMode.DENSE
    window, pad = Window(), Pad()
    if reduce is not None:
        window = Window(*(rng.randint(1, 3) for _ in range(2)), rng.randint(-9, 9), rng.randint(-9, 9), 2, 1)
        pad = Pad(-1, -2, rng.randint(1, 2), 1, rng.choice([0, 3]), rng.randint(1, 4))
    stages = [
        stage
        for stage in (PipelineStage.MUL0, PipelineStage.ADD0, PipelineStage.MUL1, PipelineStage.ADD1)
        if rng.random() < 0.5
    ]
    mfu_ops = [MfuOp(Op.VV_MUL if "MUL" in stage.name else Op.VV_ADD, stage, address()) for stage in stages]
    mems = rng.sample(list(Mem), rng.randint(1, 2))
    return Chain(
        pc=rng.randrange(100),
        mem=Mem.NARROW if reduce is Op.MV_MUL else rng.choice(list(Mem)),
        source=address(),
        rows=rng.randint(1, 5),
        cols=rng.randint(1, 3) if reduce is Op.MV_MUL and mode is MvMode.DENSE else 1,
        inner=rng.randint(1, 3),
        outer=rng.randint(1, 3),
        window=window,
        pad=pad,
        reduce=reduce,
        mode=mode,
        matrix=rng.randint(0, 20),
        mfu_ops=tuple(mfu_ops),
        destinations=tuple(VectorPlace(mem, address()) for mem in mems),
        quant=Quant(),
    )


def sliding_chain(rng):
    """A random chain as a sliding product."""
    kh, kw = rng.choice([(1, 1), (2, 2), (1, 4), (4, 1), (1, 3), (2, 1)])
    fresh, dil_x = rng.randint(1, kw), rng.randint(1, 2)
    window = Window(kh, kw, rng.randint(-9, 9), rng.randint(-9, 9), rng.randint(1, 2), dil_x)
    pad = Pad(-1, rng.randint(-4, 1), rng.randint(1, 2), fresh * dil_x, rng.choice([0, 3]), rng.randint(1, 4))
    chain = replace(
        random_chain(rng), mem=Mem.NARROW, reduce=Op.MV_MUL, mode=MvMode.DEPTHWISE, rows=1, cols=1, fresh=fresh,
        window=window, pad=pad, inner=rng.randint(1, 5),
    )  # fmt: skip
    return replace(chain, source=replace(chain.source, inner=fresh * window.stride_x))


def sliding_steps(chain, config):
    """The same as :func:`expected_steps` of a sliding product: column by column, the new columns of a window alone.

    Those on the left of the image are left out.
    """
    sources, inside = chain.sources(config) & MASK, chain.inside()
    kh, kw = chain.window.kh, chain.window.kw
    for o, i in np.ndindex(chain.outer, chain.inner):
        columns = range(kw - chain.fresh if i else chain.skipped, kw)
        taps = [ky * kw + kx for kx in columns for ky in range(kh)]
        for n, tap in enumerate(taps):
            ends = (n == 0, n == len(taps) - 1)
            yield 0, sources[o, i, 0, tap, 0], not inside[o, i, tap], chain.matrix, None, 0, ends, 1


def expected_steps(chain, config):
    """(memory, address, outside, matrix word, lane, part, (first, last), vectors) of every tile step."""
    if chain.sliding:
        yield from sliding_steps(chain, config)
        return
    sources, inside = chain.sources(config) & MASK, chain.inside()
    words = chain.matrix_words(config)
    group = config.engines if chain.dense else 1
    for o, i, r in np.ndindex(chain.outer, chain.inner, chain.rows):
        if r % group:
            continue
        taps, cols = sources.shape[3:]
        steps = config.steps if chain.dense else 1
        count = taps * cols * steps
        for n, (tap, col, part) in enumerate(np.ndindex(taps, cols, steps)):
            word = lane = None
            if chain.dense:
                word = words[r // group, tap, col, part]
            elif chain.depthwise:
                word, lane = words[r, tap // config.lanes], tap % config.lanes
            ends = (n == 0, n == count - 1)
            outside = not inside[o, i, tap]
            vectors = min(group, chain.rows - r)
            yield int(chain.mem), sources[o, i, r, tap, col], outside, word, lane, part, ends, vectors


def expected_vectors(chain):
    ports = [*(chain.addresses(s.operand) & MASK for s in chain.mfu_ops)]
    wide, narrow = (chain.destination(mem) for mem in (Mem.WIDE, Mem.NARROW))
    for index in np.ndindex(chain.shape):
        yield (
            [int(p[index]) for p in ports],
            None if wide is None else int(chain.addresses(wide)[index]) & MASK,
            None if narrow is None else int(chain.addresses(narrow)[index]) & MASK,
        )


def walk(config, chains, *, stall=0.0, seed=0):
    """Tile steps and vectors that the walkers produce, and the cycles it took."""
    dut = Walkers(config)
    steps, vectors, cycles = [], [], [0]
    total = sum(len(list(expected_steps(chain, config))) for chain in chains)

    async def feed(ctx):
        for chain in chains:
            await put(ctx, dut.chain.chains, descriptor(chain))

    async def watch(ctx):
        rng = random.Random(seed)
        while len(steps) < total:
            ctx.set(dut.enable, rng.random() >= stall)
            ctx.set(dut.taps.o.ready, rng.random() >= stall)
            unit = dut.chain
            *_, moved, step, issued, fetch, retire = await ctx.tick().sample(
                dut.taps.o.valid & dut.taps.o.ready, dut.taps.o.payload, dut.moved, unit.fetch, unit.retire
            )
            cycles[0] += 1
            if moved:
                steps.append(step)
            if issued:
                vectors.append((fetch, retire))

    simulate(dut, feed, watch, cycles=50_000)
    return steps, vectors, cycles[0]


def compare(config, chains, steps, vectors):
    want_steps = [step for chain in chains for step in expected_steps(chain, config)]
    for got, (memory, addr, outside, word, lane, part, (first, last), count) in zip(steps, want_steps, strict=True):
        p = got.payload
        assert (got.memory, got.addr, p.outside, p.first, p.last) == (memory, addr, outside, first, last)
        assert got.check == (not outside)
        if word is not None:
            assert p.matrix == word % config.matrix_depth
            assert config.engines == 1 or p.vectors == count - 1
        if lane is not None:
            assert p.lane == lane
        if config.steps > 1:
            assert p.part == part
    want_vectors = [vector for chain in chains for vector in expected_vectors(chain)]
    for (fetch, retire), (operands, wide, narrow) in zip(vectors, want_vectors, strict=True):
        assert [fetch.addr[k] for k in range(4) if fetch.enable >> k & 1] == operands
        assert (retire.wide if retire.to_wide else None) == wide
        assert (retire.narrow if retire.to_narrow else None) == narrow


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, TWO_ENGINES, ONE_LANE], ids=["tiny", "two-engines", "one-lane"])
@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_addresses(config, stall):
    rng = random.Random(7)
    chains = [random_chain(rng) for _ in range(25)]
    steps, vectors, _ = walk(config, chains, stall=stall)
    compare(config, chains, steps, vectors)


def compare_marks(config, chains, steps):
    """Marks of the first window of a row, of new places, and of the first window of a chain."""
    found = iter(steps)
    for chain in chains:
        for number, _ in enumerate(expected_steps(chain, config)):
            payload = next(found).payload
            assert payload.sliding == chain.sliding
            assert not (payload.first and payload.starts) or number == 0
            assert payload.starts or number
            if chain.sliding:
                row = chain.window.kh * (chain.window.kw - chain.skipped + (chain.inner - 1) * chain.fresh)
                assert payload.clears == (number % row == 0)
                assert payload.grows == (number % row < chain.window.taps)


@pytest.mark.slow
@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_windows_that_slide(stall):
    """Among other chains."""
    rng = random.Random(11)
    chains = [sliding_chain(rng) if rng.random() < 0.7 else random_chain(rng) for _ in range(25)]
    steps, vectors, _ = walk(SLIDING, chains, stall=stall)
    compare(SLIDING, chains, steps, vectors)
    compare_marks(SLIDING, chains, steps)


@pytest.mark.slow
@pytest.mark.parametrize("dil_x", [1, 2])
def test_first_windows_that_begin_on_the_left_of_the_image(dil_x):
    """Whatever part of them: columns that are left out, and come in later."""
    base = sliding_chain(random.Random(3))
    chains = [
        replace(
            base, inner=4, outer=2, fresh=fresh, window=Window(kh, kw, 7, 5, 1, dil_x),
            pad=Pad(-1, x0, 1, fresh * dil_x, 4, 5), source=replace(base.source, inner=fresh * 5),
        )
        for (kh, kw), x0 in product([(1, 1), (2, 2), (3, 3), (1, 9)], range(-7, 2, 2 if dil_x == 1 else 3))
        for fresh in {1, (kw + 1) // 2, kw}
    ]  # fmt: skip
    steps, vectors, _ = walk(NINE, chains)
    compare(NINE, chains, steps, vectors)
    compare_marks(NINE, chains, steps)
    assert max(chain.skipped for chain in chains) == (7 if dil_x == 1 else 4)


@pytest.mark.slow
def test_no_bubbles_between_steps_jobs_and_chains():
    rng = random.Random(3)
    chains = [random_chain(rng) for _ in range(12)]
    chains = [replace(c, reduce=Op.MV_MUL, mem=Mem.NARROW, mode=MvMode.DENSE, window=Window(), cols=3) for c in chains]
    steps, _, cycles = walk(TINY, chains)
    assert cycles <= len(steps) + 4


def test_comparison_notices_a_wrong_address():
    rng = random.Random(5)
    chain = random_chain(rng)
    steps, vectors, _ = walk(TINY, [chain])
    wrong = replace(chain, source=replace(chain.source, base=chain.source.base + 1))
    with pytest.raises(AssertionError):
        compare(TINY, [wrong], steps, vectors)
