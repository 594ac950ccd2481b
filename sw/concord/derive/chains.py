"""The nodes of one class: how its value begins, operations of the multifunction units, conversion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.build import Builder
from concord.derive.classes import Class
from concord.derive.evaluate import least
from concord.derive.flags import Limit
from concord.derive.flow import InstanceOp, SourceKind, pattern
from concord.derive.live import Lines
from concord.golden import binary16
from concord.operations import OPERATIONS, ElementwiseOperation
from concord.spec.formats import BINARY16_FRAC, BINARY16_MAX, BlockFormat, ExponentMode
from concord.utils.arrays import FloatArray, Ids

#: Reads what a class needs: the number of the operand, what to pick of its elements ``[positions, rows, ..., N]``, and
#: whether what is the same everywhere may be there once.
Read = Callable[[int, Callable[[Ids], Ids], bool], ir.Value]
#: Reads what a product picks of the elements of its matrix ``[1, rows, N, blocks, N]``: ``[1, outputs, inputs]``; the
#: value may have an axis of groups of positions in front.
ReadMatrix = Callable[[Callable[[Ids], Ids]], ir.Value]

#: Room for the rounding of bounds themselves.
_MARGIN = 1 + 2.0**-30


class ClassNodes:
    """Appends the nodes of a class to a builder.

    Parameters
    ----------
    builder : Builder
    one : Class
    lines : Lines
        What there is of it.
    read : callable
        Reads operands.
    read_matrix : callable
        Reads the matrix of a product, of vectors that are weights.
    """

    def __init__(self, builder: Builder, chain_class: Class, lines: Lines, read: Read, read_matrix: ReadMatrix):
        self.builder, self.chain_class, self.lines = builder, chain_class, lines
        self.first, self.read, self.read_matrix = chain_class.representative, read, read_matrix
        self.layer = self.first.layer
        self.rows, self.lane = np.divmod(lines.lanes, builder.native)
        pcs = tuple(sorted({member.pc for member in chain_class.members if member.pc >= 0}))
        self.common: dict[str, Any] = {"layer": self.layer, "pcs": pcs, "where": self.first.where}

    def build(self) -> tuple[ir.Value, ir.Value | None]:
        """The value of the class, and its conversion if it is needed."""
        x = self._start()
        number = 0
        for mfu_op in self.first.mfu_ops:
            other = None
            if mfu_op.operand is not None:
                number += 1
                other = self.read(number, lambda eids: eids[:, self.rows, self.lane], True)
            x = self._mfu_op(mfu_op, x, other)
        return x, self._convert(x) if self.lines.converted else None

    def _new(self, word: str, shape: ir.Shape) -> ir.Value:
        return ir.Value(self.builder.names.new(self.layer, word), shape)

    def _same(self, node: ir.ModelNode, x: ir.Value) -> ir.Value:
        """Add a node whose output is within the limits of its input."""
        return self.builder.add(node, self.builder.limits[x])

    # How values begin --------------------------------------------------------------------------

    def _start(self) -> ir.Value:
        match self.first.kind:
            case SourceKind.COPY:
                return self.read(0, lambda eids: eids[:, self.rows, 0, self.lane], False)
            case SourceKind.DENSE:
                return self._dense()
            case SourceKind.DEPTHWISE:
                return self._depthwise()
            case SourceKind.MAXIMUM:
                x = self.read(0, self._taps, False)
                x = self._flat(x, len(self._sizes()), 1)
                output = self._new("maximum", (*x.shape[:-2], x.shape[-1]))
                return self._same(ir.Maximum(output=output, **self.common, x=x, axis=len(x.shape) - 2), x)
        rows, columns = self.rows, self.lines.columns
        x = self.read(0, lambda eids: eids[:, rows].reshape(len(eids), len(rows), -1)[:, :, columns], False)
        output = self._new("maximum", x.shape[:-1])
        return self._same(ir.Maximum(output=output, **self.common, x=x, axis=len(x.shape) - 1), x)

    def _sizes(self) -> tuple[int, ...]:
        """Axes of the window: those with more than one tap."""
        return tuple(size for size in self.first.taps[:2] if size > 1)

    def _taps(self, eids: Ids) -> Ids:
        """Elements ``[positions, rows, taps, N]`` by tap and lane."""
        picked = eids[:, self.rows, :, self.lane].transpose(1, 2, 0)  # NumPy puts the lanes first here
        return np.asarray(picked.reshape(len(eids), *(self._sizes() or (1,)), len(self.rows)))

    def _flat(self, x: ir.Value, axes: int, left: int) -> ir.Value:
        """The axes of a window as one, in front of the last ``left`` axes; with 0 of these, channels are part of it."""
        if axes + 1 - left <= 1:
            return x
        stop = len(x.shape) - left
        start = stop - axes - (1 - left)
        merged = int(np.prod(x.shape[start:stop]))
        output = self._new("windows", (*x.shape[:start], merged, *x.shape[stop:]))
        return self._same(ir.Reshape(output=output, layer=self.layer, x=x), x)

    def _dense(self) -> ir.Value:
        kh, kw, cols = self.first.taps
        columns, width = self.lines.columns, cols * self.builder.native

        def pick(eids: Ids) -> Ids:
            taps = eids[:, 0].reshape(len(eids), kh * kw, width)[:, :, columns]
            return np.asarray(taps.reshape(len(eids), *self._sizes(), len(columns)))

        x = self._flat(self.read(0, pick, False), len(self._sizes()), 0)
        if self.first.weight is None:
            return self._product_of(x, kh * kw, width)
        weight = self.first.weight.reshape(-1, kh * kw, width)[self.lines.lanes][:, :, columns]
        weight = np.ascontiguousarray(weight.reshape(len(weight), -1))
        output = self._new("dot", (*x.shape[:-1], len(weight)))
        lanes = self.builder.flow.config.lanes
        steps = np.arange(kh * kw)[:, None] * (width // lanes) + columns // lanes
        grid = self._grid(x, weight, 1, steps.reshape(-1))
        return self._product(ir.MatMul(output=output, **self.common, x=x, weight=weight, **grid))

    def _product_of(self, x: ir.Value, taps: int, width: int) -> ir.Value:
        """A product with rows that the program writes."""
        lines, config = self.lines, self.builder.flow.config

        def pick(eids: Ids) -> Ids:
            weights = eids.reshape(1, -1, taps, width)[:, lines.lanes][..., lines.columns]
            return np.asarray(weights.reshape(1, len(lines.lanes), -1))

        matrix = self.read_matrix(pick)
        (most_x, fine_x), (most, fine) = limits = self.builder.limits[x], self.builder.limits[matrix]
        bound = min(most_x, float(BINARY16_MAX)) * min(most, float(BINARY16_MAX)) * matrix.shape[-1] * _MARGIN
        if config.acc_register and bound >= 2.0 ** (config.acc_register - 1 - config.acc_frac):
            raise ValueError(
                f"sums of {self.layer or 'the program'} with rows of m_wr must not be able to leave the acc_register "
                f"of {config.acc_register} bits to be derived"
            )
        return self._product(
            ir.ProductOf(
                output=self._new("dot", (*x.shape[:-1], matrix.shape[-2])),
                **self.common,
                x=x,
                matrix=matrix,
                limits=limits,
                width=config.acc_width,
                frac=config.acc_frac,
                unit=max(fine_x + fine, -config.acc_frac),
                bound=bound,
            )
        )

    def _depthwise(self) -> ir.Value:
        assert self.first.weight is not None
        x = self._flat(self.read(0, self._taps, False), len(self._sizes()), 1)
        weight = self.first.weight.reshape(-1, self.first.weight.shape[-1])[self.lines.lanes]
        weight = np.ascontiguousarray(weight.T)
        output = self._new("dot", (*x.shape[:-2], weight.shape[1]))
        grid = self._grid(x, weight, 0, np.arange(len(weight)))
        return self._product(ir.Depthwise(output=output, **self.common, x=x, weight=weight, **grid))

    def _product(self, node: ir.ExactSums) -> ir.Value:
        limit = float(binary16.decode(binary16.encode(min(node.bound, 2.0 ** (node.width - 1 - node.frac)))))
        return self.builder.add(node, (limit, -BINARY16_FRAC))

    def _grid(self, x: ir.Value, weight: FloatArray, axis: int, steps: Ids) -> dict[str, Any]:
        config = self.builder.flow.config
        greatest, fine = self.builder.limits[x]
        bound = min(greatest, float(BINARY16_MAX)) * float(np.abs(weight).sum(axis=axis).max(initial=0.0)) * _MARGIN
        unit = max(fine + least(weight), -config.acc_frac)
        grid: dict[str, Any] = {"width": config.acc_width, "frac": config.acc_frac, "unit": unit, "bound": bound}
        if config.acc_register and bound >= 2.0 ** (config.acc_register - 1 - config.acc_frac):
            grid |= {"register": config.acc_register, "steps": tuple(steps.tolist())}
        return grid

    # Operations --------------------------------------------------------------------------------

    def _mfu_op(self, mfu_op: InstanceOp, x: ir.Value, other: ir.Value | None) -> ir.Value:
        if mfu_op.table is not None:
            return self._table(mfu_op.table, x)
        operation, xs = OPERATIONS[mfu_op.op], (x,) if other is None else (x, other)
        if operation.exchanged is not None:
            operation, xs = OPERATIONS[operation.exchanged], xs[::-1]
        output = self._new(operation.word, tuple(np.broadcast_shapes(*(value.shape for value in xs))))
        node = ir.Elementwise(output=output, **self.common, operation=operation, xs=xs)
        return self.builder.add(node, _limit(operation, [self.builder.limits[value] for value in xs]))

    def _table(self, number: int, x: ir.Value) -> ir.Value:
        memories = self.builder.flow.memories
        slot = memories.slot(number)
        entries = memories.table[slot["offset"] + slot["low"] : slot["offset"] + slot["high"] + 1].copy()
        values = binary16.decode(entries)
        limit = float(np.abs(values).max()) if np.isfinite(values).all() else np.inf
        node = ir.TableLookup(
            output=self._new("entry", x.shape),
            **self.common,
            x=x,
            entries=entries,
            low=slot["low"],
            high=slot["high"],
            scale=slot["scale"],
            name=f"table_{number}",
            constant_ends=(bool(slot["settled_low"]), bool(slot["settled_high"])),
        )
        return self.builder.add(node, (limit, -BINARY16_FRAC))

    # Conversion --------------------------------------------------------------------------------

    def _form(self) -> BlockFormat:
        """Format to which vectors are converted."""
        assert self.first.form is not None
        return self.first.form

    def _convert(self, x: ir.Value) -> ir.Value:
        quant, native, lanes = self.first.quant, self.builder.native, self.lines.lanes
        there = np.unique(self.rows)
        absent = np.setdiff1d(np.arange(self.first.shape[2] * native), lanes)
        known = self.chain_class.lanes.known[absent]
        sizes = np.where(known < 0, np.abs(_finite(pattern(np.minimum(known, -1)))), 0.0)
        noise = None
        if self.first.noise is not None:
            noises = np.concatenate([m.noise for m in self.chain_class.members if m.noise is not None])
            noise = noises.reshape(len(noises), -1)[:, lanes].reshape(x.shape)
        node = ir.Quantise(
            output=self._new("block", x.shape),
            **self.common,
            x=x,
            form=self._form(),
            blocks=tuple(int(np.count_nonzero(self.rows == row)) for row in there),
            peaks=tuple(float(sizes[absent // native == row].max(initial=0.0)) for row in there),
            mode=quant.mode,
            exp=quant.exp,
            rounding=quant.rounding,
            noise=noise,
        )
        return self.builder.add(node, _block_limit(node, max(self.builder.limits[x][0], *node.peaks)))


def _finite(bits: npt.NDArray[np.uint16]) -> FloatArray:
    """Numbers as a converter reads them."""
    return np.asarray(np.nan_to_num(binary16.decode(bits), nan=0.0, posinf=BINARY16_MAX, neginf=-BINARY16_MAX))


def _limit(operation: ElementwiseOperation, operands: Sequence[Limit]) -> Limit:
    """Limit of a result, from those of its operands; multiples stay what they are of one operand without rounding."""
    with np.errstate(all="ignore"):
        ends = operation.bounds(*((np.array(-greatest), np.array(greatest)) for greatest, _ in operands))
        greatest = float(np.max(np.abs(ends)))
    if not np.isfinite(greatest):
        greatest = np.inf
    if len(operands) == 1 and not operation.rounds:
        return greatest, operands[0][1]
    return float(binary16.decode(binary16.encode(greatest))), -BINARY16_FRAC


def _block_limit(node: ir.Quantise, greatest: float) -> Limit:
    """A block is below the power of two after its greatest element."""
    form = node.form
    if node.mode is ExponentMode.STATIC:
        return form.q_max * 2.0**node.exp, node.exp
    top = form.q_max * 2.0**form.exp_max
    return min(top, max(2.0 * greatest, form.q_max * 2.0**form.exp_min)), max(form.exp_min, -BINARY16_FRAC)
