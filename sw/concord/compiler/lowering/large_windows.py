"""Windows that are larger than those of a chain, in stages: maxima of maxima, means of means.

A window of k elements along an axis is k / a windows of a elements after one another. Stages read narrow tensors, so
every stage of a mean rounds once more; maxima are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from concord.compiler.ir.layout import LayoutError
from concord.compiler.lowering.legality import PADDED_STRIDE, TAPS, TILES
from concord.compiler.lowering.lower import Lowering, NodeBuilder
from concord.graph.ir import Node
from concord.graph.ops import OPS, OperatorKind
from concord.graph.ops.windows import AveragePoolAttributes, PoolAttributes, divisors, window_counts
from concord.spec.config import NpuConfig


def most(op: str, config: NpuConfig, inside: bool = False) -> int:
    """Elements of a window along one axis, or, ``inside``, native vectors of a position, that one chain reduces."""
    if OPS[op].kind is OperatorKind.MOVING:  # maxima
        return TAPS
    return min(TILES if inside else TAPS, config.max_terms)


def fits(op: str, kernel: tuple[int, ...], config: NpuConfig, inside: bool = False) -> bool:
    """True if one chain reduces such windows, or so many native vectors; only a sum has a greatest number of terms."""
    summed = OPS[op].kind is not OperatorKind.MOVING
    return max(kernel) <= most(op, config, inside) and not (summed and prod(kernel) > config.max_terms)


def divisor(number: int, limit: int, unit: int = 1) -> int:
    """The greatest divisor up to ``limit`` that is a multiple of ``unit``; 1 if there is none."""
    return next((k for k in range(min(number, limit), 1, -1) if number % k == 0 and k % unit == 0), 1)


@dataclass(frozen=True)
class _SmallWindow:
    """A window along one axis, with padding at its begin and end."""

    axis: int
    kernel: int
    stride: int
    dilation: int
    pads: tuple[int, int]

    def attrs(self, rank: int) -> dict[str, tuple[int, ...]]:
        """Attributes of a pooling for the window."""

        def along(value: int, other: int) -> tuple[int, ...]:
            return tuple(value if axis == self.axis else other for axis in range(rank))

        pads = (*along(self.pads[0], 0), *along(self.pads[1], 0))
        return {
            "kernel": along(self.kernel, 1),
            "strides": along(self.stride, 1),
            "dilations": along(self.dilation, 1),
            "pads": pads,
        }


def pool(lowering: Lowering, node: Node) -> list[Node] | None:
    """Stages of a pooling whose windows are too large.

    Raises
    ------
    LayoutError
        If windows along an axis are larger than those of a chain and overlap in a way that no stages share.
    """
    attributes, shape = node.attributes(PoolAttributes), lowering.graph.shapes[node.inputs[0]]
    kernel = attributes.kernel
    if fits(node.op, kernel, lowering.config):
        return None
    rank = len(kernel)
    lowering.view(node.inputs[0])  # an input is stored for windows
    if kernel == shape[-rank:] and not any(attributes.pads):
        axes = tuple(range(len(shape) - rank, len(shape)))
        op = "ReduceMax" if node.op == "MaxPool" else "ReduceMean"
        return [Node(op, node.name, node.inputs, node.outputs, {"axes": axes, "keepdims": True})]
    build, value = NodeBuilder(lowering, node), node.inputs[0]
    for stage in _small_windows(attributes, shape[-rank:], most(node.op, lowering.config)):
        attrs = stage.attrs(rank)
        if isinstance(attributes, AveragePoolAttributes):
            attrs["counted"] = attrs["pads"]
        value = build.add(node.op, "stage", value, **attrs)
    counts = divisors(attributes, shape[-rank:]) if isinstance(attributes, AveragePoolAttributes) else None
    if counts is not None and counts.min() < prod(kernel):
        return build.ending("Mul", value, constant=prod(kernel) / counts)  # not all of the padding is counted
    return build.renamed()


def _small_windows(window: PoolAttributes, spatial: Sequence[int], limit: int) -> Iterator[_SmallWindow]:
    """Windows along one axis after the other, the last one first, none with more than ``limit`` elements."""
    kernel, pads, counts = window.kernel, window.pads, window_counts(window, window.kernel, spatial)
    for axis in reversed(range(len(kernel))):
        size, dilation = kernel[axis], window.dilations[axis]
        around = (pads[axis], pads[len(kernel) + axis])
        stride = window.strides[axis] if counts[axis] > 1 else size * dilation
        while size > limit:
            part = divisor(gcd(size, stride), min(limit, PADDED_STRIDE) if any(around) else limit)
            if part == 1 or dilation > 1 or max(around) >= part:
                raise LayoutError(
                    f"windows over {limit} elements along an axis must be made of equal parts that the stride is a "
                    f"multiple of, without dilation and with less padding than a part, not {size} with stride {stride}"
                )
            yield _SmallWindow(axis, part, part, 1, around)
            size, stride, around = size // part, stride // part, (0, 0)
        if (size, stride, *around) != (1, 1, 0, 0):
            yield _SmallWindow(axis, size, stride if counts[axis] > 1 else 1, dilation, around)


def reduction(lowering: Lowering, node: Node, axes: list[int], inside: bool) -> list[Node] | None:
    """Stages of a reduction over ``axes``, each longer than 1: one axis after the other, a long one in parts.

    With ``inside``, what is reduced lies in one position, and parts must be whole native vectors. ``None`` if that is
    not possible.
    """
    build, (value,), shape = NodeBuilder(lowering, node), node.inputs, lowering.graph.shapes[node.inputs[0]]
    attrs = {key: node.attrs[key] for key in node.attrs if key not in ("axes", "keepdims")}

    def reduced(tensor: str, axis: int) -> str:
        return build.add(node.op, "stage", tensor, axes=(axis,), keepdims=True, **attrs)

    def rest(tensor: str) -> list[Node]:
        """Nodes for the rest of the reduction; products are counted where they are added up first."""
        left = {key: value for key, value in node.attrs.items() if key != "product"}
        return [*build.nodes, node.replace(inputs=(tensor,), attrs=left)]

    if len(axes) > 1:
        return rest(reduced(value, axes[-1]))
    (axis,) = axes
    size = shape[axis]
    unit = lowering.config.native if inside else 1
    part = divisor(size, most(node.op, lowering.config, inside) * unit, unit)
    if 1 < part < size:
        folded = (*shape[:axis], size // part, part, *shape[axis + 1 :])
        stage = reduced(build.add("Reshape", "folded", value, shape=folded), axis + 1)
        return rest(build.add("Reshape", "unfolded", stage, shape=(*folded[: axis + 1], *folded[axis + 2 :])))
    if inside:
        return None
    # A prime number of elements: an element-wise operation combines two halves.
    halves = []
    for start, stop in ((0, size // 2), (size // 2, size)):
        tensor = build.add("Slice", "half", value, axes=(axis,), starts=(start,), stops=(stop,), steps=(1,))
        tensor = reduced(tensor, axis)
        if node.op == "ReduceMean":
            tensor = build.add("Mul", "share", tensor, constant=np.asarray((stop - start) / size))
        halves.append(tensor)
    both = build.add("Max" if node.op == "ReduceMax" else "Add", "both", *halves)
    return build.ending("Reshape", both, shape=lowering.graph.shapes[node.outputs[0]])
