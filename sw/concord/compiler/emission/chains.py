"""Chains of layers as instructions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from concord.compiler.emission.copied_weights import CopiesAhead, WeightBlock
from concord.compiler.emission.data_section import DataSection
from concord.compiler.ir.layers import Border, Layer, LayerWindow, MfuStep, Reduction
from concord.compiler.ir.layout import Storage, Walk
from concord.compiler.ir.table_specs import RELU, TableSpec
from concord.compiler.memory.copies import Copy
from concord.program.builder import ProgramBuilder
from concord.program.chains import Pad
from concord.spec.isa import ADDR_REGS, MATRIX_ADDR_BITS, VECTOR_ADDR_BITS, Mem, MvMode, Op

#: Least number of pairs of blocks that a loop is worth, and loops that may be inside each other then.
_PAIRS, _LEVELS = 2, 2


@dataclass
class _Tile:
    """Native vectors of every position that a chain works on, if not all of them, and their order.

    Members
    -------
    number : int
        Added to addresses, times the step from one native vector to the next; in a loop registers are added instead.
    registers : dict or None
        By step the register of a loop over all of them; added to the number.
    before : int
        Registers that are taken otherwise, those with the lowest numbers.
    down : bool
        Column by column, not row by row.
    rows : bool
        Several native vectors of a position, from ``number`` on.
    """

    number: int = 0
    registers: dict[int, int] | None = None
    down: bool = False
    rows: bool = False
    before: int = 0

    def place(self, addr: int, step: int, reg: int = 0, bits: int = VECTOR_ADDR_BITS) -> dict[str, int]:
        """Fields of an address of ``bits`` bits."""
        addr = (addr + self.number * step) % (1 << bits)
        if self.registers is not None:
            return {"addr": addr, "reg": self.registers.setdefault(step, self.before + len(self.registers))}
        return {"addr": addr, "reg": reg}


def _vector(tile: _Tile | None, addr: int, row: int, inner: int, outer: int, reg: int = 0) -> dict[str, int]:
    """Fields of the address of a vector, with its steps per native vector, position and row of positions."""
    if tile is None:
        return {"addr": addr, "row": row, "inner": inner, "outer": outer, "reg": reg}
    inner, outer = (outer, inner) if tile.down else (inner, outer)
    return tile.place(addr, row, reg) | ({"row": row} if tile.rows else {}) | {"inner": inner, "outer": outer}


def _signed(step: int) -> int:
    """A step between addresses as a field of an instruction; addresses are counted modulo their number."""
    half = 1 << VECTOR_ADDR_BITS - 1
    return (step + half) % (2 * half) - half


def _exchanged(fields: dict[str, int]) -> dict[str, int]:
    """Fields in pairs, of rows and of columns, with rows and columns exchanged."""
    names = list(fields)
    pairs = zip(names[::2], names[1::2], strict=True)
    return {name: fields[other] for a, b in pairs for name, other in ((a, b), (b, a))}


class Chains:
    """Appends chains to a program, whose constants and tensors have their places.

    Members
    -------
    builder : ProgramBuilder
        The program.
    dropped_rows : dict
        Rows of a tensor before the first one in memory: those that its buffer has dropped in the tile that is emitted.
    registers : dict
        Address registers that are added where tensors are written.
    taken : int
        Address registers that are used otherwise, those with the lowest numbers.
    """

    def __init__(self, data_section: DataSection):
        self.data_section = data_section
        self.plan, self.allocator, self.formats = data_section.plan, data_section.allocator, data_section.formats
        self.config = data_section.config
        self.builder = ProgramBuilder()
        self.dropped_rows: dict[Storage, int] = {}
        self.registers: dict[Storage, int] = {}
        self.taken = 0
        self._matrices: dict[int, Hashable] = {}  # what those that programs write hold, by address

    @cached_property
    def _copies(self) -> CopiesAhead | None:
        """Writer of the copies of the program, if there are any."""
        return self.data_section.copies_ahead()

    def activation(self, spec: TableSpec) -> None:
        """Emit a table or, for ReLU alone, the instruction for it."""
        if spec == RELU:
            self.builder.v_relu()
        else:
            self.builder.v_tbl(self.data_section.table(spec))

    def narrow_inputs(self, heights: Mapping[Storage, int]) -> None:
        """Convert rows of the inputs that products read and others, too: the host writes them wide."""
        for storage, height in heights.items():
            wide, narrow = self.plan.copy(storage, Mem.WIDE), self.plan.copy(storage, Mem.NARROW)
            if wide is None or narrow is None:
                continue
            self.builder.set(Op.SET_SHAPE, rows=storage.tiles, cols=1)
            self.builder.set(Op.SET_ITERS, inner=storage.width, outer=height)
            self.builder.set(Op.SET_QUANT, mode=0, exp=0, rounding=0)
            for copy, chain in ((wide, self.builder.v_rd), (narrow, self.builder.v_wr)):
                chain(int(copy.mem), copy.addr, row=1, inner=storage.tiles, outer=storage.width * storage.tiles)

    def in_chunks(self, index: int) -> None:
        """A layer chunk by chunk, each one widened while the one before is computed."""
        height, streamed = self.plan.layer(index).out[0], self.plan.streamed[index]
        parts = [(y, min(streamed.rows, height - y)) for y in range(0, height, streamed.rows)]
        self._widen(index, 0, *parts[0])
        for k, (y, rows) in enumerate(parts):
            if k + 1 < len(parts):
                self._widen(index, k + 1, *parts[k + 1])
            self.layer(index, y, rows, streamed.buffers[k % 2])

    def _widen(self, index: int, chunk: int, y: int, rows: int) -> None:
        """Copy rows of an operand to a buffer."""
        streamed, (_, width, tiles) = self.plan.streamed[index], self.plan.layer(index).out
        operand = streamed.operand
        assert operand.storage is not None
        self.builder.set(Op.SET_SHAPE, rows=tiles, cols=1)
        self.builder.set(Op.SET_ITERS, inner=width, outer=rows)
        addr = self.plan.addr(operand.storage, Mem.NARROW, operand.start) + y * operand.outer
        self.builder.v_rd(int(Mem.NARROW), addr, row=operand.row, inner=operand.inner, outer=operand.outer)
        self.builder.v_wr(int(Mem.WIDE), streamed.buffers[chunk % 2].addr, row=1, inner=tiles, outer=width * tiles)

    def layer(self, index: int, y: int, rows: int, buffer: Copy | None = None) -> None:
        """Rows ``y`` to ``y + rows`` of a layer, with those of an operand in ``buffer``."""
        layer, source = self.plan.layer(index), self.plan.sources[index]
        walk, window = layer.source.in_root(), layer.window
        out = (rows, *layer.out[1:])
        dense = layer.reduction is Reduction.DENSE
        stride = walk.stride
        if layer.rows is not None:
            self._write_matrix(index)
        if layer.border is not None and layer.border.constant is not None:
            self._fill(layer, layer.border, layer.border.constant, y, rows)
        addr, row_stride = self._first(walk, source, y * window.stride[0])
        slide = self.data_section.slide(index)
        down = slide is not None and slide.down
        cols = layer.cols if dense else 1
        self.builder.set(Op.SET_SHAPE, rows=1 if slide else out[2], cols=slide.fresh if slide else cols)
        self.builder.set(Op.SET_ITERS, inner=rows if down else out[1], outer=out[1] if down else rows)
        if layer.reduction is not Reduction.NONE:
            dropped, apart = self.dropped_rows.get(walk.storage), row_stride
            lost = None if dropped is None else max(0, dropped - layer.source.storage.rows_above)
            if layer.second is not None:
                apart = _signed(self._first(layer.second.in_root(), Mem.NARROW, y)[0] - addr)
            self._window(window, y, out, stride, apart, lost, down)
            addr -= window.begin[0] * row_stride + window.begin[1] * stride
        self.quant(layer)
        for step in layer.mfu_ops:
            if step.shift is not None:
                self.builder.set(Op.SET_SCALE, shift=step.shift)
        addr %= 1 << VECTOR_ADDR_BITS
        row = 0 if dense and layer.stack == 1 else walk.row * cols
        steps = window.stride[1] * stride, window.stride[0] * row_stride

        def chain(tile: _Tile | None = None, matrix: int = 0) -> None:
            self.builder.v_rd(int(source), **_vector(tile, addr, row, *steps))
            if layer.rows is not None:
                self.builder.mv_mul(self.data_section.written_matrix(layer.rows))
            elif layer.weight is not None:
                if dense:
                    self.builder.mv_mul(matrix)
                elif tile is not None:
                    at = tile.place(self.allocator[f"weight.{layer.name}"], 1, bits=MATRIX_ADDR_BITS)
                    self.builder.mv_mul(at["addr"], reg=at["reg"], mode=int(MvMode.DEPTHWISE), sliding=1)
                else:
                    self.builder.mv_mul(self.allocator[f"weight.{layer.name}"], mode=int(MvMode.DEPTHWISE))
            elif layer.reduction is Reduction.MAX:
                self.builder.v_max()
            elif layer.reduction is Reduction.LANES:
                self.builder.v_redmax()
            for action in layer.mfu_ops:
                self._mfu_op(action, y, out, buffer, tile)
            self._write(layer, y, tile)

        if slide:
            self._tiles(out[2], down, chain)
        elif dense and layer.weight is not None:
            self._blocks(f"weight.{layer.name}", out[2], cols, chain)
        else:
            chain()

    def _blocks(self, name: str, vectors: int, cols: int, chain: Callable[[_Tile | None, int], None]) -> None:
        """Writes a chain for every block of dense weights, and the copies that it needs."""
        blocks, k = self.data_section.blocks(name, vectors), 0
        while k < len(blocks):
            matrix = self.copy(blocks[k], name)
            self.builder.set(Op.SET_SHAPE, rows=blocks[k].count, cols=cols)
            k += self._pairs(blocks[k:], matrix, chain)
            chain(None if blocks[k].unit is None else _Tile(blocks[k].first, rows=True), matrix)
            self.copy_used(blocks[k])
            k += 1

    def _pairs(self, blocks: Sequence[WeightBlock], matrix: int, chain: Callable[[_Tile | None, int], None]) -> int:
        """Writes a loop over pairs of blocks of the same size, if they are many and there are registers for it.

        The first block is in the matrix memory already, and so is the one after the last pair then. Returns how many
        blocks the loop covers.
        """
        first, copies, taken = blocks[0], self._copies, self.taken
        alike = takewhile(lambda block: (block.count, block.rows) == (first.count, first.rows), blocks)
        pairs = (len(list(alike)) - 1) // 2
        if first.unit is None or copies is None or not copies.alternate or pairs < _PAIRS or self.registers:
            return 0
        registers, program, self.builder = {0: 0}, self.builder, ProgramBuilder()
        chain(_Tile(0, registers, rows=True, before=taken), matrix)
        self.builder = builder = program
        external = taken + len(registers)
        if external >= ADDR_REGS or self.config.loop_levels < _LEVELS:
            return 0
        units = [block.unit or 0 for block in blocks[:3]]
        increments = {reg: 2 * first.count * step for step, reg in registers.items() if reg}
        increments[external] = units[2] - units[0]
        for reg in increments:
            builder.set_addr(reg, 0)
        builder.loop(pairs)
        for half in range(2):
            words = copies.place(half), copies.place(half + 1)
            builder.copy(external, units[half + 1], words[1], first.rows, ahead=1)
            chain(_Tile(blocks[half].first, registers, rows=True, before=taken), words[0])
        for reg, increment in increments.items():
            builder.inc_addr(reg, increment)
        builder.end_loop()
        copies.resume(builder)
        return 2 * pairs

    def copy(self, block: WeightBlock, name: str) -> int:
        """Bring weights that do not stay in the matrix memory; returns where a block of them begins there."""
        if block.unit is None:
            return self.allocator[name]
        assert self._copies is not None
        return self._copies.copy(self.builder, block)

    def copy_used(self, block: WeightBlock) -> None:
        """Note that all products with a block are written."""
        if block.unit is not None and self._copies is not None:
            self._copies.used(self.builder)

    def between(self, layers: Sequence[tuple[int, int]]) -> None:
        """Let a copy stand in front of the first of some layers, which follow with so many rows each."""
        if self._copies is None:
            return
        blocks = [self.data_section.copied_blocks(f"weight.{self.plan.layer(index).name}") for index, _ in layers]
        needed = next((some for some in blocks if some), ())
        first, rows = layers[0]
        layer = self.plan.layer(first)
        steps = layer.macs // layer.out[0] * rows // (self.config.rows * self.config.lanes)
        self._copies.between(self.builder, needed, 0 if blocks[0] else max(1, steps))

    def begin_copies(self) -> None:
        """Let the first copy begin here, if there are any."""
        if self._copies is not None:
            self._copies.begin(self.builder)

    def end_copies(self) -> None:
        """Let no copy go on while what follows is computed."""
        if self._copies is not None:
            self._copies.end()

    def _first(self, walk: Walk, mem: Mem, rows: int) -> tuple[int, int]:
        """Address of the vector ``rows`` rows after the first one of a walk in a root, and the stride of rows."""
        below, row_stride = self.oriented(walk.storage, mem, walk.row_stride)
        above, start = divmod(walk.start, walk.row_stride) if row_stride < 0 else (0, walk.start)
        rows += above - self.dropped_rows.get(walk.storage, 0)
        return self.plan.addr(walk.storage, mem, 0) + start + below + rows * row_stride, row_stride

    def _fill(self, layer: Layer, border: Border, constant: Storage, y: int, rows: int) -> None:
        """Write what is around rows ``y`` to ``y + rows`` of a layer, for the products that read it."""
        frame, tiles = border.frame, border.frame.tiles
        below, pitch = self.oriented(frame, Mem.NARROW, frame.width * tiles)
        start = self.plan.addr(frame, Mem.NARROW, 0) + below - self.dropped_rows.get(frame, 0) * pitch
        self.quant(layer)
        self.builder.set(Op.SET_SHAPE, rows=tiles, cols=1)
        for outer, inner in border.boxes(y, rows):
            self.builder.set(Op.SET_ITERS, inner=len(inner), outer=len(outer))
            self.builder.v_rd(int(Mem.NARROW), self.plan.constants[constant].addr)
            addr, reg = start + outer[0] * pitch + inner[0] * tiles, self.registers.get(frame, 0)
            steps = {"row": 1, "inner": inner.step * tiles, "outer": outer.step * pitch}
            self.builder.v_wr(int(Mem.NARROW), addr, **steps, reg=reg)

    def _write_matrix(self, index: int) -> None:
        """Write the rows of the matrix of a product of two tensors."""
        layer, mem, config = self.plan.layer(index), self.plan.rows[index], self.config
        assert layer.rows is not None
        matrix = self.data_section.written_matrix(layer.rows)
        if self._matrices.get(matrix) == layer.rows.key:
            return
        self._matrices[matrix] = layer.rows.key
        self.end_copies()
        walk, height, cols = layer.rows.walk.in_root(), config.rows, layer.rows.walk.tiles
        first = self.plan.addr(walk.storage, mem, 0) + walk.start
        whole, rest = divmod(layer.rows.count, height)
        used = layer.rows.used
        mask = None if used is None else self.data_section.constant(used)
        self.builder.set(Op.SET_SHAPE, rows=cols, cols=1)
        self.builder.set(Op.SET_QUANT, mode=0, exp=0, rounding=0)

        def write(start: int, rows: int, groups: int) -> None:
            """Groups of rows from the vectors of a position on."""
            self.builder.set(Op.SET_ITERS, inner=rows, outer=groups)
            addr = first + start * walk.stride
            self.builder.v_rd(int(mem), addr, row=1, inner=walk.stride, outer=height * walk.stride)
            if mask is not None:
                self.builder.vv_mul(mask, row=1)
            tile = matrix + start // height * cols * config.steps
            self.builder.m_wr(tile, row=height, inner=1, outer=cols * height)

        if whole:
            write(0, height, whole)
        if rest:
            write(whole * height, rest, 1)

    def _tiles(self, count: int, down: bool, chain: Callable[[_Tile], None]) -> None:
        """Writes a chain for every native vector of a position: in a loop, where registers are free for it."""
        registers = {0: 0}
        if count > 1 and not self.registers and not self.dropped_rows:
            program, self.builder = self.builder, ProgramBuilder()
            chain(_Tile(0, registers, down))
            self.builder = program
        if not 1 < len(registers) <= ADDR_REGS:
            for number in range(count):
                chain(_Tile(number, None, down))
            return
        for register in range(1, len(registers)):
            self.builder.set_addr(register, 0)
        self.builder.loop(count)
        chain(_Tile(0, registers, down))
        for step, register in list(registers.items())[1:]:
            self.builder.inc_addr(register, step)
        self.builder.end_loop()

    def quant(self, layer: Layer) -> None:
        """The exponent of what a layer writes narrow."""
        if self.plan.copy(layer.target, Mem.NARROW) is not None:
            exponent = self.formats.exponents.get(layer.tensor)
            self.builder.set(Op.SET_QUANT, mode=int(exponent is not None), exp=exponent or 0, rounding=0)

    def oriented(self, storage: Storage, mem: Mem, row_stride: int) -> tuple[int, int]:
        """Place of the first row, from the lowest address of a tensor on, and the stride from row to row."""
        copy = self.plan.copy(storage, mem)
        return (copy.vectors - row_stride, -row_stride) if copy is not None and copy.reversed else (0, row_stride)

    def _window(
        self,
        window: LayerWindow,
        y: int,
        out: tuple[int, int, int],
        stride: int,
        row_stride: int,
        dropped: int | None,
        down: bool,
    ) -> None:
        """Window and padding; in a buffer that has lost ``dropped`` rows, positions count from its first row.

        Rows and columns change places if windows move ``down`` in the inner loop.
        """
        kernel, positions, pad = vars(window.over(row_stride, stride)), out[:2], Pad()
        if window.size != (0, 0):
            lost, (top, left), (height, width) = dropped or 0, window.begin, window.size
            here = replace(window, begin=(top - y * window.stride[0] + lost, left), size=(height - lost, width))
            if dropped is not None:  # the same bounds in every row tile
                here = replace(here, size=(min(height - lost, here.end(positions)[0]), width))
            pad = here.pad(positions)
        self.builder.set(Op.SET_WINDOW, **(_exchanged(kernel) if down else kernel))
        self.builder.set(Op.SET_PAD, **(_exchanged(vars(pad)) if down else vars(pad)))

    def _mfu_op(
        self, mfu_op: MfuStep, y: int, out: tuple[int, int, int], buffer: Copy | None, tile: _Tile | None
    ) -> None:
        operand = mfu_op.operand
        if mfu_op.spec is not None:
            self.activation(mfu_op.spec)
        elif operand is None:
            self.builder.emit(mfu_op.op)
        elif operand.constant is not None:
            addr = self.data_section.constant(operand.constant) + y * operand.outer
            self.builder.emit(mfu_op.op, **_vector(tile, addr, operand.row, operand.inner, operand.outer))
        elif buffer is not None and operand.storage is not None and self.plan.copy(operand.storage, Mem.WIDE) is None:
            self.builder.emit(mfu_op.op, **_vector(tile, buffer.addr, 1, out[2], out[1] * out[2]))
        else:
            assert operand.storage is not None
            start, (outer, inner, row) = operand.storage.in_root(operand.start, operand.loops(out))
            addr = self.plan.addr(operand.storage.root, Mem.WIDE, start)
            below, outer = self.oriented(operand.storage, Mem.WIDE, outer)
            addr += below - self.dropped_rows.get(operand.storage, 0) * outer
            self.builder.emit(mfu_op.op, **_vector(tile, addr + y * outer, row, inner, outer))

    def _write(self, layer: Layer, y: int, tile: _Tile | None) -> None:
        target, border = layer.target, layer.border
        row_stride = target.vector(target.width * target.tiles) - target.vector(0) if target.height > 1 else 0
        stride = target.vector(target.tiles) - target.vector(0) if target.width > 1 else 0
        whole, first = target, target.vector(0)
        if border is not None:
            whole, row_stride = border.frame, border.frame.width * border.frame.tiles
            first, y = border.left * border.frame.tiles, y + border.top
        y -= self.dropped_rows.get(whole, 0)
        reg = self.registers.get(whole, 0)
        for mem in (Mem.WIDE, Mem.NARROW):
            if self.plan.copy(target, mem) is not None:
                below, outer = self.oriented(target, mem, row_stride)
                addr = self.plan.addr(target.root, mem, first) + below + y * outer
                self.builder.v_wr(int(mem), **_vector(tile, addr, 1, stride, outer, reg))
