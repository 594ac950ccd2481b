"""The data section of a program: weights, constants and tables of all layers, which are loaded before it runs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from concord.compiler.ir.activations import activation_table, fixed_entries, joined, others_share, shared
from concord.compiler.ir.lane_padding import pad_weight
from concord.compiler.ir.layers import Layer, Patterns, Recurrent, Reduction
from concord.compiler.ir.sliding import Slide, slide_of
from concord.compiler.ir.table_specs import RELU, TableSpec
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.memory.plan import Plan
from concord.functions import Table
from concord.image.packing import matrix_words
from concord.program.allocator import Allocator
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.utils.arrays import FloatArray

#: Name of the allocation in the matrix memory that programs write.
WRITTEN_MATRIX = "written matrix"


@dataclass
class DataSection:
    """Weights, constants and tables of a plan, with their addresses."""

    plan: Plan
    config: NpuConfig
    formats: Formats = DEFAULT
    _constants: dict[bytes, str] = field(default_factory=dict)
    _weights: dict[Hashable, str] = field(default_factory=dict)
    _tables: dict[TableSpec, int] = field(default_factory=dict)

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
            table = activation_table(spec, self.config, share)
            unnamed = replace(table, name="")
            if unnamed not in stored:  # of codes whose scales hardly differ
                stored[unnamed] = self.allocator.table(f"table.{len(stored)}.{name}", table)
            slots[spec] = stored[unnamed]
        self._tables = {spec: slots[stored_spec] for spec, stored_spec in held.items()}
        self._written_matrix()
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

    def _written_matrix(self) -> None:
        """Room for the largest matrix that the program writes: each takes the place of the one before.

        It lies in front of all weights, as products with what lies behind it never wait for rows that are written.
        """
        layers = [layer for layer in self.plan.lowered.layers if isinstance(layer, Layer)]
        matrices = [layer.rows for layer in layers if layer.rows is not None]
        if matrices:
            native = self.config.native
            words = max(matrix_words(self.config, rows.count, rows.walk.tiles * native) for rows in matrices)
            self.allocator.allocate(WRITTEN_MATRIX, RegionId.MATRIX, words, "products of two tensors")

    def _weight(self, layer: Layer, slide: Slide | None) -> None:
        """Weights of a layer; equal ones are stored once."""
        name, weight, mant = f"weight.{layer.name}", pad_weight(layer), self.formats.mantissa(layer, self.config)
        dense = layer.reduction is Reduction.DENSE
        if not dense and slide is not None and slide.down:
            weight = weight.transpose(0, 2, 1)
        key = (dense, slide is not None, mant, weight.shape, blake2b(weight.tobytes()).digest())
        if key in self._weights:
            self.allocator.share(name, self._weights[key])
            return
        self._weights[key] = name
        if dense:
            self.allocator.matrix(name, weight, mant=mant)
        else:
            self.allocator.depthwise(name, weight, mant=mant, sliding=slide is not None)

    def _cell(self, block: Recurrent) -> None:
        """Weights and constants of a recurrent block."""
        cell, name, mant = block.cell, block.name, self.formats.mantissa(block, self.config)
        for gate in cell.gates:
            self.allocator.matrix(f"weight.{name}.w_{gate}", cell.w[gate], f"input weights of gate {gate}", mant)
            self.allocator.matrix(f"weight.{name}.r_{gate}", cell.r[gate], f"recurrent weights of gate {gate}", mant)
        values = {f"bias_{gate}": bias for gate, bias in cell.bias.items()}
        values |= {f"inner_{gate}": bias for gate, bias in cell.inner.items()}
        values |= {f"peephole_{gate}": weight for gate, weight in cell.peephole.items()}
        values |= {f"initial_{key}": state for key, state in block.constants.items()}
        for key, value in values.items():
            self.allocator.constant(f"constant.{name}.{key}", value)

    def _constant(self, name: str, values: FloatArray | Patterns) -> None:
        key = _key(values)
        if key not in self._constants:
            self._constants[key] = name
            self.allocator.constant(name, values)

    def slide(self, index: int) -> Slide | None:
        """How the windows of a layer slide, if they do."""
        return slide_of(self.plan.layer(index), self.config, whole=index >= self.plan.unshared)

    def table(self, spec: TableSpec) -> int:
        """Number of the table with a specification."""
        return self._tables[spec]

    def constant(self, values: FloatArray | Patterns) -> int:
        """Address of a constant."""
        return self.allocator[self._constants[_key(values)]]


def _key(values: FloatArray | Patterns) -> bytes:
    """What is the same of equal constants alone."""
    return values.dtype.char.encode() + values.tobytes()
