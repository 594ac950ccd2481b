"""How the host lays inputs out: in the order of their first reader, the window of a first convolution unfolded."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from concord.compiler.layers import Window
from concord.compiler.layout import PAD, Ids
from concord.graph.ir import Floats, Graph, Node
from concord.graph.ops import OPS, Kind

if TYPE_CHECKING:
    from concord.compiler.lower import Lowering


class Unfold(Enum):
    """Axes of a first convolution's window that the host writes out side by side, as channels of a position."""

    NONE = 0
    HORIZONTAL = 1
    BOTH = 2


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
            ids = np.asarray(OPS[node.op].evaluate(node, [ids[None].astype(float)])[0][0]).astype(np.int64)
        name = output
    spatial = node is not None and node.op in ("Conv", "MaxPool", "AveragePool")
    if spatial and ids.ndim == 4 and ids.shape[0] == 1:
        return np.asarray(ids[0].transpose(1, 2, 0))
    if spatial and ids.ndim == 3 and ids.shape[0] == 1:
        return np.asarray(ids[0].T[None])
    return ids.reshape(1, -1, ids.shape[-1] if ids.ndim else 1)


#: Operators that want their input in an order of their own.
_DEMANDING = ("Conv", "Dense", "MaxPool", "AveragePool", "ReduceMean", "LSTM", "GRU", "RNN", "Concat", "Pad")


def unfolded(lowering: Lowering, node: Node, weight: Floats) -> tuple[Ids, Floats, Window] | None:
    """The input of a convolution that only it reads, laid out for fewer taps: view, weights, window.

    ``None`` where the input is computed, is read by others, or nothing would be gained.
    """
    tensor = _graph_input(lowering, node)
    if tensor is None or lowering.unfold is Unfold.NONE:
        return None
    order = first_order(lowering.graph, tensor)
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
    rank = node.attrs["weight"].ndim - 2
    pads = node.attrs["pads"] if rank == 2 else (0, node.attrs["pads"][0], 0, node.attrs["pads"][1])
    (sy, sx), (dy, dx) = (
        tuple(node.attrs[name]) if rank == 2 else (1, node.attrs[name][0]) for name in ("strides", "dilations")
    )
    padded = np.pad(order, ((pads[0], pads[2]), (pads[1], pads[3]), (0, 0)), constant_values=PAD)
    out_width = (padded.shape[1] - (kw - 1) * dx - 1) // sx + 1
    columns = np.arange(out_width)[:, None] * sx + np.arange(kw) * dx
    if best is Unfold.HORIZONTAL:
        taken = order_rows(padded, pads, height)[:, columns]  # [height, x, kx, channel]
        packed = taken.reshape(height, out_width, kw * channels)
        folded = weight.transpose(0, 2, 3, 1).reshape(len(weight), kh, 1, kw * channels).transpose(0, 3, 1, 2)
        window = Window((kh, 1), (sy, 1), (dy, 1), (pads[0], 0), (height, out_width))
    else:
        out_height = (padded.shape[0] - (kh - 1) * dy - 1) // sy + 1
        rows = np.arange(out_height)[:, None] * sy + np.arange(kh) * dy
        taken = padded[rows[:, None, :, None], columns[None, :, None, :]]  # [y, x, ky, kx, channel]
        packed = taken.reshape(out_height, out_width, kh * kw * channels)
        folded = weight.transpose(0, 2, 3, 1).reshape(len(weight), -1, 1, 1)
        window = Window(size=(out_height, out_width))
    storage = lowering.store_input(tensor, packed)
    return storage.view(packed.shape[2]), folded, window


def order_rows(padded: Ids, pads: tuple[int, ...], height: int) -> Ids:
    """The rows of a padded image that are no padding."""
    return padded[pads[0] : pads[0] + height]


def _graph_input(lowering: Lowering, node: Node) -> str | None:
    """The input of the graph that a convolution reads, through nodes that move elements, and nothing else does."""
    graph, name = lowering.graph, node.inputs[0]
    while (producer := graph.producer(name)) is not None:
        moves = OPS[producer.op].kind is Kind.MOVING and producer.op not in ("MaxPool", "Relu", "Pad")
        if not moves or len(producer.inputs) != 1:
            return None
        before = producer.inputs[0]
        if np.prod(graph.shapes[before]) != np.prod(graph.shapes[name]):
            return None
        name = before
    alone = len(lowering.readers[name]) == 1 and name not in lowering.done.views
    return name if name in graph.inputs and alone else None
