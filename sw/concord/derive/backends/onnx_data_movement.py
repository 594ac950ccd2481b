"""Data movement of a derived model in ONNX: elements change places, and nothing is computed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from concord.derive import ir
from concord.derive.backends.node_facts import positions, singles
from concord.derive.backends.onnx_writer import Writer

#: End of a slice that goes down to the first element.
_BEFORE_FIRST = -(1 << 62)


class DataMovement:
    """Writes nodes that move data.

    Members
    -------
    names : dict
        Tensors of values whose name is not that of the value.
    """

    def __init__(self, writer: Writer):
        self.writer = writer
        self.names: dict[ir.Value, str] = {}

    def name(self, value: ir.Value) -> str:
        """The tensor of a value."""
        return self.names.get(value, value.name)

    def source(self, value: ir.Value) -> str:
        """The tensor of a value that may be an input of the model."""
        return self.name(value)

    def batch(self, value: ir.Value) -> str:
        """The number of samples, as a tensor of one element."""
        return self.writer.node("Shape", [self.source(value)], start=0, end=1)

    def expand(self, name: str, shape: ir.Shape, batch: str) -> str:
        """A tensor without samples, once for every sample."""
        whole = self.writer.node("Concat", [batch, self.writer.ints(list(shape))], axis=0) if shape else batch
        return self.writer.node("Expand", [name, whole])

    def expanded(self, value: ir.Value, batch: str) -> str:
        """The tensor of a value with an axis of samples, whether it has one or not."""
        return self.name(value) if value.batched else self.expand(self.name(value), value.shape, batch)

    def aligned(self, value: ir.Value, rank: int) -> str:
        """A value for broadcasting with samples of ``rank`` axes."""
        missing = rank - len(value.shape)
        if not value.batched or not missing:
            return self.name(value)
        return self.writer.node("Reshape", [self.name(value), self.writer.ints([0, *[1] * missing, *value.shape])])

    def split(self, name: str, sizes: list[int], axis: int = -1) -> list[str]:
        """Parts of a tensor along an axis."""
        ends = np.cumsum([0, *sizes])
        w = self.writer
        return [
            w.node("Slice", [name, w.ints([start]), w.ints([end]), w.ints([axis])])
            for start, end in pairwise(ends.tolist())
        ]

    def move(self, node: ir.ModelNode) -> None:
        """Write one node that moves data; ``TypeError`` if the node is none."""
        w, out = self.writer, self.name(node.output)
        axes = int(node.output.batched)
        match node:
            case ir.Gather():
                self._gather(node)
            case ir.Reshape():
                w.node("Reshape", [self.source(node.x), w.ints([*[0] * axes, *node.output.shape])], out)
            case ir.Transpose():
                perm = [*range(axes), *(axis + axes for axis in node.perm)]
                w.node("Transpose", [self.source(node.x)], out, perm=perm)
            case ir.Slice():
                self._slice(node)
            case ir.Concat():
                axis = node.axis % len(node.output.shape) + axes
                w.node("Concat", self._together(node.xs), out, axis=axis)
            case ir.MapWindows():
                self._windows(node)
            case _:
                raise TypeError(f"nodes must be those of concord.derive.ir, not {type(node).__name__}")

    def _together(self, xs: tuple[ir.Value, ...]) -> list[str]:
        """Sources that all have samples, if one has."""
        batched = [value for value in xs if value.batched]
        if not batched or len(batched) == len(xs):
            return [self.source(value) for value in xs]
        batch = self.batch(batched[0])
        return [self.source(value) if value.batched else self.expanded(value, batch) for value in xs]

    def _gather(self, node: ir.Gather) -> None:
        w, axes = self.writer, int(node.output.batched)
        flat = [
            w.node("Reshape", [name, w.ints([*[0] * axes, value.size])])
            for name, value in zip(self._together(node.xs), node.xs, strict=True)
        ]
        total = sum(value.size for value in node.xs)
        if len(node.fill):
            flat.append(self._fill(node, flat[0]))
        every = flat[0] if len(flat) == 1 else w.node("Concat", flat, axis=-1)
        index = np.where(node.index < 0, total - 1 - node.index, node.index)
        if np.array_equal(index.reshape(-1), np.arange(total)) and len(flat) == 1:
            w.node("Reshape", [every, w.ints([*[0] * axes, *node.output.shape])], self.name(node.output))
            return
        w.node("Gather", [every, w.ints(index)], self.name(node.output), axis=axes)

    def _fill(self, node: ir.Gather, beside: str) -> str:
        real = node.output.type is ir.Type.REAL
        constant = self.writer.constant(singles(node.fill), np.float64 if real else np.float32, "fill")
        if not node.output.batched:
            return constant
        batch = self.writer.node("Shape", [beside], start=0, end=1)
        return self.expand(constant, (len(node.fill),), batch)

    def _slice(self, node: ir.Slice) -> None:
        w, counts = self.writer, node.output.shape
        ends = [start + count * step for start, count, step in zip(node.starts, counts, node.steps, strict=True)]
        ends = [end if end >= 0 else _BEFORE_FIRST for end in ends]
        axes = [axis + int(node.output.batched) for axis in range(len(counts))]
        numbers = [w.ints(list(values)) for values in (node.starts, ends, axes, node.steps)]
        w.node("Slice", [self.source(node.x), *numbers], self.name(node.output))

    def _windows(self, node: ir.MapWindows) -> None:
        """One Gather of positions of the map, which is padded by what windows reach beyond it."""
        w, axes = self.writer, int(node.output.batched)
        rest = node.x.shape[2:]
        index, pad = positions(node)
        top, bottom, left, right = pad
        x = self.source(node.x)
        if any(pad):
            real = node.output.type is ir.Type.REAL
            fill = w.constant(singles(np.uint16(node.fill)), np.float64 if real else np.float32, "fill")
            pads = w.ints([*[0] * axes, top, left, *[0] * len(rest), *[0] * axes, bottom, right, *[0] * len(rest)])
            x = w.node("Pad", [x, pads, fill])
        places = (node.x.shape[0] + top + bottom) * (node.x.shape[1] + left + right)
        flat = w.node("Reshape", [x, w.ints([*[0] * axes, places, *rest])])
        if np.array_equal(index.reshape(-1), np.arange(places)):
            w.node("Reshape", [flat, w.ints([*[0] * axes, *node.output.shape])], self.name(node.output))
            return
        w.node("Gather", [flat, w.ints(index)], self.name(node.output), axis=axes)
