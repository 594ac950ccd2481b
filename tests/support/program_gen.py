"""Random programs that cover the instruction set and stay inside the memories.

``random_program(config, rng, size)`` gives the words of a program of about ``size`` chains and memories to start from,
the program included. All vector memories, weights and tables are filled: nothing depends on what a program has written.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.image import Memories
from concord.image.packing import to_vector_columns
from concord.program import Address, Chain, Pad, Quant, VectorPlace, Window, trace
from concord.program.builder import ProgramBuilder
from concord.program.chains import MatrixWrite
from concord.program.matrix_writes import broken_beside_rules
from concord.program.sliding import broken_rules
from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.isa import COPY_UNIT, INITIAL, MATRIX_ADDR_BITS, VECTOR_ADDR_BITS, VECTOR_UNIT, Mem, MvMode, Op
from concord.spec.memmap import RegionId
from concord.spec.operations import INTEGER_STATE_OPS

#: Columns of the external memory that programs copy from.
LOADED_COLUMNS = 1 << 13
#: Columns of weights; those of narrow vectors and those of wide ones follow.
WEIGHT_COLUMNS, VECTOR_COLUMNS = 3 << 11, 1 << 10
_MIDDLE = 1 << VECTOR_ADDR_BITS - 1
_MOST_VECTORS = 24
_ADD = (Op.VV_ADD, Op.VV_SUB, Op.VV_RSUB, Op.VV_MAX, Op.VV_MIN)
_ACT = (Op.V_RELU, Op.V_TBL)
_UNIT = ((Op.VV_MUL,), _ADD, _ACT)


def random_program(config: NpuConfig, rng, size: int, whole_tiles: bool = False):
    """Words of a program of about ``size`` chains, and the memories it starts from.

    Parameters
    ----------
    config : NpuConfig
    rng : random.Random
        Seeded by the caller.
    size : int
        Chains in the text; loops execute some of them several times.
    whole_tiles : bool
        Whether all products are dense, with matrices that begin where a tile does.
    """
    words = without_collisions(_Generator(config, rng, whole_tiles).program(size), config)
    memories = random_memories(config, rng)
    memories.program[: len(words)] = words
    return words, memories


def without_collisions(words: list[int], config: NpuConfig) -> list[int]:
    """The program, with copies that the next word waits for where chains would meet them."""
    while config.dram:
        chains = trace(words, config).chains
        met = {chain.beside.pc for chain in chains if broken_beside_rules(chain, config)}
        if not met:
            break
        ahead = isa.encode(Op.COPY, rows=1, ahead=1) ^ isa.encode(Op.COPY, rows=1)
        words = [word ^ ahead if pc in met else word for pc, word in enumerate(words)]
    return words


def chains_of(config: NpuConfig, rng, size: int):
    """Words of about ``size`` chains for the middle of a program, and the state they begin with: op and fields."""
    generator = _Generator(config, rng)
    generator.copies = False
    state = [(op, dict(values)) for op, values in generator.state.items()]
    generator.chains(size)
    return state, generator.builder.words()


# Contents --------------------------------------------------------------------------------------


def random_halves(draw, shape, wild: bool):
    """binary16 patterns around 1 and zeros and subnormals; if ``wild``, huge numbers, infinities and NaNs too."""
    exponent = np.clip(np.rint(draw.normal(13.5, 2.5, shape)), 1, 30).astype(np.int64)
    bits = draw.integers(0, 2, shape) << 15 | exponent << 10 | draw.integers(0, 1024, shape)
    corners = np.array(
        [
            0,
            0x8000,
            1,
            0x8001,
            0x3FF,
            0x400,
            0x3C00,
            0xBC00,
            0x7BFF,
            0xFBFF,
            0x7800,
            0x7C00,
            0xFC00,
            0x7E00,
            0xFE01,
            0x7C01,
        ]
    )
    corners, chance = (corners, 0.08) if wild else (corners[:8], 0.03)
    return np.where(draw.random(shape) < chance, draw.choice(corners, shape), bits).astype(np.uint16)


def random_codes(draw, shape, q_max: int):
    """Mantissas in the symmetric range, weighted to its ends and to zero."""
    codes = draw.integers(-q_max, q_max + 1, shape)
    return np.where(draw.random(shape) < 0.15, draw.choice(np.array([-q_max, 0, q_max]), shape), codes)


def random_memories(config: NpuConfig, rng) -> Memories:
    """Memories full of random numbers; one in three is wild."""
    draw = np.random.default_rng(rng.getrandbits(64))
    wild = rng.random() < 1 / 3
    memories = Memories(config)
    act, wgt = config.act, config.wgt
    memories.wide[:] = random_halves(draw, memories.wide.shape, wild)
    memories.table[:] = random_halves(draw, memories.table.shape, wild)
    memories.narrow_mant[:] = random_codes(draw, memories.narrow_mant.shape, act.q_max)
    usual = max(act.exp_min, -10)
    spread = (act.exp_min, act.exp_max) if wild else (usual, max(usual, min(act.exp_max, -3)))
    memories.narrow_exp[:] = draw.integers(spread[0], spread[1] + 1, memories.narrow_exp.shape)
    memories.matrix_mant[:] = random_codes(draw, memories.matrix_mant.shape, wgt.q_max)
    if config.dram:
        memories.dram[:WEIGHT_COLUMNS] = _columns(config, draw)
        _put_vectors(memories, rng)
    low = wgt.exp_min if wild else max(wgt.exp_min, wgt.exp_max - 10)
    memories.matrix_exp[:] = draw.integers(low, wgt.exp_max + 1, memories.matrix_exp.shape)
    for slot in range(config.table_slots):
        base = rng.randrange(config.table_depth - 1)
        entries = rng.randint(1, config.table_depth - base)
        least = rng.choice([0, -(entries // 2), rng.randint(-entries, 0)])
        word = config.table_slot.pack(
            low=least,
            high=least + entries - 1,
            offset=base - least,
            scale=rng.randint(-3, 8),
            settled_low=rng.randint(0, 1),
            settled_high=rng.randint(0, 1),
        )
        memories.write(RegionId.SLOTS, slot, [word])
    return memories


def _columns(config: NpuConfig, draw):
    """Columns that are valid as exponents and as mantissas: rows begin anywhere."""
    wgt, bits, size = config.wgt, config.sdram.width // config.column_mantissas, config.wgt_mant
    shape = WEIGHT_COLUMNS, config.column_mantissas
    codes = random_codes(draw, shape, wgt.q_max) & (1 << size) - 1
    exps = codes[:, 0] & (1 << config.wgt_exp_width) - 1
    codes[:, 0] = np.where(exps > wgt.exp_max - wgt.exp_min, 1, codes[:, 0])
    return (codes << bits * np.arange(config.column_mantissas)).sum(axis=1)


def _put_vectors(memories: Memories, rng) -> None:
    """Vectors in the external memory, as they are in the vector memories somewhere."""
    config = memories.config
    for mem in Mem:
        count = VECTOR_COLUMNS // config.vector_columns(mem)
        arrays = memories.vectors(mem)
        at = np.array([rng.randrange(len(arrays[0])) for _ in range(count)])
        columns = to_vector_columns(config, mem, *(array[at] for array in arrays)).ravel()
        first = WEIGHT_COLUMNS + mem * VECTOR_COLUMNS
        memories.dram[first : first + len(columns)] = columns


# Programs --------------------------------------------------------------------------------------


class _Generator:
    """Keeps the state a program has set, and the range of every address register."""

    def __init__(self, config: NpuConfig, rng, whole_tiles: bool = False):
        self.config, self.rng, self.whole_tiles = config, rng, whole_tiles
        self.builder = ProgramBuilder()
        left_out = INTEGER_STATE_OPS if config.code_scaling else (Op.SET_SCALE, *INTEGER_STATE_OPS)
        self.state = {op: dict(values) for op, values in INITIAL.items() if op not in left_out}
        #: Programs have copies or ``m_wr``, not both: they must not write the same tiles.
        self.copies = bool(config.dram) and (not config.writable_matrix or rng.random() < 0.7)
        self.latest = None  # first word and count of those that the latest ``m_wr`` writes
        self.registers = {0: (0, 0)}  # least and greatest value where it is used

    def chains(self, size: int) -> None:
        self._body(size, level=0)

    def program(self, size: int) -> list[int]:
        self.chains(size)
        self.builder.halt()
        return self.builder.words()

    def _room(self) -> bool:
        return len(self.builder) < self.config.program_depth - 48

    def _body(self, size: int, level: int) -> None:
        rng = self.rng
        while size > 0 and self._room():
            roll = rng.random()
            if roll < 0.12 and level < min(self.config.loop_levels, 3):
                inside = min(size, rng.randint(1, 3))
                self._loop(inside, level)
                size -= inside
            elif self.copies and roll > 0.85:
                self._copy()
            elif self.config.dram and roll > 0.75:
                self._copy_vectors()
            elif roll < 0.17:
                self.builder.emit(rng.choice([Op.NOP, Op.FENCE]))
            elif roll < 0.25 and level == 0:
                number, value = rng.randint(1, 4), rng.randint(-9, 9)
                self.builder.set_addr(number, value % (1 << MATRIX_ADDR_BITS))
                self.registers[number] = (value, value)
            else:
                self._chain()
                size -= 1

    def _loop(self, size: int, level: int) -> None:
        """A loop with a register of its own, which the bodies around nested loops do not use."""
        number = self.rng.randint(1, 4) if level == 0 else 4 + level
        count, step, start = self.rng.randint(1, 3), self.rng.randint(-3, 3), self.rng.randint(-5, 5)
        outside = dict(self.registers)
        self.builder.set_addr(number, start % (1 << MATRIX_ADDR_BITS))
        self.builder.loop(count)
        for op, values in self.state.items():  # every turn begins with the same state
            self.builder.emit(op, **values)
        ends = (start, start + step * (count - 1))
        self.registers[number] = (min(ends), max(ends))
        self._body(size, level + 1)
        self.builder.inc_addr(number, step)
        self.builder.end_loop()
        self.registers = outside
        if level == 0:
            self.registers[number] = (start + step * count,) * 2

    def _copy(self) -> None:
        """A copy within the columns that are loaded."""
        rng, config = self.rng, self.config
        tiles = config.matrix_depth // config.steps
        tile = rng.randrange(tiles)
        rows = rng.choice([1, 2, config.rows, rng.randint(1, (tiles - tile) * config.rows)])
        rows = min(rows, (tiles - tile) * config.rows, WEIGHT_COLUMNS // 4 // config.row_columns)
        number = rng.choice(list(self.registers))
        low, high = self.registers[number]
        last = (WEIGHT_COLUMNS - rows * config.row_columns) // COPY_UNIT
        unit = rng.randint(max(0, -low), last - max(0, high))
        self.builder.copy(number, unit, tile * config.steps, rows, ahead=int(rng.random() < 0.7))

    def _copy_vectors(self) -> None:
        """A copy of vectors whose columns follow each other as in all other copies of their memory."""
        rng, config, mem = self.rng, self.config, self.rng.choice(list(Mem))
        size, words = config.vector_columns(mem), config.wide_depth if mem is Mem.WIDE else config.narrow_depth
        first = WEIGHT_COLUMNS + mem * VECTOR_COLUMNS
        begin = size * rng.randint(0, (VECTOR_COLUMNS // VECTOR_UNIT - 1) // size)
        room = (VECTOR_COLUMNS - begin * VECTOR_UNIT) // size
        addr = rng.randrange(words)
        count = min(rng.choice([1, 2, rng.randint(1, 40)]), room, words - addr)
        number = rng.choice([number for number, (low, high) in self.registers.items() if low == high])
        unit = first // VECTOR_UNIT + begin - self.registers[number][0]
        out = int(rng.random() < 0.5)
        self.builder.v_copy(number, unit, addr, count, mem=int(mem), out=out)

    # State -------------------------------------------------------------------------------------

    def _set(self, op: Op, **values: int) -> None:
        if self.state[op] != values or self.rng.random() < 0.1:
            self.builder.emit(op, **values)
            self.state[op] = values

    def _shape(self, dense: bool) -> None:
        rng = self.rng
        while True:
            rows, inner, outer = (rng.choice([1, 1, 2, 3, rng.randint(1, 8)]) for _ in range(3))
            if rows * inner * outer <= _MOST_VECTORS:
                break
        cols = rng.choice([1, 2, 3]) if dense or rng.random() < 0.3 else 1
        self._set(Op.SET_SHAPE, rows=rows, cols=cols)
        self._set(Op.SET_ITERS, inner=inner, outer=outer)

    def _window(self) -> None:
        rng = self.rng
        kh, kw = rng.choice([(1, 1), (1, 1), (1, 2), (2, 2), (3, 1), (3, 3)])
        steps = [-2, -1, 0, 1, 2, 3, 5]
        self._set(
            Op.SET_WINDOW, kh=kh, kw=kw, stride_y=rng.choice(steps), stride_x=rng.choice(steps),
            dil_y=rng.randint(1, 2), dil_x=rng.randint(1, 2),
        )  # fmt: skip
        bounded = rng.random() < 0.5
        self._set(
            Op.SET_PAD, y0=rng.randint(-2, 1), x0=rng.randint(-2, 1), step_y=rng.randint(0, 2),
            step_x=rng.randint(0, 2), height=rng.randint(1, 6) if bounded else 0, width=rng.randint(1, 6),
        )  # fmt: skip

    def _quant(self) -> None:
        rng, act = self.rng, self.config.act
        self._set(
            Op.SET_QUANT,
            mode=int(rng.random() < 0.4),
            exp=rng.choice([rng.randint(act.exp_min, act.exp_max), max(act.exp_min, rng.randint(-9, -4))]),
            rounding=rng.choice([0, 0, 1, 2] if self.config.stochastic else [0, 0, 1]),
        )

    # Chains ------------------------------------------------------------------------------------

    def _chain(self) -> None:
        rng, builder = self.rng, self.builder
        reduce = rng.choice([None, Op.MV_MUL, Op.MV_MUL, Op.V_MAX, Op.V_REDMAX])
        mode = rng.choice([MvMode.DENSE, MvMode.DENSE, MvMode.DEPTHWISE]) if reduce is Op.MV_MUL else MvMode.DENSE
        mem = Mem.NARROW if reduce is Op.MV_MUL else rng.choice(list(Mem))
        sliding = False
        if self.whole_tiles:
            mode = MvMode.DENSE
        if self.config.window_taps and not self.whole_tiles and reduce is Op.MV_MUL and rng.random() < 0.5:
            mode, sliding = MvMode.DEPTHWISE, True
            self._slide()
        elif rng.random() < 0.8:
            self._shape(reduce is Op.MV_MUL and mode is MvMode.DENSE)
        if not sliding and reduce is not None and rng.random() < 0.7:
            self._window()
        if rng.random() < 0.5:
            self._quant()
        probe = self._probe(reduce, mode, mem, sliding)
        source = self._source(probe)
        matrix = self._matrix(probe)
        if source is None or matrix is None:
            self._set(Op.SET_SHAPE, rows=1, cols=1)
            self._set(Op.SET_WINDOW, **INITIAL[Op.SET_WINDOW])
            self._set(Op.SET_PAD, **INITIAL[Op.SET_PAD])
            probe = self._probe(reduce, mode, mem, sliding)
            source, matrix = self._source(probe), self._matrix(probe)
        scaled = self.config.code_scaling and reduce is Op.MV_MUL and rng.random() < 0.5
        if scaled and rng.random() < 0.7:
            self._set(Op.SET_SCALE, shift=rng.choice([0, 31, rng.randint(0, 31)]))
        self.wide = source if mem is Mem.WIDE else None  # a wide address that the chain reads
        builder.v_rd(mem, **source)
        if reduce is Op.MV_MUL:
            builder.mv_mul(mode=mode, sliding=int(sliding), **matrix)
        elif reduce is not None:
            builder.emit(reduce)
        if scaled:
            self.wide = self._operand(probe, Mem.WIDE, follows=1)
            builder.vv_scale(**self.wide)
        for unit in range(2):
            self._unit(probe, unit, _UNIT[2:] if scaled and unit == 0 else _UNIT)
        targets = rng.choice([[Mem.WIDE], [Mem.NARROW], [Mem.WIDE, Mem.NARROW], [Mem.NARROW, Mem.WIDE]])
        if probe.sliding:
            self._sliding_targets(probe, source, targets)
            return
        if self.config.writable_matrix and not self.copies and Mem.NARROW in targets and rng.random() < 0.6:
            fields = self._rows(probe, matrix)
            if fields is not None:
                targets = [None if target is Mem.NARROW else target for target in targets]
        for target in targets:
            if target is None:
                builder.m_wr(**fields)
                continue
            near = self.wide if target is Mem.WIDE else source if mem is Mem.NARROW else None
            often = 0.8 if probe.dense and self.config.engines > 1 else 0.4
            builder.v_wr(target, **self._operand(probe, target, near if rng.random() < often else None))

    def _slide(self) -> None:
        """Shape and window of a sliding product."""
        rng = self.rng
        shapes = [(1, 1), (1, 2), (2, 2), (1, 3), (3, 1), (1, 4), (2, 3), (3, 2), (3, 3), (4, 4), (5, 3)]
        kh, kw = rng.choice([shape for shape in shapes if shape[0] * shape[1] <= self.config.window_taps])
        inner, outer = rng.choice([(1, 1), (1, 4), (3, 2), (7, 3), (12, 2), (24, 1)])
        fresh, dil_x = rng.choice([1, rng.randint(1, kw)]), rng.randint(1, 2)
        self._set(Op.SET_SHAPE, rows=1, cols=fresh)
        self._set(Op.SET_ITERS, inner=inner, outer=outer)
        steps = [-2, -1, 0, 1, 1, 2, 3]
        self._set(
            Op.SET_WINDOW, kh=kh, kw=kw, stride_y=rng.choice(steps), stride_x=rng.choice(steps),
            dil_y=rng.randint(1, 2), dil_x=dil_x,
        )  # fmt: skip
        self._set(
            Op.SET_PAD, y0=rng.randint(-2, 1), x0=rng.randint(-2, 1), step_y=rng.randint(0, 2),
            step_x=fresh * dil_x, height=rng.choice([0, rng.randint(1, 6)]), width=rng.randint(1, 9),
        )  # fmt: skip

    def _sliding_targets(self, probe: Chain, source: dict[str, int], targets: list[Mem]) -> None:
        """Destinations, a narrow one only where the windows do not read it."""
        narrow = None
        for _ in range(6 if Mem.NARROW in targets else 0):
            place = self._operand(probe, Mem.NARROW)
            address = Address(place["addr"], place["row"], place["inner"], place["outer"])
            chain = replace(
                probe,
                source=Address(source["addr"], source["row"], source["inner"], source["outer"]),
                destinations=(VectorPlace(Mem.NARROW, address),),
            )
            if place["reg"] == source["reg"] and not broken_rules(chain, self.config):
                narrow = place
        for target in targets if narrow is not None else [Mem.WIDE]:
            place = narrow if target is Mem.NARROW else self._operand(probe, target)
            self.builder.v_wr(target, **place)

    def _unit(self, probe: Chain, unit: int, stages: tuple[tuple[Op, ...], ...]) -> None:
        rng = self.rng
        for ops in stages:
            if rng.random() < 0.4:
                op = rng.choice(ops)
                if op is Op.V_TBL:
                    self.builder.v_tbl(rng.randrange(self.config.table_slots), unit=unit)
                elif op is Op.V_RELU:
                    self.builder.v_relu(unit=unit)
                else:
                    self.wide = self._operand(probe, Mem.WIDE)
                    self.builder.emit(op, unit=unit, **self.wide)

    def _probe(self, reduce: Op | None, mode: MvMode, mem: Mem, sliding: bool) -> Chain:
        """A chain with the present state, to measure addresses with."""
        dense = reduce is Op.MV_MUL and mode is MvMode.DENSE
        shape = self.state[Op.SET_SHAPE]
        probe = Chain(
            pc=0, mem=mem, source=Address(0), rows=shape["rows"], cols=shape["cols"] if dense else 1,
            **self.state[Op.SET_ITERS],
            window=Window(**self.state[Op.SET_WINDOW]) if reduce else Window(),
            pad=Pad(**self.state[Op.SET_PAD]) if reduce else Pad(),
            reduce=reduce, mode=mode, matrix=0, mfu_ops=(), destinations=(VectorPlace(mem, Address(0)),), quant=Quant(),
            fresh=shape["cols"] if sliding else 0,
        )  # fmt: skip
        if reduce in (Op.V_MAX, Op.V_REDMAX) and not probe.inside().any(axis=2).all():
            self._set(Op.SET_PAD, **(self.state[Op.SET_PAD] | {"height": 0}))
            return self._probe(reduce, mode, mem, sliding)
        return probe

    def _strides(self, probe: Chain) -> Address:
        rng = self.rng
        row = rng.choice([0, 1, 1, 1, -1, 2])
        inner = rng.choice([0, 1, -1, probe.rows * row, probe.rows * row])
        outer = rng.choice([0, 1, -2, probe.inner * inner, probe.inner * inner])
        return Address(_MIDDLE, row, inner, outer)

    def _fit(self, low: int, high: int, depth: int, bits: int, near=None) -> dict[str, int] | None:
        """A register and an address so that offsets ``low..high`` stay inside ``depth``, or nothing.

        With the address ``near`` of another access, if possible at most two words from it.
        """
        number = self.rng.choice(list(self.registers)) if near is None else near["reg"]
        least, greatest = self.registers[number]
        last = depth - 1 - high - (greatest - least)
        if last < -low:
            return None
        first = self.rng.randint(-low, last)
        if near is not None:
            first = min(max((near["addr"] + least) % (1 << bits) + self.rng.randint(-2, 2), -low), last)
        return {"reg": number, "addr": (first - least) % (1 << bits)}

    def _operand(self, probe: Chain, mem: Mem, near=None, follows: int = 0) -> dict[str, int]:
        """Fields of an address; words that ``follows`` it are in the memory, too."""
        depth = self.config.wide_depth if mem is Mem.WIDE else self.config.narrow_depth
        for attempt in range(4):
            address = self._strides(probe) if attempt < 3 else Address(_MIDDLE)
            offsets = probe.addresses(address) - _MIDDLE
            found = self._fit(int(offsets.min()), int(offsets.max()) + follows, depth, VECTOR_ADDR_BITS, near)
            if found is not None:
                break
        return found | {"row": address.row, "inner": address.inner, "outer": address.outer}

    def _source(self, probe: Chain) -> dict[str, int] | None:
        depth = self.config.wide_depth if probe.mem is Mem.WIDE else self.config.narrow_depth
        for attempt in range(4):
            address = self._strides(probe) if attempt < 3 else Address(_MIDDLE)
            if probe.dense and self.rng.random() < 0.7:
                address = replace(address, row=0)
            if probe.sliding:
                address = replace(address, inner=probe.fresh * probe.window.stride_x)
            offsets = replace(probe, source=address).sources(self.config) - _MIDDLE
            inside = np.broadcast_to(probe.inside()[:, :, None, :, None], offsets.shape)
            offsets = offsets[inside] if inside.any() else np.zeros(1, dtype=np.int64)
            found = self._fit(int(offsets.min()), int(offsets.max()), depth, VECTOR_ADDR_BITS)
            if found is not None:
                return found | {"row": address.row, "inner": address.inner, "outer": address.outer}
        return None

    def _rows(self, probe: Chain, product: dict[str, int]) -> dict[str, int] | None:
        """Fields of an ``m_wr`` whose rows a product of the same chain does not read, or nothing."""
        rng, config = self.rng, self.config
        number = rng.choice(list(self.registers))
        least, greatest = self.registers[number]
        for _ in range(8):
            row = rng.choice([0, 1, 1, -1, config.rows, config.rows + 1])
            inner = rng.choice([1, -1, probe.rows * row, config.rows])
            outer = rng.choice([1, -2, probe.inner * inner, config.rows])
            steps = Address(0, row, inner, outer)
            wide = replace(probe, into_matrix=MatrixWrite(0, replace(steps, base=1 << 20))).written_rows(config) - (
                1 << 20
            )
            low, high = int(wide.min()) + least, int(wide.max()) + greatest
            tiles = range(max(0, -(low // config.rows)), (config.matrix_rows - 1 - high) // config.rows + 1)
            if not tiles:
                continue
            tile = rng.choice(tiles)
            first = (tile * config.rows + low) // config.rows * config.steps
            count = ((tile * config.rows + high) // config.rows + 1) * config.steps - first
            if probe.reduce is Op.MV_MUL:
                begins, ends = (product["matrix"] + end for end in self.registers[product["reg"]])
                words = probe.matrix_words(config).size
                wrapped = 1 << MATRIX_ADDR_BITS
                begins, ends = begins % wrapped, ends % wrapped + words
                if first < ends and begins < first + count:
                    continue
            self.latest = first, count
            return {"reg": number, "matrix": tile * config.steps, "row": row, "inner": inner, "outer": outer}
        return None

    def _tile(self, word: int) -> int:
        """A word, or the first one of its tile if matrices begin there."""
        return word - word % self.config.steps if self.whole_tiles else word

    def _matrix(self, probe: Chain) -> dict[str, int] | None:
        if probe.reduce is not Op.MV_MUL:
            return {}
        if probe.window.taps * probe.cols > self.config.max_terms:
            return None
        words = probe.matrix_words(self.config).size
        if self.latest is not None and self.rng.random() < 0.6:  # words that a chain before may just have written
            first = self._tile(self.latest[0] + self.rng.randint(-words, self.latest[1]))
            if 0 <= first <= self.config.matrix_depth - words:
                return {"reg": 0, "matrix": first}
        if self.whole_tiles:
            spare = self.config.matrix_depth - words
            return {"reg": 0, "matrix": self._tile(self.rng.randint(0, spare))} if spare >= 0 else None
        found = self._fit(0, words - 1, self.config.matrix_depth, MATRIX_ADDR_BITS)
        return None if found is None else {"reg": found["reg"], "matrix": found["addr"]}
