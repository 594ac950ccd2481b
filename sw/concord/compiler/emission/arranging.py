"""Layout of the inputs and outputs of a lowered network, for the host or a feeder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from concord.compiler.ir.arrangement import Arrangement, InputGrid
from concord.compiler.ir.layout import BORDER, PAD
from concord.compiler.lowering.lowered import Lowered
from concord.golden import binary16
from concord.graph.equalised import Scales
from concord.graph.ir import Shape
from concord.image import Image
from concord.image.code_book import Coding
from concord.image.feeder_layout import Feed, Feeding
from concord.spec.feeder import CODE_PAGE
from concord.utils.arrays import Ints


def arranged(
    lowered: Lowered,
    shapes: Mapping[str, Shape],
    batch: int = 1,
    grids: Mapping[str, InputGrid] | None = None,
    input_offsets: Mapping[str, float] | None = None,
    channel_scales: Scales | None = None,
) -> Arrangement:
    """Arrangement that makes the ports of a lowered graph of samples, and results of its ports."""
    graph = lowered.graph
    of_host = {*(grids or {}), *(input_offsets or {}), *(channel_scales or {})}
    if prepared := sorted(of_host.intersection(lowered.states)):
        raise ValueError(f"states must be as the NPU leaves them, and {prepared[0]} would be prepared by the host")
    inputs, outputs, states = {}, {}, {}
    for name, (storage, order) in lowered.inputs.items():
        full = np.full((storage.height, storage.width, storage.tiles * storage.native), PAD)
        full[..., : order.shape[2]] = np.where(order == PAD, BORDER, order) if name in lowered.offsettable else order
        if name in lowered.states:
            states[name] = lowered.states[name], full.reshape(-1, storage.native)
            continue
        full[..., order.shape[2] :] = full[..., order.shape[2] - 1 : order.shape[2]]  # padding lanes hold copies
        inputs[name] = full.reshape(-1, storage.native)
    for name in graph.outputs:
        (storage,) = lowered.storages.of(lowered.views[name])
        outputs[name] = storage.in_span(lowered.views[name]).reshape(-1)
    offsets, scales = dict(input_offsets or {}), dict(channel_scales or {})
    return Arrangement(inputs, outputs, dict(shapes), batch, dict(grids or {}), offsets, scales, states=states)


def feeding(lowered: Lowered, arrangement: Arrangement, image: Image) -> Feeding:
    """Layout by which a feeder lays out the inputs and collects the outputs; without inputs that it cannot lay out."""
    feeds, config = [], image.config
    for name in arrangement.inputs:
        order = lowered.inputs[name][1]
        feed = lowered.feeds.get(name, Feed(name, order.shape, windows=order.shape[:2]))
        border = (
            int(binary16.encode(np.array(-arrangement.input_offsets[name]))) if name in arrangement.input_offsets else 0
        )
        feed = replace(feed, border=border)
        laid, wanted = feed.order(config.native), arrangement.inputs[name]
        if laid.shape != wanted.shape or np.any((laid < 0) != (wanted < 0)):
            continue
        element = np.full(feed.elements, PAD)
        element[laid[laid >= 0]] = wanted[laid >= 0]
        if np.array_equal(element[laid[laid >= 0]], wanted[laid >= 0]):
            feeds.append(feed)
    vectors = {port.name: port.vectors(config) for port in image.outputs}
    lanes = {name: _used(ids, vectors[name], config.native) for name, ids in arrangement.outputs.items()}
    few = [name for name, grid in arrangement.grids.items() if grid.greatest - grid.least < CODE_PAGE]
    coded = [feed.port for feed in feeds if feed.port in few]
    codings = {name: Coding(min(page, config.code_pages - 1)) for page, name in enumerate(coded)}
    return Feeding(tuple(feeds), lanes, codings)


def _used(ids: Ints, vectors: int, native: int) -> tuple[int, ...]:
    """Lanes of each vector up to the last one that an element lies in, at least one."""
    counts = np.ones(vectors, np.int64)
    np.maximum.at(counts, ids.ravel() // native, ids.ravel() % native + 1)
    return tuple(counts.tolist())
