"""Invariants of lowered graphs: elements lie within their storages, and layers read only what is written before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from concord.compiler.ir.layers import AnyLayer, Layer, Recurrent
from concord.compiler.ir.layout import PAD, Storage, Walk
from concord.compiler.lowering.lowered import Lowered
from concord.utils.arrays import Ids


def problems(lowered: Lowered) -> Iterator[str]:
    """A line for everything that is inconsistent."""
    lines = [*_views(lowered), *_layers(lowered)]
    yield from lines
    if not lines:  # otherwise vectors may not even exist
        yield from _order(lowered)


def _views(lowered: Lowered) -> Iterator[str]:
    """Tensors lie within storages, and every output in a single one."""
    for tensor, ids in lowered.views.items():
        try:
            storages = lowered.storages.of(ids)
        except KeyError:
            yield f"tensor {tensor!r} must lie in storages that exist"
            continue
        yield from (f"tensor {tensor!r}: {line}" for storage in storages for line in _beyond(lowered, ids, storage))
        yield from (f"tensor {tensor!r}: {line}" for storage in storages for line in _placed(storage))
    for name in lowered.graph.outputs:
        if name not in lowered.views:
            yield f"output {name!r} must be computed"
        elif len(lowered.storages.of(lowered.views[name])) != 1 or (lowered.views[name] == PAD).any():
            yield f"output {name!r} must lie in one storage, without padding"


def _beyond(lowered: Lowered, ids: Ids, storage: Storage) -> Iterator[str]:
    elements = ids[(ids != PAD) & lowered.storages.within(ids, storage)] - storage.base
    if elements.size and int(elements.max()) >= storage.vectors * storage.native:
        yield f"elements must lie within the {storage.vectors} vectors of {storage.name}"


def _placed(storage: Storage) -> Iterator[str]:
    """A storage that is part of another one lies within it."""
    last = storage.vectors - 1
    while storage.parent is not None:
        last = storage.in_parent(last)
        storage = storage.parent
        if not 0 <= last < storage.vectors:
            yield f"a part of {storage.name} must lie within its {storage.vectors} vectors, not reach vector {last}"
            return


def _layers(lowered: Lowered) -> Iterator[str]:
    """Layers have names of their own, cover nodes that exist, and write results that fit their storages."""
    nodes = {node.name for node in lowered.graph.nodes}
    names = Counter(layer.name for layer in lowered.layers)
    yield from (f"layers must have names of their own, not {name!r} both" for name, count in names.items() if count > 1)
    for layer in lowered.layers:
        yield from (
            f"layer {layer.name!r} covers {name!r}, which is no node" for name in layer.nodes if name not in nodes
        )
        if not isinstance(layer, Layer):
            continue
        if not layer.fits([]):
            yield f"layer {layer.name!r} must not need more stages than the multifunction units have"
        target = layer.target
        if (whole := (target.height, target.width, target.tiles)) != layer.out:
            yield f"layer {layer.name!r} must write {target.name} as a whole, {whole}, not {layer.out}"
        inside = lowered.storages.within(layer.ids, layer.target)
        if not inside[layer.ids != PAD].all():
            yield f"layer {layer.name!r} must have all of its elements in {layer.target.name}"


def _order(lowered: Lowered) -> Iterator[str]:
    """Every vector that a layer reads is written by the host or by a layer before."""
    written: dict[Storage, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}

    def there(storage: Storage) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return written.setdefault(storage.root, np.zeros(storage.root.vectors, np.bool_))

    def fill(storage: Storage) -> None:
        there(storage)[storage.vector(np.arange(storage.vectors))] = True

    for storage in (*(storage for storage, _ in lowered.inputs.values()), *lowered.constants):
        fill(storage)
    for layer in lowered.layers:
        for what, storage, vectors in _reads(layer):
            if ((vectors < 0) | (vectors >= storage.vectors)).any():
                yield f"layer {layer.name!r} must read {what} within the {storage.vectors} vectors of {storage.name}"
            elif not there(storage)[storage.vector(vectors)].all():
                yield f"layer {layer.name!r} reads {what} in {storage.name} before it is written"
        fill(layer.border.frame if isinstance(layer, Layer) and layer.border is not None else layer.target)
        if isinstance(layer, Recurrent) and layer.c is not None:
            fill(layer.c)


def _reads(layer: AnyLayer) -> Iterator[tuple[str, Storage, Ids]]:
    """Sources of a layer: a name, a storage and its vectors."""
    yield layer.source_tensor, layer.source.storage, _walked(layer.source)
    if isinstance(layer, Recurrent):
        yield from ((f"initial {key}", walk.storage, _walked(walk)) for key, walk in layer.initial.items())
        return
    for operand, storage in layer.operands:
        yield operand.tensor or "an operand", storage, _loops(operand.start, *operand.loops(layer.out))
    if layer.rows is not None:
        yield layer.rows.tensor, layer.rows.walk.storage, _walked(layer.rows.walk)
    if layer.second is not None:
        yield "a second tensor", layer.second.storage, _walked(layer.second)


def _walked(walk: Walk) -> Ids:
    return _loops(walk.start, (walk.height, walk.row_stride), (walk.width, walk.stride), (walk.tiles, walk.row))


def _loops(start: int, *loops: tuple[int, int]) -> Ids:
    """Vectors of nested loops, each with its size and its stride; every vector once."""
    vectors: Ids = np.array([start])
    for size, stride in loops:
        vectors = np.add.outer(vectors, np.arange(size if stride else 1) * stride).reshape(-1)
    return vectors
