"""The sequencer dispatches the chains, and takes the traps, that the software expansion says."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.program.assembler import assemble
from concord.program.trace import trace
from concord.spec import isa
from concord.spec.formats import Rounding
from concord.spec.isa import COPY_UNIT, Mem, MvMode, Op, Trap
from concord.spec.presets import TINY
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.pipe.layouts import block_addr_bits, vector_addr_bits
from concord_rtl.sequencer.sequencer import Sequencer
from support.bench import simulate
from support.rtl_configs import COPYING, WRITABLE, WRITABLE_ENGINES

ADD = {Op.VV_ADD: 1, Op.VV_SUB: 2, Op.VV_RSUB: 3, Op.VV_MAX: 4, Op.VV_MIN: 5}


class Harness(wiring.Component):
    """A sequencer with its program memory."""

    def __init__(self, config, words):
        self.config, self.words = config, words
        self.sequencer = Sequencer(config)
        super().__init__({"start": In(1), "pc": In(16), "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sequencer = sequencer = self.sequencer
        m.submodules.memory = memory = VectorMemory(isa.WORD_BITS, self.config.program_depth, self.words)
        m.d.comb += [
            memory.read.addr.eq(sequencer.addr),
            sequencer.data.eq(memory.read.data),
            sequencer.run.start.eq(self.start),
            sequencer.run.pc.eq(self.pc),
            self.busy.eq(sequencer.run.busy),
        ]
        return m


def simulate_and_trap(words, *, stall=0.0, seed=0, pc=0, before=None, config=TINY):
    """Descriptors and final state of a run, after one that began at ``before``."""
    harness = Harness(config, words)
    unit = harness.sequencer
    chains, state = [], {}

    async def control(ctx):
        rng = random.Random(seed)
        if before is not None:
            await go(ctx, rng, before)
            chains.clear()
        await go(ctx, rng, pc)

    async def go(ctx, rng, pc):
        ctx.set(harness.start, 1)
        ctx.set(harness.pc, pc)
        await ctx.tick()
        ctx.set(harness.start, 0)
        while ctx.get(harness.busy):
            ctx.set(unit.chains.ready, rng.random() >= stall)
            ctx.set(unit.drained, rng.random() < 0.5)
            *_, moved, payload = await ctx.tick().sample(unit.chains.valid & unit.chains.ready, unit.chains.payload)
            if moved:
                chains.append(payload)
        state.update(done=ctx.get(unit.run.done), trapped=ctx.get(unit.run.trapped))
        state.update(trap=ctx.get(unit.run.trap), pc=ctx.get(unit.run.trap_pc))

    simulate(harness, control, cycles=50_000)
    return chains, state


def address(view, want, bits):
    mask = (1 << bits) - 1
    assert view.addr == want.base & mask
    assert (view.row, view.inner, view.outer) == (want.row & mask, want.inner & mask, want.outer & mask)


def rows(got, want, config):
    """The rows of the matrix memory that a chain writes: in place of the narrow destination."""
    if not config.writable_matrix:
        return
    assert got.to_matrix == (want.into_matrix is not None)
    if want.into_matrix is not None:
        first = want.into_matrix.matrix // config.steps * config.rows
        whole = replace(want.into_matrix.rows, base=first + want.into_matrix.rows.base)
        address(got.narrow, whole, block_addr_bits(config))
        assert 1 << block_addr_bits(config) >= config.matrix_rows


def compare(got, want, config=TINY):
    """One descriptor against one chain of the expansion."""
    bits = vector_addr_bits(config)
    mask = (1 << bits) - 1
    assert got.pc == want.pc
    assert got.wide_source == want.mem
    address(got.source, want.source, bits)
    reduction = {None: 0, Op.MV_MUL: 1, Op.V_MAX: 2, Op.V_REDMAX: 3}[want.reduce]
    assert got.reduction.value == reduction
    if want.reduce is Op.MV_MUL:
        assert got.depthwise == want.mode
        assert got.matrix == want.matrix & config.matrix_depth - 1
        if "sliding" in got.shape().members:
            assert got.sliding == want.sliding
            assert not want.sliding or got.window.cols == want.fresh
    units = [{"mul": 0, "add": 0, "act": 0}, {"mul": 0, "add": 0, "act": 0}]
    for mfu_op in want.mfu_ops:
        number, stage = int(mfu_op.stage.name[-1]), mfu_op.stage.name[:-1].lower()
        units[number][stage] = {Op.VV_MUL: 1, Op.V_RELU: 1, Op.V_TBL: 2, **ADD}[mfu_op.op]
        if mfu_op.operand is not None:
            address(got[f"{stage}{number}"], mfu_op.operand, bits)
        if mfu_op.table is not None:
            assert got[f"unit{number}"].slot == mfu_op.table
    for number, unit in enumerate(units):
        control = got[f"unit{number}"]
        assert (control.mul, control.add.value, control.act.value) == (unit["mul"], unit["add"], unit["act"])
    for mem, name in ((Mem.WIDE, "wide"), (Mem.NARROW, "narrow")):
        destination = want.destination(mem)
        into_matrix = mem is Mem.NARROW and want.into_matrix is not None
        assert got[f"to_{name}"] == (into_matrix or destination is not None)
        if destination is not None:
            address(got[name], destination, block_addr_bits(config) if mem is Mem.NARROW else bits)
    rows(got, want, config)
    assert (got.rows, got.inner, got.outer) == (want.rows, want.inner, want.outer)
    assert (got.quant.mode, got.quant.exp, got.quant.rounding) == (want.quant.mode, want.quant.exp, want.quant.rounding)
    if want.reduce is not None:
        window, pad = got.window, want.pad
        assert (window.kh, window.kw) == (want.window.kh, want.window.kw)
        assert (window.stride_y, window.stride_x) == (want.window.stride_y & mask, want.window.stride_x & mask)
        assert (window.dil_y, window.dil_x) == (want.window.dil_y, want.window.dil_x)
        assert (window.height, window.width) == (pad.height, pad.width)
        assert (got.y0, got.x0, got.step_y, got.step_x) == (pad.y0, pad.x0, pad.step_y, pad.step_x)


def check(words, **kwargs):
    want = trace(words, kwargs.get("config", TINY), pc=kwargs.get("pc", 0))
    chains, state = simulate_and_trap(words, **kwargs)
    assert len(chains) == len(want.chains)
    for got, chain in zip(chains, want.chains, strict=True):
        compare(got, chain, kwargs.get("config", TINY))
    assert state["trap"] == want.trap
    assert state["trapped"] == (want.trap != Trap.NONE)
    assert state["done"] == (want.trap == Trap.NONE)
    if want.trap != Trap.NONE:
        assert state["pc"] == want.pc
    return want


def random_fields(rng, form):
    """Field values from the corners and between."""
    values = {}
    for field in form.fields.fields:
        corner = rng.choice([field.low, field.high, 0, 1, rng.randint(field.low, field.high)])
        values[field.name] = min(max(corner, field.low), field.high)
    for name, low in form.least:
        values[name] = max(values[name], low)
    for name, high in form.most:
        values[name] = min(values[name], high)
    if form.op is Op.LOOP:
        values["count"] = rng.randint(1, 3)
    if form.op is Op.V_TBL:
        values["table"] = rng.randrange(TINY.table_slots)
    if form.op is Op.MV_MUL:
        values["sliding"] = 0
    if form.op is Op.SET_QUANT:
        values["exp"] = min(max(values["exp"], TINY.act.exp_min), TINY.act.exp_max)
    values.pop("last", None)
    return values


def random_chain(rng, config=TINY):
    """A legal chain."""
    words = []
    mem = rng.choice(list(Mem))
    words.append((Op.V_RD, {**random_fields(rng, isa.FORMS[Op.V_RD]), "mem": mem}))
    stages = [
        [Op.MV_MUL, Op.V_MAX, Op.V_REDMAX] if mem == Mem.NARROW else [Op.V_MAX, Op.V_REDMAX],
        *[[Op.VV_MUL], list(ADD), [Op.V_RELU, Op.V_TBL]] * 2,
    ]
    for index, choices in enumerate(stages):
        if rng.random() < 0.4:
            op = rng.choice(choices)
            values = random_fields(rng, isa.FORMS[op])
            if index:
                values["unit"] = (index - 1) // 3
            words.append((op, values))
    for target in rng.sample(list(Mem), rng.randint(1, 2)):
        if config.writable_matrix and target is Mem.NARROW and rng.random() < 0.6:
            fields = random_fields(rng, isa.FORMS[Op.M_WR])
            fields["matrix"] -= fields["matrix"] % config.steps
            words.append((Op.M_WR, fields))
            continue
        words.append((Op.V_WR, {**random_fields(rng, isa.FORMS[Op.V_WR]), "mem": target}))
    words[-1][1]["last"] = 1
    return [isa.encode(op, **values) for op, values in words]


def random_program(rng, config=TINY):
    """Legal code with loops, nested as deep as TINY allows."""
    control = [
        Op.NOP,
        Op.FENCE,
        Op.SET_ADDR,
        Op.INC_ADDR,
        Op.SET_SHAPE,
        Op.SET_ITERS,
        Op.SET_WINDOW,
        Op.SET_PAD,
        Op.SET_QUANT,
    ]
    words, depth = [], 0
    while len(words) < 90:
        choice = rng.random()
        if choice < 0.5:
            words += random_chain(rng, config)
        elif choice < 0.6 and depth < TINY.loop_levels:
            words.append(isa.encode(Op.LOOP, count=rng.randint(1, 3)))
            depth += 1
        elif choice < 0.7 and depth:
            words.append(isa.encode(Op.END_LOOP))
            depth -= 1
        else:
            op = rng.choice(control)
            words.append(isa.encode(op, **random_fields(rng, isa.FORMS[op])))
    return [*words, *[isa.encode(Op.END_LOOP)] * depth, isa.encode(Op.HALT)]


@pytest.mark.slow
@pytest.mark.parametrize("stall", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_legal_programs(seed, stall):
    check(random_program(random.Random(seed)), stall=stall, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("config", [WRITABLE, WRITABLE_ENGINES], ids=lambda config: config.name)
def test_programs_that_write_rows(config):
    traps, written = Counter(), 0
    for seed in range(8):
        want = check(random_program(random.Random(seed), config), config=config, seed=seed)
        traps[want.trap] += 1
        written += sum(chain.into_matrix is not None for chain in want.chains)
    for seed in range(20):
        want = check(damaged(random.Random(seed), config), config=config, seed=seed)
        traps[want.trap] += 1
    assert written > 50 and {Trap.NONE, Trap.CHAIN_ORDER} <= traps.keys()


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, WRITABLE, WRITABLE_ENGINES], ids=lambda config: config.name)
@pytest.mark.parametrize("targets", ["m", "wm", "mw", "mm", "mn", "nm", "wmw", "mwm", "nmw", "mr", "o", "r"])
def test_where_rows_can_be_written(targets, config):
    """Once, in place of a narrow destination, at the end, from the first word of a tile on."""
    ends = {
        "w": (Op.V_WR, {"mem": Mem.WIDE, "addr": 3}),
        "n": (Op.V_WR, {"mem": Mem.NARROW, "addr": 5}),
        "m": (Op.M_WR, {"matrix": 2 * config.steps, "reg": 1, "row": -1, "inner": 9, "outer": -2048}),
        "o": (Op.M_WR, {"matrix": 2 * config.steps + 1}),
        "r": (Op.V_RELU, {}),
    }
    words = [isa.encode(op, **fields, last=int(k == len(targets))) for k, (op, fields) in
             enumerate((ends[name] for name in targets), 1)]  # fmt: skip
    before = [isa.encode(Op.SET_ADDR, reg=1, value=(1 << 18) - 3), isa.encode(Op.V_RD, mem=Mem.WIDE)]
    want = check([*before, *words, isa.encode(Op.HALT)], config=config)
    assert bool(want.chains) == (config.writable_matrix and targets in ("m", "wm", "mw"))


def damaged(rng, config=TINY):
    """A program with one to three damaged words that ends in reasonable time."""
    while True:
        words = random_program(rng, config)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(words))
            words[at] = rng.choice(
                [
                    words[at] ^ 1 << rng.randrange(64),
                    0,
                    rng.getrandbits(64),
                    rng.choice(words),
                    isa.encode(Op.END_LOOP),
                    isa.encode(Op.HALT),
                ]
            )
        try:
            trace(words, config, limit=2000)
        except ValueError:  # a damaged loop count
            continue
        return words


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(12, 40))])
def test_damaged_programs_trap_like_the_expansion(seed):
    check(damaged(random.Random(1000 + seed)), stall=0.3, seed=seed)


@pytest.mark.slow
def test_running_past_the_end_traps():
    words = [isa.encode(Op.NOP)] * TINY.program_depth
    check(words)


@pytest.mark.slow
def test_start_elsewhere_and_start_beyond_the_end():
    words = [0] * 10 + [isa.encode(Op.HALT)]
    check(words, pc=10)
    check(words, pc=TINY.program_depth)


@pytest.mark.slow
def test_a_start_finds_nothing_of_the_run_before():
    """No address register, no open chain, no loop: the first run traps in the middle of all of them."""
    read, write = ({"mem": Mem.WIDE, "addr": at, "reg": 1} for at in (3, 5))
    first = [isa.encode(Op.SET_ADDR, reg=1, value=7), isa.encode(Op.LOOP, count=3), isa.encode(Op.V_RD)]
    words = [*first, 0, isa.encode(Op.V_RD, **read), isa.encode(Op.V_WR, **write, last=1), isa.encode(Op.END_LOOP)]
    want = check(words, before=0, pc=4)
    assert len(want.chains) == 1 and want.chains[0].source.base == 3 and want.trap != Trap.NONE


def test_a_register_is_added_to_every_address():
    """That of a source, a matrix, an operand and a destination."""
    words = [isa.encode(Op.SET_ADDR, reg=2, value=7), isa.encode(Op.INC_ADDR, reg=2, step=4)]
    words += [isa.encode(Op.V_RD, mem=Mem.NARROW, addr=1, reg=2), isa.encode(Op.MV_MUL, matrix=30, reg=2)]
    words += [isa.encode(Op.VV_ADD, addr=3, reg=2), isa.encode(Op.V_WR, mem=Mem.WIDE, addr=5, reg=2, last=1)]
    (chain,) = check([*words, isa.encode(Op.HALT)]).chains
    assert (chain.source.base, chain.matrix, chain.destinations[0].address.base) == (12, 41, 16)


@pytest.mark.slow
def test_rounding_that_is_not_there_traps():
    words = [isa.encode(Op.SET_QUANT, rounding=Rounding.STOCHASTIC), isa.encode(Op.HALT)]
    assert check(words).trap == Trap.NONE
    assert check(words, config=TINY.replace(stochastic=False)).trap == Trap.BAD_FIELD


@pytest.mark.slow
@pytest.mark.parametrize("mode", MvMode)
def test_windows_that_are_not_there_trap(mode):
    words = [isa.encode(Op.V_RD), isa.encode(Op.MV_MUL, mode=mode, sliding=1), isa.encode(Op.V_WR, last=1)]
    words.append(isa.encode(Op.HALT))
    assert check(words).trap == Trap.BAD_OPCODE
    (chain,) = check(words, config=TINY.replace(window_taps=2)).chains
    assert chain.sliding == (mode is MvMode.DEPTHWISE)


@pytest.mark.slow
@pytest.mark.parametrize("mems", ["ww", "nn", "wn", "nw", "wnw", "nwn"])
def test_a_second_write_to_a_memory_traps(mems):
    targets = [Mem.WIDE if mem == "w" else Mem.NARROW for mem in mems]
    writes = [isa.encode(Op.V_WR, mem=mem, last=int(k == len(mems) - 1)) for k, mem in enumerate(targets)]
    want = check([isa.encode(Op.V_RD, mem=Mem.WIDE), *writes, isa.encode(Op.HALT)])
    assert (want.trap != Trap.NONE) == (len(set(mems)) < len(mems))


@pytest.mark.slow
def test_a_fence_waits_until_all_is_done():
    chain = [isa.encode(Op.V_RD, mem=Mem.WIDE), isa.encode(Op.V_WR, mem=Mem.WIDE, last=1)]
    harness = Harness(TINY, [*chain, isa.encode(Op.FENCE), *chain, isa.encode(Op.HALT)])
    unit = harness.sequencer

    async def control(ctx):
        async def dispatched(cycles):
            count = 0
            for _ in range(cycles):
                *_, moved = await ctx.tick().sample(unit.chains.valid & unit.chains.ready)
                count += moved
            return count

        ctx.set(unit.chains.ready, 1)
        ctx.set(harness.start, 1)
        await ctx.tick()
        ctx.set(harness.start, 0)
        assert await dispatched(60) == 1
        ctx.set(unit.drained, 1)
        await ctx.tick()
        ctx.set(unit.drained, 0)
        assert await dispatched(60) == 1 and ctx.get(harness.busy)
        ctx.set(unit.drained, 1)
        assert await dispatched(10) == 0 and not ctx.get(harness.busy)

    simulate(harness, control)


@pytest.mark.slow
def test_comparison_notices_a_wrong_descriptor():
    words = [
        isa.encode(Op.V_RD, mem=Mem.WIDE, addr=3),
        isa.encode(Op.V_WR, mem=Mem.WIDE, addr=5, last=1),
        isa.encode(Op.HALT),
    ]
    chains, _ = simulate_and_trap(words)
    other = [*words]
    other[1] = isa.encode(Op.V_WR, mem=Mem.WIDE, addr=6, last=1)
    with pytest.raises(AssertionError):
        compare(chains[0], trace(other, TINY).chains[0])


@pytest.mark.slow
def test_a_taken_end_loop_takes_the_cycles_it_says():
    def cycles(turns):
        words = [isa.encode(Op.LOOP, count=turns), isa.encode(Op.NOP), isa.encode(Op.END_LOOP), isa.encode(Op.HALT)]
        harness, busy = Harness(TINY, words), 0

        async def control(ctx):
            nonlocal busy
            ctx.set(harness.start, 1)
            ctx.set(harness.sequencer.drained, 1)
            await ctx.tick()
            ctx.set(harness.start, 0)
            while ctx.get(harness.busy):
                busy += 1
                await ctx.tick()

        simulate(harness, control)
        return busy

    assert cycles(9) - cycles(8) == 1 + Sequencer.LOOP_CYCLES


@pytest.mark.parametrize("works", [True, False])
def test_a_copy_begins_when_chains_are_written_or_traps_without_a_memory(works):
    words = assemble("set_addr 2, 7\nv_rd wide, 0\nv_wr wide, 1\ncopy 2, 5, 8, 9\nv_rd wide, 2\nv_wr wide, 3\nhalt")
    harness, seen, chains = Harness(COPYING, words), [], []
    unit, copies = harness.sequencer, harness.sequencer.copies

    async def control(ctx):
        busy = taken = 0
        ctx.set(copies.works, works)
        ctx.set(unit.chains.ready, 1)
        ctx.set(harness.start, 1)
        await ctx.tick()
        ctx.set(harness.start, 0)
        while ctx.get(harness.busy):
            taken = taken + 1 if chains else 0
            ctx.set(unit.drained, not chains or taken > 20)
            ctx.set(copies.busy, busy > 0)
            if ctx.get(copies.go):
                assert taken > 20, "chains are written before"
                seen.append(tuple(int(ctx.get(value)) for value in (copies.column, copies.matrix, copies.count)))
                busy = 30
            elif ctx.get(unit.chains.valid):
                assert not busy, "the next chain waits"
                chains.append(int(ctx.get(unit.chains.p.pc)))
            busy = max(0, busy - 1)
            await ctx.tick()
        ends = unit.run.done, unit.run.trapped, unit.run.trap, unit.run.trap_pc
        seen.append(tuple(int(ctx.get(value)) for value in ends))

    simulate(harness, control, cycles=1_000)
    if works:
        assert (seen, chains) == ([(12 * COPY_UNIT, 8, 9), (1, 0, 0, 0)], [1, 4])
    else:
        assert (seen, chains) == ([(0, 1, Trap.NO_DRAM, 3)], [1])


@pytest.mark.parametrize(
    "text, beside, waits",
    [
        ("copy 0, 1, 8, 4, 1\n{chain}halt", [1], []),
        ("copy 0, 1, 8, 4, 1\n{chain}fence\n{chain}halt", [1], [4]),
        ("copy 0, 1, 8, 4, 1\n{chain}copy 0, 2, 16, 4\n{chain}halt", [1], [4]),
        ("copy 0, 1, 8, 4, 1\n{chain}copy 0, 2, 16, 4, 1\n{chain}halt", [1, 4], []),
        ("copy 0, 1, 8, 4, 1\n{chain}end_loop", [1], []),
    ],
)
def test_chains_run_beside_a_copy_ahead(text, beside, waits):
    """What must wait for it comes after it, the end of a run and of one that traps, too."""
    words = assemble(text.format(chain="v_rd wide, 0\nv_wr wide, 1\n"))
    harness = Harness(COPYING, words)
    unit, copies = harness.sequencer, harness.sequencer.copies
    during, after = [], []

    async def control(ctx):
        left = 0
        ctx.set(copies.works, 1)
        ctx.set(unit.chains.ready, 1)
        ctx.set(unit.drained, 1)
        ctx.set(harness.start, 1)
        await ctx.tick()
        ctx.set(harness.start, 0)
        while ctx.get(harness.busy):
            ctx.set(copies.busy, left > 0)
            if ctx.get(copies.go):
                assert not left, "one copy at a time"
                left = 60
            if ctx.get(unit.chains.valid):
                (during if left else after).append(int(ctx.get(unit.chains.p.pc)))
            left = max(0, left - 1)
            await ctx.tick()
        assert not left, "the run ends after the copy"

    simulate(harness, control, cycles=1_000)
    assert (during, after) == (beside, waits)
