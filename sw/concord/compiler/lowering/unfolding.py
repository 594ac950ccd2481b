"""Inputs whose windows the host unfolds: what only a first convolution reads, laid out for fewer taps."""

from __future__ import annotations

import numpy as np

from concord.compiler.ir.layers import LayerWindow
from concord.compiler.ir.layout import PAD
from concord.compiler.lowering.inputs import Unfold, as_map, moved
from concord.compiler.lowering.lower import Lowering
from concord.graph.ir import Node
from concord.graph.ops import operator_of
from concord.graph.ops.linear import ConvAttributes
from concord.image.feeder_layout import Feed
from concord.utils.arrays import FloatArray, Ids


def unfolded(lowering: Lowering, node: Node, weight: FloatArray) -> tuple[str, Ids, FloatArray, LayerWindow] | None:
    """The input of a convolution that only it reads, laid out for fewer taps: name, view, weights, window.

    ``None`` where the input is computed, is a state, is read by others, or nothing would be gained. The host writes the
    padding, too, of an input whose offset no bias makes up for: it is no zero.
    """
    source = graph_input(lowering, node)
    if source is None:
        return None
    tensor, order = source
    attributes = node.attributes(ConvAttributes)
    bordered = tensor in lowering.formats.input_offsets and not attributes.bias.any()
    if tensor in lowering.done.states or (lowering.unfold is Unfold.NONE and not bordered):
        return None
    native = lowering.config.native
    height, _, channels = order.shape
    kh, kw = weight.shape[2:]
    choices = {
        Unfold.NONE: kh * kw * -(-channels // native),
        Unfold.HORIZONTAL: kh * -(-kw * channels // native),
        Unfold.BOTH: -(-kh * kw * channels // native),
    }
    best = min((u for u in Unfold if u.value <= lowering.unfold.value), key=lambda u: (choices[u], u.value))
    if best is Unfold.NONE and not bordered:
        return None
    lowering.done.unfolded = max(lowering.done.unfolded, best, key=lambda u: u.value)
    rank, pads = attributes.weight.ndim - 2, attributes.pads
    pads = pads if rank == 2 else (0, pads[0], 0, pads[1])
    (sy, sx), (dy, dx) = (part if rank == 2 else (1, part[0]) for part in (attributes.strides, attributes.dilations))
    padded = np.pad(order, ((pads[0], pads[2]), (pads[1], pads[3]), (0, 0)), constant_values=PAD)
    out_width = (padded.shape[1] - (kw - 1) * dx - 1) // sx + 1
    columns = np.arange(out_width)[:, None] * sx + np.arange(kw) * dx
    above, rows_read = (0, padded.shape[0]) if bordered else (pads[0], height)
    if best is Unfold.NONE:
        packed, folded = padded, weight
        window = LayerWindow((kh, kw), (sy, sx), (dy, dx), size=padded.shape[:2])
        feed = Feed(tensor, order.shape, origin=(-pads[0], -pads[1]), windows=padded.shape[:2])
    elif best is Unfold.HORIZONTAL:
        taken = padded[above : above + rows_read][:, columns]  # [rows, x, kx, channel]
        packed = taken.reshape(rows_read, out_width, kw * channels)
        folded = weight.transpose(0, 2, 3, 1).reshape(len(weight), kh, 1, kw * channels).transpose(0, 3, 1, 2)
        window = LayerWindow((kh, 1), (sy, 1), (dy, 1), (above, 0), (rows_read, out_width))
        origin = above - pads[0], -pads[1]
        feed = Feed(tensor, order.shape, (1, kw), (1, sx), (1, dx), origin, (rows_read, out_width))
    else:
        out_height = (padded.shape[0] - (kh - 1) * dy - 1) // sy + 1
        rows = np.arange(out_height)[:, None] * sy + np.arange(kh) * dy
        taken = padded[rows[:, None, :, None], columns[None, :, None, :]]  # [y, x, ky, kx, channel]
        packed = taken.reshape(out_height, out_width, kh * kw * channels)
        folded = weight.transpose(0, 2, 3, 1).reshape(len(weight), -1, 1, 1)
        window = LayerWindow(size=(out_height, out_width))
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
        if not operator_of(producer).view or len(producer.inputs) != 1:
            return None
        between.append(producer)
        name = producer.inputs[0]
    if name not in graph.inputs or len(lowering.readers[name]) != 1 or name in lowering.done.views:
        return None
    ids: Ids = np.arange(int(np.prod(graph.shapes[name], dtype=int))).reshape(graph.shapes[name])
    for mover in reversed(between):
        ids = moved(mover, [ids])
    return name, as_map(ids)
