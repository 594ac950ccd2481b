"""The data section of a program: weights, constants and tables of all layers, which are loaded before it runs."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from concord.compiler.emission.copied_weights import (
    BUFFER,
    CopiesAhead,
    CopyBuffer,
    DenseWeights,
    WeightBlock,
    blocks_of,
    copied,
)
from concord.compiler.ir.activations import activation_table, fixed_entries, joined, others_share, shared
from concord.compiler.ir.lane_padding import pad_weight
from concord.compiler.ir.layers import Layer, MatrixRows, Recurrent, Reduction
from concord.compiler.ir.sliding import Slide, slide_of
from concord.compiler.ir.table_specs import RELU, TableSpec
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.memory.plan import Plan
from concord.functions import Table
from concord.functions.segmented import TableSegment
from concord.image.packing import depthwise_words, matrix_words, pack_columns, quantize_matrix
from concord.program.allocator import COPIED, Allocator
from concord.program.flags import OF_NORMALISATION
from concord.spec.config import NpuConfig
from concord.spec.isa import COPY_UNIT
from concord.spec.memmap import RegionId
from concord.spec.operations import Op
from concord.utils.arrays import Bits, FloatArray

#: Programs of row tiles with copies that there are, roughly.
_TILE_PROGRAMS = 6
#: Key of written matrices that share a place: those that leave the same rows of the same words zero.
_ZeroRows = tuple[int, int] | None


@dataclass
class DataSection:
    """Weights, constants and tables of a plan, with their addresses."""

    plan: Plan
    config: NpuConfig
    formats: Formats = DEFAULT
    _constants: dict[bytes, str] = field(default_factory=dict)
    _weights: dict[Hashable, str] = field(default_factory=dict)
    _tables: dict[TableSpec, int] = field(default_factory=dict)
    _written: dict[_ZeroRows, str] = field(default_factory=dict)
    #: Blocks of weights of which some are copied, by name; these weights, and how many groups of them stay.
    _blocks: dict[str, tuple[WeightBlock, ...]] = field(default_factory=dict)
    _copied: dict[str, tuple[DenseWeights, int]] = field(default_factory=dict)
    _buffer: CopyBuffer | None = None

    def __post_init__(self) -> None:
        self.allocator = Allocator(self.config)

    def fill(self) -> None:
        """Put down weights, constants and tables of all layers."""
        layers = self.plan.lowered.layers
        specs = list(dict.fromkeys(spec for layer in layers for spec in layer.table_specs if spec != RELU))
        segments = [spec for spec in specs if fixed_entries(spec)]
        others = [spec for spec in specs if spec not in segments]
        share = others_share(others, segments, self.config)
        for spec in joined(segments):
            if (fixed_entries(spec) or 0) > self.config.table_depth:
                continue  # neither do they fit one by one
            self.allocator.entries(spec[0][0][0], activation_table(spec, self.config, share).entries)
        held = shared(others, self.config.table_slots - len(segments)) | {spec: spec for spec in segments}
        slots: dict[TableSpec, int] = {}
        stored: dict[Table, int] = {}
        for spec in dict.fromkeys(held.values()):
            name = "+".join(name for name, _ in spec[0])
            name += OF_NORMALISATION if isinstance(spec[1], TableSegment) and spec[1].undivided else ""
            table = activation_table(spec, self.config, share)
            unnamed = replace(table, name="")
            if unnamed not in stored:  # of codes whose scales hardly differ
                stored[unnamed] = self.allocator.table(f"table.{len(stored)}.{name}", table)
            slots[spec] = stored[unnamed]
        self._tables = {spec: slots[stored_spec] for spec, stored_spec in held.items()}
        self._written_matrices()
        if self.config.has(Op.COPY):
            self._choose_copied()
        for storage, values in self.plan.lowered.constants.items():
            name = f"vectors.{storage.name}"
            self.plan.constants[storage].addr = self.allocator.narrow_constant(name, values)
        if any(isinstance(layer, Recurrent) for layer in layers):
            self.allocator.constant("zero", np.zeros(self.config.native), "initial states")
        for index, layer in enumerate(layers):
            if isinstance(layer, Recurrent):
                self._cell(layer)
                continue
            if layer.weight is not None:
                self._weight(layer, self.slide(index))
            if layer.rows is not None and layer.rows.used is not None:
                self._constant(f"constant.{layer.name}.rows", layer.rows.used)
            for k, mfu_op in enumerate(layer.mfu_ops):
                if mfu_op.operand is not None and mfu_op.operand.constant is not None:
                    self._constant(f"constant.{layer.name}.{k}", mfu_op.operand.constant)

    def _written_matrices(self) -> None:
        """Room for the matrices that the program writes: each takes the place of the one before.

        They lie in front of all weights, as products with what lies beyond never wait for rows that are written. Rows
        of their last tiles that they do not fill are zero from the start, so that matrices with other such rows lie
        elsewhere.
        """
        native, kinds = self.config.native, dict[_ZeroRows, list[MatrixRows]]()
        for layer in self.plan.lowered.layers:
            if isinstance(layer, Layer) and layer.rows is not None:
                kinds.setdefault(_zero_rows(layer.rows, self.config), []).append(layer.rows)
        for number, (kind, matrices) in enumerate(kinds.items()):
            words = max(matrix_words(self.config, rows.count, rows.walk.tiles * native) for rows in matrices)
            zeros = [span for rows in matrices if (span := rows.zeros(self.config)) is not None]
            self._written[kind] = f"written matrix {number}"
            self.allocator.written_matrix(
                self._written[kind], words, max(zeros, key=lambda span: span.count, default=None), "products of tensors"
            )

    def written_matrix(self, rows: MatrixRows) -> int:
        """Address of the words into which the program writes a matrix."""
        return self.allocator[self._written[_zero_rows(rows, self.config)]]

    def _weight(self, layer: Layer, slide: Slide | None) -> None:
        """Weights of a layer; equal ones are stored once."""
        name, weight, mant = f"weight.{layer.name}", pad_weight(layer), self.formats.mantissa(layer, self.config)
        dense = layer.reduction is Reduction.DENSE
        if not dense and slide is not None and slide.down:
            weight = weight.transpose(0, 2, 1)
        key = (dense, slide is not None, mant, weight.shape, blake2b(weight.tobytes()).digest())
        if key in self._weights:
            self._share(name, self._weights[key])
            return
        self._weights[key] = name
        if dense:
            self._dense(name, weight, "", mant)
        else:
            self.allocator.depthwise(name, weight, mant=mant, sliding=slide is not None)

    def _cell(self, block: Recurrent) -> None:
        """Weights and constants of a recurrent block."""
        cell, name, mant = block.cell, block.name, self.formats.mantissa(block, self.config)
        for gate in cell.gates:
            self._dense(f"weight.{name}.w_{gate}", cell.w[gate], f"input weights of gate {gate}", mant)
            self._dense(f"weight.{name}.r_{gate}", cell.r[gate], f"recurrent weights of gate {gate}", mant)
        values = {f"bias_{gate}": bias for gate, bias in cell.bias.items()}
        values |= {f"inner_{gate}": bias for gate, bias in cell.inner.items()}
        values |= {f"peephole_{gate}": weight for gate, weight in cell.peephole.items()}
        values |= {f"initial_{key}": state for key, state in block.constants.items()}
        for key, value in values.items():
            self.allocator.constant(f"constant.{name}.{key}", value)

    def _dense(self, name: str, weight: FloatArray, doc: str, mant: int) -> None:
        """Dense weights, in the matrix memory or in the external memory."""
        if name not in self._copied:
            self.allocator.matrix(name, weight, doc, mant)
            return
        config, allocator = self.config, self.allocator
        assert self._buffer is not None
        weights, stay = self._copied[name]
        blocks = blocks_of(weights, stay, allocator.tiles(weight.shape[0]), self._buffer.words, config)
        last = blocks[-1].unit or 0
        count = last * COPY_UNIT + blocks[-1].rows * config.row_columns
        outputs = stay * config.engines * config.native
        if stay:
            allocator.matrix(name, weight[:outputs], doc, mant)

        def columns() -> Bits:
            """Columns of all blocks, each at its place."""
            others = quantize_matrix(weight[outputs:], config, mant=mant)
            rows = pack_columns(others, config).reshape(-1, config.row_columns)
            packed, start = np.zeros(count, dtype=np.uint16), 0
            for block in blocks:
                part = rows[start : start + block.rows].ravel()
                begin = (block.unit or 0) * COPY_UNIT
                packed[begin : begin + len(part)] = part
                start += block.rows
            return packed

        first = allocator.columns(name + COPIED, columns, count, doc)
        self._blocks[name] = tuple(
            block if block.unit is None else replace(block, unit=first + block.unit) for block in blocks
        )

    def _share(self, name: str, other: str) -> None:
        """Equal weights under another name."""
        for part in ("", COPIED):
            if other + part in self.allocator.allocations:
                self.allocator.share(name + part, other + part)
        if other in self._blocks:
            self._blocks[name] = self._blocks[other]

    def _choose_copied(self) -> None:
        """Decide which weights stay in the matrix memory, and reserve words for copies of the others."""
        kept, dense = self.allocator.used(RegionId.MATRIX), dict[Hashable, DenseWeights]()
        for index, layer in enumerate(self.plan.lowered.layers):
            if isinstance(layer, Recurrent):
                for kind, matrices, runs in (("w", layer.cell.w, 1), ("r", layer.cell.r, layer.time_steps)):
                    for gate, weight in matrices.items():
                        name = f"weight.{layer.name}.{kind}_{gate}"
                        dense[name] = self._shape(name, weight, runs)
            elif layer.weight is not None and layer.reduction is Reduction.DENSE:
                weight, runs = pad_weight(layer), self.plan.repeats[index] if index < self.plan.unshared else 1
                item = self._shape(f"weight.{layer.name}", weight, runs)
                item = replace(item, places=min(runs, _TILE_PROGRAMS), loop=True)
                dense.setdefault(blake2b(weight.tobytes()).digest(), item)
            elif layer.weight is not None:
                taps = math.prod(layer.weight.shape[1:])
                words = depthwise_words(self.config, layer.weight.shape[0], taps)
                kept += layer.out[2] if self.slide(index) else words
        program = self.plan.program_share * self.config.program_depth
        stay, self._buffer = copied(list(dense.values()), self.config.matrix_depth - kept, self.config, program)
        self._copied = {item.name: (item, stay[item.name]) for item in dense.values() if item.name in stay}
        if self._buffer is not None:
            what = f"weights of {len(stay)} products, by blocks"
            self.allocator.allocate(BUFFER, RegionId.MATRIX, self._buffer.total, what)

    def _shape(self, name: str, weight: FloatArray, runs: int) -> DenseWeights:
        config, taps = self.config, math.prod(weight.shape[1:-1])
        words = matrix_words(config, 1, weight.shape[-1], taps)
        return DenseWeights(name, matrix_words(config, weight.shape[0], weight.shape[-1], taps) // words, words, runs)

    def blocks(self, name: str, vectors: int) -> tuple[WeightBlock, ...]:
        """Blocks of dense weights: one of all vectors if they stay in the matrix memory."""
        return self._blocks.get(name) or (WeightBlock(0, vectors),)

    def copied_blocks(self, name: str) -> tuple[WeightBlock, ...]:
        """Blocks of dense weights that are copied; none if all stay in the matrix memory."""
        return tuple(block for block in self._blocks.get(name, ()) if block.unit is not None)

    def copies_inputs(self, block: Recurrent) -> bool:
        """True if weights of the inputs of a recurrent block are copied."""
        return any(f"weight.{block.name}.w_{gate}" in self._copied for gate in block.cell.gates)

    def copies_ahead(self) -> CopiesAhead | None:
        """Writer of the copies of a program, if there are any."""
        return (
            None if self._buffer is None else CopiesAhead(self.allocator[BUFFER], self._buffer, self.config.row_columns)
        )

    def _constant(self, name: str, values: FloatArray | Bits) -> None:
        key = _key(values)
        if key not in self._constants:
            self._constants[key] = name
            self.allocator.constant(name, values)

    def slide(self, index: int) -> Slide | None:
        """Way in which the windows of a layer slide, if they do."""
        return slide_of(self.plan.layer(index), self.config, whole=index >= self.plan.unshared)

    def table(self, spec: TableSpec) -> int:
        """Number of the table with a specification."""
        return self._tables[spec]

    def constant(self, values: FloatArray | Bits) -> int:
        """Address of a constant."""
        return self.allocator[self._constants[_key(values)]]


def _zero_rows(rows: MatrixRows, config: NpuConfig) -> _ZeroRows:
    """First word and first row of those that a matrix leaves zero."""
    zeros = rows.zeros(config)
    return None if zeros is None else (zeros.addr, zeros.row)


def _key(values: FloatArray | Bits) -> bytes:
    """Key that equal constants share, and no others."""
    return values.dtype.char.encode() + values.tobytes()
