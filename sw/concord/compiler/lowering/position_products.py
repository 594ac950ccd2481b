"""Products along an axis whose elements lie in positions: those of nodes with a constant adjacency, ``A X``.

A tile engine mixes the elements of a position. What lies in several positions is mixed by depthwise products instead:
every output is a window over the positions that its row of the matrix reads, with one number per position. Outputs
next to each other whose rows are the same, one element further, are one window that moves, as inside a regular grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from concord.compiler.ir.layout import PAD, LayoutError
from concord.compiler.lowering.inputs import as_map
from concord.compiler.lowering.legality import TAPS
from concord.compiler.lowering.lower import Lowering, NodeBuilder
from concord.graph.ir import Node
from concord.graph.ops.linear import DenseAttributes
from concord.utils.arrays import FloatArray, Ids


@dataclass(frozen=True)
class OutputRun:
    """Outputs next to each other that one window computes.

    Parameters
    ----------
    first, count : int
        Number of the first output, and number of outputs.
    begin : int
        Number of the first element that the first output reads.
    weight : array
        What every output multiplies the elements from there on with; the window moves by one element per output.
    bias : float
        Of all of them.
    """

    first: int
    count: int
    begin: int
    weight: FloatArray
    bias: float


def runs(weight: FloatArray, bias: FloatArray) -> Iterator[OutputRun]:
    """The windows for a matrix ``[O, K]`` and a bias ``[O]``."""
    run: OutputRun | None = None
    for k, row in enumerate(weight):
        used = np.flatnonzero(row)
        begin, end = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 1)
        taps = row[begin:end]
        if run is not None:
            goes_on = begin == run.begin + run.count and bias[k] == run.bias
            if goes_on and np.array_equal(taps, run.weight):
                run = OutputRun(run.first, run.count + 1, run.begin, run.weight, run.bias)
                continue
            yield run
        run = OutputRun(k, 1, begin, taps, float(bias[k]))
    if run is not None:
        yield run


def folded(taps: int, begin: int, size: int) -> tuple[int, int, int]:
    """Rows and columns of a window over ``taps`` elements from ``begin`` on, of ``size``, and where it begins.

    The smallest one, with as few rows as that takes.

    Raises
    ------
    LayoutError
        If no rectangle of elements that are there has so many.
    """
    sizes = [(-(-taps // columns), columns) for columns in range(min(taps, TAPS), 0, -1)]
    fitting = [each for each in sizes if each[0] <= TAPS and prod(each) <= size]
    if fitting:
        rows, columns = min(fitting, key=lambda each: (prod(each), each[0]))
        return rows, columns, min(begin, size - rows * columns)
    raise LayoutError(
        f"rows of a product along {size} positions must reach over fewer of them, or over a multiple of a number up "
        f"to {TAPS}, not over {taps}: another order of the nodes, or some more without neighbours"
    )


def product_along_positions(lowering: Lowering, node: Node) -> list[Node] | None:
    """Windows in the place of a product whose elements lie in positions; ``None`` if they lie in lanes.

    The axes in front of the one that is mixed are lanes: the last of them, or all.
    """
    (tensor,), shape = node.inputs, lowering.graph.shapes[node.inputs[0]]
    ids, storages = lowering.view(tensor), lowering.done.storages
    if len(storages.of(ids)) != 1 or (ids == PAD).any() or _walkable(lowering, ids.reshape(1, -1, shape[-1])):
        return None
    leading, size = shape[:-1], shape[-1]
    for lanes in (leading[-1], prod(leading)):
        if _walkable(lowering, as_map(ids.reshape(-1, lanes, size).swapaxes(0, 1)[None])):
            return _windows(lowering, node, lanes)
    return None


def _walkable(lowering: Lowering, view: Ids) -> bool:
    try:
        lowering.done.storages.walk(view, "input")
    except LayoutError:
        return False
    return True


def _windows(lowering: Lowering, node: Node, lanes: int) -> list[Node]:
    """Windows over the map ``[1, lanes, others, K]`` of the input, side by side in the output."""
    shape, out = lowering.graph.shapes[node.inputs[0]], lowering.graph.shapes[node.outputs[0]]
    size, others = shape[-1], prod(shape[:-1]) // lanes
    build = NodeBuilder(lowering, node)
    rows = build.add("Reshape", "rows", *node.inputs, shape=(1, others, lanes, size))
    source = build.add("Transpose", "map", rows, perm=(0, 2, 1, 3))
    parts = []
    for run in runs(node.attributes(DenseAttributes).weight, node.attributes(DenseAttributes).bias):
        taps = len(run.weight)
        if taps <= TAPS:
            height, width, begin, extent = 1, taps, run.begin, taps + run.count - 1
        elif others == 1 and run.count == 1:
            height, width, begin = folded(taps, run.begin, size)
            extent = height * width
        else:
            raise LayoutError(f"rows of a product along positions must reach over at most {TAPS} of them, not {taps}")
        kernel = np.zeros(height * width)
        kernel[run.begin - begin : run.begin - begin + taps] = run.weight
        some = build.add("Slice", "read", source, axes=(3,), starts=(begin,), stops=(begin + extent,), steps=(1,))
        if height > 1:
            some = build.add("Reshape", "folded", some, shape=(1, lanes, height, width))
        weight = np.broadcast_to(kernel.reshape(height, width), (lanes, 1, height, width)).copy()
        attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "bias": np.full(lanes, run.bias)}
        parts.append(build.add("Conv", "row", some, weight=weight, group=lanes, **attrs))
    together = build.add("Concat", "outputs", *parts, axis=3)
    back = build.add("Transpose", "back", together, perm=(0, 2, 1, 3))
    return build.ending("Reshape", back, shape=out)
