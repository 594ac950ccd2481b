"""How the host lays inputs out: in the order of their first reader."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from concord.compiler.ir.layout import PAD, LayoutError
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.utils.arrays import Ids


class Unfold(Enum):
    """Axes of a first convolution's window that the host writes out side by side, as channels of a position."""

    NONE = 0
    HORIZONTAL = 1
    BOTH = 2


def moved(node: Node, views: Sequence[Ids]) -> Ids:
    """The view of what a node makes by moving the elements of its inputs.

    Raises
    ------
    LayoutError
        If it pads with anything but zeros, or with elements of the tensor.
    """
    if node.op == "Pad" and node.attrs["mode"] == "constant":
        if node.attrs["value"] != 0 and any(node.attrs["pads"]):
            raise LayoutError(f"padding of {node.name} must be with zeros, not with {node.attrs['value']!r}")
        node = node.with_attrs(value=PAD)
    (result,) = operator_of(node).evaluate(node, [view[None].astype(np.float64) for view in views])
    return np.asarray(result[0]).astype(np.int64)


def first_order(graph: Graph, tensor: str) -> Ids:
    """Elements of a sample as ``[height, width, channel]``, as the first node with a say in it wants them.

    Nodes that move elements or work on every one of them are looked through.
    """
    shape = graph.shapes[tensor]
    ids: Ids = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    name = tensor
    while (node := next((n for n in graph.nodes if name in n.inputs), None)) is not None:
        output, record = node.outputs[0], operator_of(node)
        if record.layout_sensitive or not output or np.prod(graph.shapes[output]) != ids.size:
            break
        if record.view:
            ids = moved(node, [ids])
        name = output
    if node is not None and operator_of(node).windowed:
        return as_map(ids)
    if node is not None and node.op == "Concat" and _becomes_map(graph, node.outputs[0]):
        return as_map(ids.reshape(1, -1, *ids.shape[2:]))
    if (
        node is not None
        and node.op == "Pad"
        and not any(_weighs_last_axis(reader) for reader in graph.consumers(node.outputs[0]))
    ):
        return _unpadded_last(node, ids)
    return ids.reshape(1, -1, ids.shape[-1] if ids.ndim else 1)


def _weighs_last_axis(node: Node) -> bool:
    weights = operator_of(node).weights
    return weights is not None and weights.inputs == -1


def _becomes_map(graph: Graph, tensor: str) -> bool:
    """Whether a convolution or pooling reads a tensor, alone or behind others, as an image or several of them."""
    while (node := next((n for n in graph.nodes if tensor in n.inputs), None)) is not None:
        if operator_of(node).windowed:
            return True
        images, *rest = graph.shapes[tensor]
        merged = rest and graph.shapes[node.outputs[0]] == (1, images * rest[0], *rest[1:])
        if node.op != "Concat" and not (node.op == "Reshape" and merged):
            return False
        tensor = node.outputs[0]
    return False


def _unpadded_last(node: Node, ids: Ids) -> Ids:
    """The longest axis that is not padded as lanes."""
    pads = node.attrs["pads"]
    free = [axis for axis in range(ids.ndim) if not (pads[axis] or pads[ids.ndim + axis])]
    if not free:
        return ids.reshape(1, -1, 1)
    lanes = max(free, key=lambda axis: ids.shape[axis])
    return np.asarray(np.moveaxis(ids, lanes, -1).reshape(1, -1, ids.shape[lanes]))


def as_map(ids: Ids) -> Ids:
    """``[1, C, *spatial]`` as ``[height, width, channels]``; one spatial axis is the width."""
    if ids.shape[0] != 1 or ids.ndim not in (3, 4):
        raise LayoutError(f"must be [1, channels, (height,) width], not {list(ids.shape)}")
    return np.asarray(ids[0].transpose(1, 2, 0) if ids.ndim == 4 else ids[0].T[None])
