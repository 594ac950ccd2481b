"""Networks for row tiles, and their programs with row tiles that were not chosen by the compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.compiler.emission.emit import Emitter
from concord.compiler.emission.row_tiled import RowTiled
from concord.compiler.ir.tensor_formats import DEFAULT
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.rules import lowered as lower
from concord.compiler.memory.dataflow import data_types
from concord.compiler.memory.plan import make_plan
from concord.compiler.memory.row_tiling import RowTiling, layer_spans, planned
from concord.host import connect
from concord.spec.isa import Mem
from concord.spec.presets import TINY
from support.expressions import network, tensor

#: Room for whole networks.
LARGE = TINY.replace(narrow_depth=1536, wide_depth=1536, matrix_depth=1024, program_depth=4096, max_terms=1024)


def conv(rng, x, outputs, kernel, group=1, name=None, **geometry):
    """A convolution with random weights ``[O, C / group, kh, kw]``."""
    shape = (outputs, x.shape[1] // group, *kernel)
    weight = rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)
    return x.conv(weight, rng.normal(0, 0.2, outputs), group=group, name=name, **geometry)


def separable(height=12, width=6):
    """What a small MobileNet begins with, down to a product."""
    rng = np.random.default_rng(3)
    down = {"strides": 2, "pads": (0, 0, 1, 1)}
    x = conv(rng, tensor(1, 2, height, width), 4, (3, 3), name="first", **down).relu("r1")
    x = conv(rng, x, 4, (3, 3), 4, "deep", pads=1).relu("r2")
    x = conv(rng, x, 8, (1, 1), name="point").relu("r3")
    mean = conv(rng, x, 8, (3, 3), 8, "down", **down).reduce("Mean", 2, 3, keep=False, name="mean")
    return network(mean.dense(rng.normal(0, 0.4, (3, 8)), rng.normal(0, 0.2, 3), "dense"))


def random_net(seed):
    """A few random layers with windows and residual sums, over a map that is high enough for row tiles."""
    rng = np.random.default_rng(seed)
    channels, height, width = (int(rng.integers(low, high)) for low, high in ((1, 7), (9, 17), (3, 6)))
    x = tensor(1, channels, height, width)
    for k in range(int(rng.integers(2, 6))):
        kind = rng.choice(["dense", "depthwise", "max", "average", "residual", "table"])
        _, channels, height, width = x.shape
        geometry = _geometry(rng, height, width)
        name, kernel = f"t{k}", geometry.pop("kernel")
        kind = "dense" if kind == "residual" and x.op is None else kind  # an input is read by products only or by none
        if kind == "dense":
            x = conv(rng, x, int(rng.integers(1, 7)), kernel, name=name, **geometry)
        elif kind == "depthwise":
            x = conv(rng, x, channels, kernel, channels, name, **geometry)
        elif kind == "residual":
            x = conv(rng, x, channels, (3, 3), name=f"{name}c", pads=1).combined("Add", x, name=name)
        elif kind == "table":
            x = x.function("tanh", name)
        else:
            geometry["pads"] = tuple(
                min(pad, 1) if size > 1 else 0 for pad, size in zip(geometry["pads"], kernel * 2, strict=True)
            )
            geometry["dilations"] = 1
            if kind == "max":
                x = x.pool("MaxPool", kernel, name=name, **geometry)
            else:
                counted = geometry["pads"] if rng.integers(2) else (0, 0, 0, 0)
                x = x.pool("AveragePool", kernel, name=name, counted=counted, **geometry)
    return network(x)


def _geometry(rng, height, width):
    """A window that leaves something of a map."""
    kernel = tuple(int(rng.integers(1, 1 + min(3, size))) for size in (height, width))
    strides = tuple(int(rng.integers(1, 3)) if size > 4 else 1 for size in (height, width))
    pads = tuple(int(rng.integers(0, size)) for size in kernel * 2)
    dilations = tuple(
        2 if size > 2 * k and rng.random() < 0.3 else 1 for size, k in zip((height, width), kernel, strict=True)
    )
    return {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}


def residual(height=16, width=10, channels=8, blocks=2):
    """Residual blocks, and a convolution with strides in front of the mean."""
    rng = np.random.default_rng(3)
    x = conv(rng, tensor(1, 3, height, width), channels, (3, 3), name="a", pads=1).relu("ar")
    for k in range(blocks):
        y = conv(rng, x, channels, (3, 3), name=f"b{k}", pads=1).relu(f"br{k}")
        x = conv(rng, y, channels, (3, 3), name=f"c{k}", pads=1).combined("Add", x, name=f"s{k}").relu(f"r{k}")
    x = conv(rng, x, 2 * channels, (3, 3), name="d", strides=2, pads=1).relu("dr")
    mean = x.reduce("Mean", 2, 3, keep=False, name="mean")
    return network(mean.dense(rng.normal(0, 0.4, (3, 2 * channels)), rng.normal(0, 0.2, 3), "dense"))


# Programs ------------------------------------------------------------------------------------------


def choices(graph, config=LARGE, unfold=Unfold.BOTH):
    """The lowered graph, and everything that can be computed in row tiles."""
    lowered = lower(graph, config, unfold)
    return lowered, list(layer_spans(lowered))


def image_in_row_tiles(lowered, prefix, rows, config=LARGE, formats=DEFAULT, even=False, kinds=1):
    """The image with row tiles of so many rows, and the row tiles."""
    group = prefix.schedule(rows, even)
    return image_in_groups(lowered, RowTiling((group,)), config, formats, kinds), group


def image_in_groups(lowered, tiling, config, formats=DEFAULT, kinds=1):
    """The image with groups of layers in row tiles."""
    tiled = RowTiled(planned(lowered, data_types(lowered), tiling), config, formats, tiling, kinds)
    assert tiled.fits({Mem.NARROW: config.narrow_depth, Mem.WIDE: config.wide_depth // 2})[0]
    return tiled.allocator.image(tiled.emitter.builder.words())


def drawn_groups(lowered, rng):
    """Groups of row tiles, wherever tensors can leave for the external memory, of any height."""
    while not (groups := _drawn(lowered, rng)):
        pass
    return RowTiling(groups)


def _drawn(lowered, rng):
    """Groups; none if the last one would not have all that later layers read."""
    groups, first = [], 0
    outputs = {s.root for name in lowered.graph.outputs for s in lowered.storages.of(lowered.views[name])}
    while found := list(layer_spans(lowered, first)):
        leaving = [span for span in found if outputs.isdisjoint(span.whole)]
        final = [span for span in found if not span.passing]
        last = bool(final) and (not leaving or rng.random() < 0.2 * bool(groups))
        spans = final if last else leaving[: 1 + rng.integers(2)]
        if not spans:
            break
        span = spans[rng.integers(len(spans))]
        group = span.schedule(int(rng.integers(1, span.source.height + 1)), even=bool(rng.integers(2)))
        groups.append(replace(group, leaves=not last))
        if last:
            return tuple(groups)
        first = span.first + len(span.layers)
    return ()


def outputs_of(image, ports):
    """Outputs of ports on the emulator."""
    with connect("emulator", image.config) as device:
        device.load(image)
        return device.run(ports)


def image_in_one_piece(lowered, config=LARGE, formats=DEFAULT):
    """The image without row tiles."""
    emitter = Emitter(make_plan(lowered, data_types(lowered)), config, formats)
    emitter.write(emitter.place, lambda: emitter.layers(0))
    return emitter.allocator.image(emitter.builder.words())
