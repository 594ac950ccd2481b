"""How the host lays inputs out: in the order of their first reader, the window of a first convolution unfolded."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from concord.compiler.layers import Window
from concord.compiler.layout import PAD, Ids, LayoutError
from concord.feeding import Feed
from concord.graph.ir import Floats, Graph, Node
from concord.graph.ops import OPS, Kind

if TYPE_CHECKING:
    from concord.compiler.lower import Lowering


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
    (result,) = OPS[node.op].evaluate(node, [view[None].astype(np.float64) for view in views])
    return np.asarray(result[0]).astype(np.int64)


def first_order(graph: Graph, tensor: str) -> Ids:
    """Elements of a sample as ``[height, width, channel]``, as the first node with a say in it wants them.

    Nodes that move elements or work on every one of them are looked through.
    """
    shape = graph.shapes[tensor]
    ids: Ids = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    name = tensor
    while (node := next((n for n in graph.nodes if name in n.inputs), None)) is not None:
        output = node.outputs[0]
        if node.op in _DEMANDING or not output or np.prod(graph.shapes[output]) != ids.size:
            break
        if OPS[node.op].kind is Kind.MOVING and node.op != "Relu":
            ids = moved(node, [ids])
        name = output
    if node is not None and node.op in _ON_MAPS:
        return as_map(ids)
    if node is not None and node.op == "Concat" and _becomes_map(graph, node.outputs[0]):
        return as_map(ids.reshape(1, -1, *ids.shape[2:]))
    if (
        node is not None
        and node.op == "Pad"
        and not any(reader.op in ("Dense", "LSTM", "GRU", "RNN") for reader in graph.consumers(node.outputs[0]))
    ):
        return _unpadded_last(node, ids)
    return ids.reshape(1, -1, ids.shape[-1] if ids.ndim else 1)


def _becomes_map(graph: Graph, tensor: str) -> bool:
    """Whether a convolution or pooling reads a tensor, alone or behind others, as an image or several of them."""
    while (node := next((n for n in graph.nodes if tensor in n.inputs), None)) is not None:
        if node.op in _ON_MAPS:
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


_ON_MAPS = ("Conv", "MaxPool", "AveragePool")
#: Operators that want their input in an order of their own.
_DEMANDING = (
    "Conv", "Dense", "MatMul", "MaxPool", "AveragePool", "ReduceMean", "ReduceSum", "ReduceMax", "LSTM", "GRU", "RNN",
    "Concat", "Pad", "Expand", "Apart", "Normalise",
)  # fmt: skip


def unfolded(lowering: Lowering, node: Node, weight: Floats) -> tuple[str, Ids, Floats, Window] | None:
    """The input of a convolution that only it reads, laid out for fewer taps: name, view, weights, window.

    ``None`` where the input is computed, is read by others, or nothing would be gained.
    """
    found = graph_input(lowering, node)
    if found is None or lowering.unfold is Unfold.NONE:
        return None
    tensor, order = found
    native = lowering.config.native
    height, _, channels = order.shape
    kh, kw = weight.shape[2:]
    choices = {
        Unfold.NONE: kh * kw * -(-channels // native),
        Unfold.HORIZONTAL: kh * -(-kw * channels // native),
        Unfold.BOTH: -(-kh * kw * channels // native),
    }
    best = min((u for u in Unfold if u.value <= lowering.unfold.value), key=lambda u: (choices[u], u.value))
    if best is Unfold.NONE:
        return None
    lowering.done.unfolded = max(lowering.done.unfolded, best, key=lambda u: u.value)
    rank = node.attrs["weight"].ndim - 2
    pads = node.attrs["pads"] if rank == 2 else (0, node.attrs["pads"][0], 0, node.attrs["pads"][1])
    (sy, sx), (dy, dx) = (
        tuple(node.attrs[name]) if rank == 2 else (1, node.attrs[name][0]) for name in ("strides", "dilations")
    )
    padded = np.pad(order, ((pads[0], pads[2]), (pads[1], pads[3]), (0, 0)), constant_values=PAD)
    out_width = (padded.shape[1] - (kw - 1) * dx - 1) // sx + 1
    columns = np.arange(out_width)[:, None] * sx + np.arange(kw) * dx
    if best is Unfold.HORIZONTAL:
        taken = padded[pads[0] : pads[0] + height][:, columns]  # [height, x, kx, channel]
        packed = taken.reshape(height, out_width, kw * channels)
        folded = weight.transpose(0, 2, 3, 1).reshape(len(weight), kh, 1, kw * channels).transpose(0, 3, 1, 2)
        window = Window((kh, 1), (sy, 1), (dy, 1), (pads[0], 0), (height, out_width))
        feed = Feed(tensor, order.shape, (1, kw), (1, sx), (1, dx), (0, -pads[1]), (height, out_width))
    else:
        out_height = (padded.shape[0] - (kh - 1) * dy - 1) // sy + 1
        rows = np.arange(out_height)[:, None] * sy + np.arange(kh) * dy
        taken = padded[rows[:, None, :, None], columns[None, :, None, :]]  # [y, x, ky, kx, channel]
        packed = taken.reshape(out_height, out_width, kh * kw * channels)
        folded = weight.transpose(0, 2, 3, 1).reshape(len(weight), -1, 1, 1)
        window = Window(size=(out_height, out_width))
        origin = -pads[0], -pads[1]
        feed = Feed(tensor, order.shape, (kh, kw), (sy, sx), (dy, dx), origin, (out_height, out_width))
    lowering.done.feeds[tensor] = feed
    storage = lowering.store_input(tensor, packed)
    return tensor, storage.view(packed.shape[2]), folded, window


def graph_input(lowering: Lowering, node: Node) -> tuple[str, Ids] | None:
    """The input of the graph that a convolution reads, if nothing else does, and its elements as the image.

    Nodes in between that move elements are looked through.
    """
    graph, name, between = lowering.graph, node.inputs[0], []
    while (producer := graph.producer(name)) is not None:
        moves = OPS[producer.op].kind is Kind.MOVING and producer.op not in ("MaxPool", "ReduceMax", "Relu")
        if not moves or len(producer.inputs) != 1:
            return None
        between.append(producer)
        name = producer.inputs[0]
    if name not in graph.inputs or len(lowering.readers[name]) != 1 or name in lowering.done.views:
        return None
    ids: Ids = np.arange(int(np.prod(graph.shapes[name], dtype=int))).reshape(graph.shapes[name])
    for mover in reversed(between):
        ids = moved(mover, [ids])
    return name, as_map(ids)


def as_map(ids: Ids) -> Ids:
    """``[1, C, *spatial]`` as ``[height, width, channels]``; one spatial axis is the width."""
    if ids.shape[0] != 1 or ids.ndim not in (3, 4):
        raise LayoutError(f"must be [1, channels, (height,) width], not {list(ids.shape)}")
    return np.asarray(ids[0].transpose(1, 2, 0) if ids.ndim == 4 else ids[0].T[None])
