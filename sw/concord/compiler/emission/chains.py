"""Chains of layers as instructions."""

from __future__ import annotations

from collections.abc import Mapping

from concord.compiler.emission.data_section import DataSection
from concord.compiler.ir.layers import Layer, MfuOp, Operand, Reduction, Window
from concord.compiler.ir.layout import LayoutError, Storage
from concord.compiler.ir.table_specs import RELU, TableSpec
from concord.compiler.memory.copies import Copy
from concord.program.builder import ProgramBuilder
from concord.spec.isa import INITIAL, VECTOR_ADDR_BITS, Mem, Op


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
    """

    def __init__(self, data_section: DataSection):
        self.data_section = data_section
        self.plan, self.allocator, self.formats = data_section.plan, data_section.allocator, data_section.formats
        self.config = data_section.config
        self.builder = ProgramBuilder()
        self.dropped_rows: dict[Storage, int] = {}
        self.registers: dict[Storage, int] = {}
        self.restart()

    def restart(self) -> None:
        """Take the state for that at the start of a run."""
        self._state = {op: dict(values) for op, values in INITIAL.items()}

    def set(self, op: Op, **values: int) -> None:
        """Emit an instruction that sets state, unless that is so already."""
        if self._state.get(op) != values:
            self._state[op] = values
            self.builder.emit(op, **values)

    def forget(self, op: Op) -> None:
        """Emit the next instruction that sets this state, whatever it was before."""
        self._state.pop(op, None)

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
            self.set(Op.SET_SHAPE, rows=storage.tiles, cols=1)
            self.set(Op.SET_ITERS, inner=storage.width, outer=height)
            self.set(Op.SET_QUANT, mode=0, exp=0, rounding=0)
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
        self.set(Op.SET_SHAPE, rows=tiles, cols=1)
        self.set(Op.SET_ITERS, inner=width, outer=rows)
        addr = self.plan.addr(operand.storage, Mem.NARROW, operand.start) + y * operand.outer
        self.builder.v_rd(int(Mem.NARROW), addr, row=operand.row, inner=operand.inner, outer=operand.outer)
        self.builder.v_wr(int(Mem.WIDE), streamed.buffers[chunk % 2].addr, row=1, inner=tiles, outer=width * tiles)

    def layer(self, index: int, y: int, rows: int, buffer: Copy | None = None) -> None:
        """Rows ``y`` to ``y + rows`` of a layer, with those of an operand in ``buffer``."""
        layer, source = self.plan.layer(index), self.plan.sources[index]
        walk, window = layer.source, layer.window
        out = (rows, *layer.out[1:])
        dense = layer.reduction is Reduction.DENSE
        start, stride, row_stride = self._steps(layer)
        below, row_stride = self.oriented(walk.storage, source, row_stride)
        dropped = self.dropped_rows.get(walk.storage, 0)
        start += below + (y * window.stride[0] - dropped) * row_stride
        self.set(Op.SET_SHAPE, rows=out[2], cols=walk.tiles if dense else 1)
        self.set(Op.SET_ITERS, inner=out[1], outer=rows)
        if layer.reduction is not Reduction.NONE:
            self._window(window, y, out, stride, row_stride, dropped if walk.storage in self.dropped_rows else None)
            start -= window.begin[0] * row_stride + window.begin[1] * stride
        self.quant(layer)
        addr = (self.plan.addr(walk.storage, source, 0) + start) % (1 << VECTOR_ADDR_BITS)
        builder = self.builder
        builder.v_rd(
            int(source),
            addr,
            row=0 if dense else walk.row,
            inner=window.stride[1] * stride,
            outer=window.stride[0] * row_stride,
        )
        if layer.weight is not None:
            builder.mv_mul(self.allocator[f"weight.{layer.name}"], mode=0 if dense else 1)
        elif layer.reduction is Reduction.MAX:
            builder.v_max()
        elif layer.reduction is Reduction.LANES:
            builder.v_redmax()
        for action in layer.mfu_ops:
            self._mfu_op(action, y, out, buffer)
        self._write(layer, y)

    def quant(self, layer: Layer) -> None:
        """The exponent of what a layer writes narrow."""
        if self.plan.copy(layer.target, Mem.NARROW) is not None:
            exponent = self.formats.exponents.get(layer.tensor)
            self.set(Op.SET_QUANT, mode=int(exponent is not None), exp=exponent or 0, rounding=0)

    def _steps(self, layer: Layer) -> tuple[int, int, int]:
        """First vector, stride per position and per row of positions, in the root storage."""
        walk = layer.source
        storage = walk.storage
        first = storage.vector(walk.start) - storage.vector(0)
        if storage.parent is not None:
            inside = walk.start % storage.tiles + walk.tiles <= storage.tiles
            if not inside or walk.stride % storage.tiles or walk.row_stride % storage.tiles:
                raise LayoutError(f"{layer.name} must read whole positions of a tensor that is part of another")
            at = walk.start
            stride = storage.vector(at + walk.stride) - storage.vector(at) if walk.width > 1 else 0
            row_stride = storage.vector(at + walk.row_stride) - storage.vector(at) if walk.height > 1 else 0
            return first, stride, row_stride
        return first, walk.stride, walk.row_stride

    def oriented(self, storage: Storage, mem: Mem, row_stride: int) -> tuple[int, int]:
        """Where the first row lies, from the lowest address of a tensor on, and the stride from row to row."""
        copy = self.plan.copy(storage, mem)
        return (copy.vectors - row_stride, -row_stride) if copy is not None and copy.reversed else (0, row_stride)

    def _window(
        self, window: Window, y: int, out: tuple[int, int, int], stride: int, row_stride: int, dropped: int | None
    ) -> None:
        """Window and padding; in a buffer that has lost ``dropped`` rows, positions count from its first row."""
        (kh, kw), (sy, sx), (dy, dx), (top, left) = window.kernel, window.stride, window.dilation, window.begin
        self.set(Op.SET_WINDOW, kh=kh, kw=kw, stride_y=dy * row_stride, stride_x=dx * stride, dil_y=dy, dil_x=dx)
        height, width = window.size[0] - (dropped or 0), window.size[1]
        top -= y * sy - (dropped or 0)
        last = (out[0] - 1) * sy + (kh - 1) * dy - top
        below = last >= height
        if dropped is not None and not below:
            height = last + 1  # the same in every row tile
        right = (out[1] - 1) * sx + (kw - 1) * dx - left >= width
        if window.size != (0, 0) and (top > 0 or left > 0 or below or right):
            self.set(Op.SET_PAD, y0=-top, x0=-left, step_y=sy, step_x=sx, height=height, width=width)
        else:
            self.set(Op.SET_PAD, **INITIAL[Op.SET_PAD])

    def _mfu_op(self, mfu_op: MfuOp, y: int, out: tuple[int, int, int], buffer: Copy | None) -> None:
        operand = mfu_op.operand
        if mfu_op.spec is not None:
            self.activation(mfu_op.spec)
        elif operand is None:
            self.builder.emit(mfu_op.op)
        elif operand.constant is not None:
            addr = self.data_section.constant(operand.constant) + y * operand.outer
            self.builder.emit(mfu_op.op, addr=addr, row=operand.row, inner=operand.inner, outer=operand.outer)
        elif buffer is not None and operand.storage is not None and self.plan.copy(operand.storage, Mem.WIDE) is None:
            self.builder.emit(mfu_op.op, addr=buffer.addr, row=1, inner=out[2], outer=out[1] * out[2])
        else:
            addr, row, inner, outer = self._operand(operand)
            if operand.storage is not None:
                below, outer = self.oriented(operand.storage, Mem.WIDE, outer)
                addr += below - self.dropped_rows.get(operand.storage, 0) * outer
            self.builder.emit(mfu_op.op, addr=addr + y * outer, row=row, inner=inner, outer=outer)

    def _operand(self, operand: Operand) -> tuple[int, int, int, int]:
        storage = operand.storage
        assert storage is not None
        addr = self.plan.addr(storage, Mem.WIDE, operand.start)
        strides = (operand.row, operand.inner, operand.outer)
        if storage.parent is None:
            return (addr, *strides)
        row, inner, outer = (
            storage.vector(operand.start + s) - storage.vector(operand.start) if s else 0 for s in strides
        )
        return addr, row, inner, outer

    def _write(self, layer: Layer, y: int) -> None:
        target = layer.target
        row_stride = target.vector(target.width * target.tiles) - target.vector(0) if target.height > 1 else 0
        stride = target.vector(target.tiles) - target.vector(0) if target.width > 1 else 0
        y -= self.dropped_rows.get(target, 0)
        reg = self.registers.get(target, 0)
        for mem in (Mem.WIDE, Mem.NARROW):
            if self.plan.copy(target, mem) is not None:
                below, outer = self.oriented(target, mem, row_stride)
                addr = self.plan.addr(target, mem, 0) + below + y * outer
                self.builder.v_wr(int(mem), addr, reg=reg, row=1, inner=stride, outer=outer)
