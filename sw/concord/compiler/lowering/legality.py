"""Limits of chains: sizes must fit the fields of instructions, sums and weights their registers."""

from __future__ import annotations

import numpy as np

from concord.compiler.ir.layers import AnyLayer, Layer, Recurrent, Reduction
from concord.compiler.ir.layout import LayoutError, Storage
from concord.compiler.lowering import operands
from concord.graph.ir import Node
from concord.graph.ops import operator_of
from concord.graph.ops.recurrent import LstmAttributes, RecurrentAttributes
from concord.spec.config import NpuConfig
from concord.spec.isa import FORMS, VECTOR_ADDR_BITS, Op


def greatest(op: Op, name: str) -> int:
    """Greatest value of a field of an instruction."""
    (field,) = (field for field in FORMS[op].fields.fields if field.name == name)
    return (1 << field.width - field.signed) - 1


#: Greatest size of a window along either axis.
TAPS = greatest(Op.SET_WINDOW, "kw")
#: Greatest stride of padded windows.
PADDED_STRIDE = greatest(Op.SET_PAD, "step_x")
#: Greatest number of native vectors of a position.
TILES = greatest(Op.SET_SHAPE, "cols")


def check(layer: Layer, config: NpuConfig) -> None:
    """Refuse a layer that no chain can compute, whatever the size of the memories.

    Raises
    ------
    LayoutError
        With every size that is too large.
    """
    window, (height, width, tiles) = layer.window, layer.out
    cols = layer.cols if layer.reduction is Reduction.DENSE else 1
    sizes = [
        ("native vectors per position", max(tiles, cols), TILES),
        ("positions", max(height, width), greatest(Op.SET_ITERS, "inner")),
        ("window", max(window.kernel), TAPS),
        ("dilation", max(window.dilation), greatest(Op.SET_WINDOW, "dil_x")),
    ]
    if window.padded((height, width)):
        sizes += [
            ("padding", max(window.begin), greatest(Op.SET_PAD, "x0") + 1),
            ("stride of padded windows", max(window.stride), PADDED_STRIDE),
            ("size of a padded image", max(window.size), greatest(Op.SET_PAD, "width")),
        ]
    _refuse(sizes)
    if layer.product:
        check_sum(window.taps * cols, config)
    check_reads(layer)


def check_reads(layer: AnyLayer) -> None:
    """Refuse a layer that reads vectors which no loops lead through where they lie now, with :class:`LayoutError`."""
    for storage, start, loops in layer.reads:
        storage.in_root(start, loops)
    source = layer.source.in_root()
    if isinstance(layer, Layer) and layer.second is not None:
        second = layer.second.in_root()
        if (source.row_stride, source.stride, source.row) != (second.row_stride, second.stride, second.row):
            raise LayoutError(f"{source.storage.name} and {second.storage.name} must have vectors at equal distances")
    dense = isinstance(layer, Recurrent) or layer.reduction is Reduction.DENSE
    summed = layer.cols if isinstance(layer, Layer) else source.tiles
    if dense and summed > 1 and source.row != 1:
        raise LayoutError(f"vectors of {source.storage.name} that are added up must lie one behind the other")


def check_sum(terms: int, config: NpuConfig) -> None:
    """Refuse a sum of more native products than an accumulator takes with :class:`LayoutError`."""
    _refuse([(f"native products in a sum on {config.name}", terms, config.max_terms)])


def check_storage(storage: Storage) -> None:
    """Refuse a tensor of one row with more vectors than addresses, with :class:`LayoutError`; others may be tiled."""
    if storage.height == 1:
        _refuse([(f"native vectors of {storage.name}", storage.vectors, 1 << VECTOR_ADDR_BITS)])


def check_weights(node: Node, config: NpuConfig) -> None:
    """Refuse weights that no block of the matrix memory holds, and their biases, with :class:`LayoutError`."""
    limit = config.wgt.limit
    held = operator_of(node).weights
    for weight in () if held is None else held.weights_of(node):
        peak = float(np.abs(weight).max())
        if peak >= limit:
            raise LayoutError(f"weights must be below {limit:g} in magnitude, not {peak:g}; scale them in the model")
    if operator_of(node).recurrence:
        cell = node.attributes(RecurrentAttributes)
        peepholes = cell.P if isinstance(cell, LstmAttributes) else None
        constants = [("biases", cell.B), ("peepholes", peepholes), *(("states", state) for state in cell.initial)]
        for what, values in constants:
            if values is not None:
                operands.check_constant(values, what)


def _refuse(sizes: list[tuple[str, int, int]]) -> None:
    """Refuse sizes, each with its name in front and what is possible after it, that are too large."""
    if reasons := [f"{what} must be at most {most}, not {size}" for what, size, most in sizes if size > most]:
        raise LayoutError("; ".join(reasons))
