"""Padding that no view of the tensor can stand for: its elements are copied to the places they have in the padded one.

Along every axis the padded tensor is made of runs whose elements come from consecutive ones of the tensor, forwards,
backwards or always the same: a box of such runs is a chain. A constant is written everywhere before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import Literal

import numpy as np

from concord.compiler.ir.layers import Border, Layer, MfuStep
from concord.compiler.ir.layout import PAD, LayoutError, Storage, Walk
from concord.compiler.lowering import legality, operands
from concord.compiler.lowering.lower import Lowering, NodeBuilder
from concord.compiler.lowering.unfolding import graph_input
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.moving import PadAttributes
from concord.spec.isa import Op
from concord.utils.arrays import Ids

#: Chains that a copy may take.
MOST_CHAINS = 256
#: Numbers of a matrix up to which a product pads an axis in lanes.
_SHORT = 1 << 16


def pad(lowering: Lowering, node: Node) -> list[Node] | None:
    """A copy, unless a view will do; a product with zeros and ones where the last axis is padded and in lanes."""
    graph, (result,) = lowering.graph, node.outputs
    by_view = result not in graph.outputs and all(_takes_views(node, reader) for reader in graph.consumers(result))
    by_view |= _copied(graph, node)
    if by_view or not any(node.attributes(PadAttributes).pads) or _on_the_host(lowering, node):
        return None
    try:
        _placed(lowering, lowering.whole(node.inputs[0]), padded_axes(node))
    except LayoutError:
        rank = len(graph.shapes[result])
        if rank - 1 in padded_axes(node):
            return _lanes(lowering, node, rank)
    return [node.replace(op="PadCopy")]


def padded_axes(node: Node) -> list[int]:
    """Axes of which a padding changes the length."""
    pads = node.attributes(PadAttributes).pads
    return sorted({index % (len(pads) // 2) for index, count in enumerate(pads) if count})


def _lanes(lowering: Lowering, node: Node, rank: int) -> list[Node]:
    """The last axis padded, and the others as before: a short one by a product, a long one by copies of vectors."""
    attributes = node.attributes(PadAttributes)
    pads = attributes.pads
    before, after = pads[rank - 1], pads[-1]
    size = lowering.graph.shapes[node.inputs[0]][-1]
    rest = tuple(0 if index % rank == rank - 1 else count for index, count in enumerate(pads))
    build = NodeBuilder(lowering, node)
    if size * (before + size + after) <= _SHORT:
        weight = np.pad(np.eye(size), ((before, after), (0, 0)), mode=attributes.mode)
        bias = np.where(weight.any(axis=1), 0.0, attributes.value)
        last = build.add("Dense", "last", node.inputs[0], weight=weight, bias=bias)
    else:
        last = _vectors(lowering, build, node, rank)
    if any(rest):
        return [*build.nodes, node.replace(inputs=(last,)).with_attrs(pads=rest)]
    return build.renamed()


def _vectors(lowering: Lowering, build: NodeBuilder, node: Node, rank: int) -> str:
    """The last axis padded, where every native vector of the result is a position of a copy."""
    attributes, native = node.attributes(PadAttributes), lowering.config.native
    (x,), axis = node.inputs, rank - 1
    shape = lowering.graph.shapes[x]
    size, before, after = shape[axis], attributes.pads[axis], attributes.pads[-1]
    length = before + size + after
    more, zeros = -length % native, attributes.mode == "constant"
    if zeros and max(before, after + more) < native:  # every vector has an element
        left, right = before, after + more
    else:
        parts = []
        for run in _runs(size, before, after, "edge" if zeros else attributes.mode):
            stop = run.start + (run.count * run.stride or 1)
            taken = {"starts": (run.start,), "stops": (max(stop, -1),), "steps": (run.stride or 1,)}
            part = build.add("Slice", "part", x, axes=(axis,), **taken)
            parts += [part] * (1 if run.stride else run.count)
        x = build.add("Concat", "padded", *parts, axis=axis)
        left, right = 0, more
    if left or right:
        pads = tuple(left if k == axis else right if k == 2 * rank - 1 else 0 for k in range(2 * rank))
        x = build.add("Pad", "whole vectors", x, pads=pads, mode="constant", value=0.0)
    vectors = (*shape[:-1], (length + more) // native, native)
    y = build.add("Reshape", "vectors", x, shape=vectors)
    y = build.add("Copy", "moved", y, shape=vectors, lanes=rank)
    y = build.add("Reshape", "row", y, shape=(*shape[:-1], length + more))
    if more:
        y = build.add("Slice", "last", y, axes=(axis,), starts=(0,), stops=(length,), steps=(1,))
    if zeros:
        inside = (np.arange(length) >= before) & (np.arange(length) < before + size)
        if max(before, after + more) >= native:
            y = build.add("Mul", "elements", y, constant=inside.astype(np.float64))
        if attributes.value:
            y = build.add("Add", "constant", y, constant=np.where(inside, 0.0, attributes.value))
    return y


def _on_the_host(lowering: Lowering, node: Node) -> bool:
    """True if a convolution of an input of the network reads the padded input, which the host unfolds."""
    graph, attributes = lowering.graph, node.attributes(PadAttributes)
    if attributes.mode == "constant" and attributes.value != 0:
        return False
    readers = graph.consumers(node.outputs[0])
    while len(readers) == 1 and operator_of(readers[0]).view:
        readers = graph.consumers(readers[0].outputs[0])
    return len(readers) == 1 and readers[0].op == "Conv" and graph_input(lowering, readers[0]) is not None


def _copied(graph: Graph, node: Node) -> bool:
    """True if a copy reads what is padded with zeros: it puts them where no element is."""
    attributes = node.attributes(PadAttributes)
    if attributes.mode != "constant" or attributes.value != 0:
        return False
    readers = graph.consumers(node.outputs[0])
    while len(readers) == 1 and operator_of(readers[0]).view and readers[0].op != "Pad":
        readers = graph.consumers(readers[0].outputs[0])
    return len(readers) == 1 and readers[0].op == "Copy"


def _takes_views(node: Node, reader: Node) -> bool:
    """True if a product takes every lane from wherever it is: the padding is elements of its positions."""
    attributes, weights = node.attributes(PadAttributes), operator_of(reader).weights
    if weights is None:
        return False
    inner = weights.inputs % (len(attributes.pads) // 2)
    zero = attributes.mode != "constant" or attributes.value == 0
    return zero and padded_axes(node) == [inner] and reader.inputs[0] == node.outputs[0]


@dataclass(frozen=True)
class _Run:
    """``count`` elements of the padded axis from ``at`` on: those of the tensor from ``start`` on, ``stride`` apart."""

    at: int
    count: int
    start: int
    stride: int


def _runs(size: int, before: int, after: int, mode: Literal["constant", "edge", "reflect", "wrap"]) -> list[_Run]:
    """The runs of an axis; elements of a constant are in none."""
    where = np.arange(size)
    if mode == "constant":
        return [_Run(before, size, 0, 1)]
    taken = np.pad(where, (before, after), mode=mode).tolist()
    runs: list[_Run] = []
    for at, index in enumerate(taken):
        last = runs[-1] if runs else None
        if last is not None and last.count == 1 and index - last.start in (-1, 0, 1):
            runs[-1] = _Run(last.at, 2, last.start, index - last.start)
        elif last is not None and last.count > 1 and index == last.start + last.count * last.stride:
            runs[-1] = _Run(last.at, last.count + 1, last.start, last.stride)
        else:
            runs.append(_Run(at, 1, index, 0))
    return runs


def _placed(lowering: Lowering, ids: Ids, padded: Sequence[int]) -> tuple[list[int], list[int], Walk]:
    """Axes that are positions, all that are padded among them, axes that are lanes, and how all is walked."""
    best: tuple[int, list[int], list[int], Walk] | None = None
    free = [axis for axis in range(ids.ndim) if axis not in padded]
    for count in range(len(free) + 1):
        for chosen in combinations(free, count):
            outside = [axis for axis in range(ids.ndim) if axis not in chosen]
            sizes = [ids.shape[axis] for axis in outside] or [1]
            view = ids.transpose(*outside, *chosen).reshape(prod(sizes[:-1]), sizes[-1], -1)
            try:
                walk = lowering.done.storages.walk(view, "input")
            except LayoutError:
                continue
            cost = prod(sizes) * walk.tiles
            if best is None or cost < best[0]:
                best = cost, outside, list(chosen), walk
    if best is None:
        raise LayoutError(f"axes {list(padded)} must be positions, none of them lanes of a native vector")
    return best[1:]


def _boxes(runs: list[list[_Run]]) -> Iterator[tuple[_Run, ...]]:
    """The runs of every box that two loops walk: the axes before the last two are taken one by one."""
    singles = [
        [_Run(run.at + k, 1, run.start + k * run.stride, 0) for run in axis for k in range(run.count)]
        for axis in runs[:-2]
    ]
    yield from product(*singles, *runs[-2:])


def pad_copy(lowering: Lowering, node: Node) -> None:
    """A storage for the padded tensor: that of the tensor becomes a part of it, or is copied to it box by box."""
    if _bordered(lowering, node):
        return
    ids, attributes = lowering.whole(node.inputs[0]), node.attributes(PadAttributes)
    pads, rank = attributes.pads, len(attributes.pads) // 2
    if (ids == PAD).any():
        raise LayoutError("elements must all be computed, none be padding")
    outside, lanes, walk = _placed(lowering, ids, padded_axes(node))
    runs = [_runs(ids.shape[axis], pads[axis], pads[rank + axis], attributes.mode) for axis in outside]
    chains = prod([*(sum(run.count for run in axis) for axis in runs[:-2]), *map(len, runs[-2:])])
    if chains > MOST_CHAINS:
        raise LayoutError(f"elements must be such that at most {MOST_CHAINS} chains copy them, not {chains:,}")
    frame = _Frame(lowering, node, outside, lanes, walk)
    if attributes.mode == "constant":
        frame.fill(attributes.value, tuple(slice(run.at, run.at + run.count) for (run,) in runs))
    vector = (ids - walk.storage.base) // lowering.config.native
    first = int(vector.reshape(-1)[0])
    stride = [int(vector.take(1, axis).reshape(-1)[0]) - first if ids.shape[axis] > 1 else 0 for axis in outside]
    for box in _boxes(runs):
        start = walk.start + sum(run.start * step for run, step in zip(box, stride, strict=True))
        strides = [run.stride * step for run, step in zip(box, stride, strict=True)]
        height, row_stride = (box[-2].count, strides[-2]) if len(box) > 1 else (1, 0)
        source = Walk(walk.storage, start, height, box[-1].count, walk.tiles, row_stride, strides[-1], walk.lanes)
        frame.layer(source, tuple(slice(run.at, run.at + run.count) for run in box))


def _bordered(lowering: Lowering, node: Node) -> bool:
    """True if the layer that computes a tensor writes what is around it, too, for the convolutions that read both.

    What is around must be whole mantissas of the exponent 0, which the tensor has.
    """
    attributes, done, (result,) = node.attributes(PadAttributes), lowering.done, node.outputs
    number, readers = attributes.value, lowering.graph.consumers(result)
    while len(readers) == 1 and operator_of(readers[0]).view:
        readers = lowering.graph.consumers(readers[0].outputs[0])
    exact = number.is_integer() and abs(number) <= lowering.config.act.q_max
    exact &= lowering.formats.exponents.get(result) == 0
    if attributes.mode != "constant" or not exact or not all(reader.op == "Conv" for reader in readers):
        return False
    ids, axes = lowering.whole(node.inputs[0]), padded_axes(node)
    outside, lanes, walk = _placed(lowering, ids, axes)
    storage = walk.storage
    makers = [layer for layer in done.layers if layer.target is storage]
    rest, inner = [axis for axis in outside if axis not in axes], outside[-2:]
    folded = any(ids.shape[axis] > 1 for axis in rest if axis not in inner)
    if len(makers) != 1 or not isinstance(layer := makers[0], Layer) or folded:
        return False
    tiles = storage.tiles
    plain = walk.start, walk.height, walk.width, walk.tiles, walk.row, walk.row_stride or storage.width * tiles
    if plain != (0, storage.height, storage.width, tiles, 1, storage.width * tiles):
        return False
    before, after = ([attributes.pads[axis + start] for axis in outside] for start in (0, ids.ndim))
    sizes = [ids.shape[axis] + before[k] + after[k] for k, axis in enumerate(outside)]
    (top, left), (height, width) = ([0, *numbers][-2:] for numbers in (before, [1, *sizes]))
    if layer.border is None and not _framed(lowering, layer, number, (top, left), (height, width)):
        return False
    border = layer.border
    assert border is not None
    y, x = border.top - top, border.left - left
    inside = min(y, x) >= 0 and y + height <= border.frame.height and x + width <= border.frame.width
    if not inside or border.constant is None or done.constants[border.constant][0, 0] != number:
        return False
    whole = border.frame.view(tiles * storage.native)[y : y + height, x : x + width][..., walk.lanes]
    whole = whole.reshape(*sizes, *(ids.shape[axis] for axis in lanes))
    done.views[result] = whole.transpose(np.argsort([*outside, *lanes]))
    return True


def _framed(lowering: Lowering, layer: Layer, number: float, corner: tuple[int, int], size: tuple[int, int]) -> bool:
    """Let a layer write a number around its result, if the storage can be part of a larger one."""
    done, storage = lowering.done, layer.target
    if (frame := framed(lowering, storage, corner, size)) is None:
        return False
    constant = next((held for held, values in done.constants.items() if (values == number).all()), None)
    if constant is None:
        constant = done.storages.new(f"{number:g} everywhere", 1, 1, storage.native)
        done.constants[constant] = np.full((1, storage.native), number)
    layer.border = Border(constant, frame, *corner, storage.height, storage.width)
    return True


def framed(lowering: Lowering, storage: Storage, corner: tuple[int, int], size: tuple[int, int]) -> Storage | None:
    """Make a storage part of a larger one of ``size`` positions, from ``corner`` on; returns that.

    Nothing if the storage has its place already, or those that read it cannot read it there.
    """
    if storage.parent is not None or storage.fixed:
        return None
    done, (top, left), (height, width), tiles = lowering.done, corner, size, storage.tiles
    frame = done.storages.new(f"{storage.name}/framed", height, width, tiles * storage.native)
    storage.place(frame, (top * width + left) * tiles, width * tiles, tiles)
    try:
        legality.check_storage(frame)
        for reader in done.layers:
            if any(read is storage for read, _, _ in reader.reads):
                legality.check_reads(reader)
    except LayoutError:
        storage.parent, storage.offset, storage.row_stride, storage.stride = None, 0, storage.width * tiles, tiles
        return None
    return frame


class _Frame:
    """The storage of a padded tensor, and the chains that write it."""

    def __init__(self, lowering: Lowering, node: Node, outside: list[int], lanes: list[int], walk: Walk):
        self.lowering, self.node, self.walk = lowering, node, walk
        shape = lowering.graph.shapes[node.outputs[0]]
        self.sizes = [shape[axis] for axis in outside]
        elements = walk.tiles * walk.storage.native
        self.parent = lowering.done.storages.new(node.outputs[0], prod(self.sizes[:-1]), self.sizes[-1], elements)
        self.order = np.argsort([*outside, *lanes])
        self.shape = (*self.sizes, *(shape[axis] for axis in lanes))
        whole = self.parent.view(elements)[..., walk.lanes].reshape(self.shape)
        lowering.done.views[node.outputs[0]] = whole.transpose(self.order)

    def layer(self, source: Walk, box: tuple[slice, ...]) -> Layer:
        """A chain that copies ``source`` to a box of positions."""
        done, parent = self.lowering.done, self.parent
        elements = parent.tiles * parent.native
        name = self.lowering.fresh(f"{self.node.name}.{len(done.layers)}")
        target = done.storages.new(name, source.height, source.width, elements)
        corner = np.ravel_multi_index([part.start for part in box], self.sizes)
        target.place(parent, int(corner) * parent.tiles, parent.width * parent.tiles, parent.tiles)
        ids = np.full(self.shape, PAD)
        ids[box] = target.view(elements)[..., source.lanes].reshape(ids[box].shape)
        made = Layer.copied(source, target, ids.transpose(self.order), self.node.inputs[0], self.node.outputs[0])
        made.nodes.append(self.node.name)
        legality.check_reads(made)
        done.layers.append(made)
        return made

    def fill(self, value: float, inside: tuple[slice, ...]) -> None:
        """A chain that writes a number everywhere; what lies ``inside`` comes later."""
        parent, walk = self.parent, self.walk
        source = Walk(walk.storage, walk.start, parent.height, parent.width, parent.tiles, 0, 0, walk.lanes)
        layer = self.layer(source, tuple(slice(0, size) for size in self.sizes))
        number = operands.constant(np.asarray(value), layer.ids, layer.target)
        layer.append([MfuStep(Op.VV_MIN, number), MfuStep(Op.VV_MAX, number)])
        rest = np.zeros(self.shape, dtype=np.bool_)
        rest[inside] = True
        layer.ids = np.where(rest.transpose(self.order), PAD, layer.ids)
