"""Networks for row tiles, and their programs with row tiles that were not chosen by the compiler."""

from __future__ import annotations

import numpy as np

from concord.compiler.emission.emit import Emitter
from concord.compiler.emission.row_tiled import RowTiled, planned
from concord.compiler.ir.tensor_formats import DEFAULT
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.rules import lowered as lower
from concord.compiler.memory.dataflow import data_types
from concord.compiler.memory.plan import make_plan
from concord.compiler.memory.row_tiling import prefixes
from concord.graph.ir import Node
from concord.host import connect
from concord.spec.isa import Mem
from concord.spec.presets import TINY
from support.compiled_nets import graph_of

#: Room for whole networks.
LARGE = TINY.replace(narrow_depth=1536, wide_depth=1536, matrix_depth=1024, program_depth=4096, max_terms=1024)


def window(strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)):
    """Geometry of a window."""
    return {"strides": strides, "pads": pads, "dilations": dilations}


def conv(rng, name, x, y, shape, group=1, **geometry):
    """A convolution with random weights ``[O, C / group, kh, kw]``."""
    weight = rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)
    attrs = {"weight": weight, "bias": rng.normal(0, 0.2, len(weight)), "group": group, **window(**geometry)}
    return Node("Conv", name, (x,), (y,), attrs)


def separable(height=12, width=6):
    """What a small MobileNet begins with, down to a product."""
    rng = np.random.default_rng(3)
    return graph_of(
        [
            conv(rng, "first", "x", "a", (4, 2, 3, 3), strides=(2, 2), pads=(0, 0, 1, 1)),
            Node("Relu", "r1", ("a",), ("b",)),
            conv(rng, "deep", "b", "c", (4, 1, 3, 3), group=4, pads=(1, 1, 1, 1)),
            Node("Relu", "r2", ("c",), ("d",)),
            conv(rng, "point", "d", "e", (8, 4, 1, 1)),
            Node("Relu", "r3", ("e",), ("f",)),
            conv(rng, "down", "f", "g", (8, 1, 3, 3), group=8, strides=(2, 2), pads=(0, 0, 1, 1)),
            Node("ReduceMean", "mean", ("g",), ("h",), {"axes": (2, 3), "keepdims": False}),
            Node(
                "Dense", "dense", ("h",), ("y",), {"weight": rng.normal(0, 0.4, (3, 8)), "bias": rng.normal(0, 0.2, 3)}
            ),
        ],
        x=(1, 2, height, width),
    )


def random_net(seed):
    """A few random layers with windows and residual sums, over a map that is high enough for row tiles."""
    rng = np.random.default_rng(seed)
    channels, height, width = (int(rng.integers(low, high)) for low, high in ((1, 7), (9, 17), (3, 6)))
    shape, nodes, tensor = (1, channels, height, width), [], "x"
    for k in range(int(rng.integers(2, 6))):
        kind = rng.choice(["dense", "depthwise", "max", "average", "residual", "table"])
        geometry = _geometry(rng, height, width)
        new, kernel = f"t{k}", geometry.pop("kernel")
        kind = "dense" if kind == "residual" and tensor == "x" else kind  # an input is read by products only or by none
        if kind in ("dense", "depthwise"):
            outputs, group = (int(rng.integers(1, 7)), 1) if kind == "dense" else (channels, channels)
            nodes.append(conv(rng, new, tensor, new, (outputs, channels // group, *kernel), group, **geometry))
        elif kind == "residual":
            nodes.append(conv(rng, f"{new}c", tensor, f"{new}c", (channels, channels, 3, 3), pads=(1, 1, 1, 1)))
            nodes.append(Node("Add", new, (f"{new}c", tensor), (new,)))
        elif kind == "table":
            nodes.append(Node("Function", new, (tensor,), (new,), {"functions": (("tanh", {}),)}))
        else:
            geometry["pads"] = tuple(
                min(pad, 1) if size > 1 else 0 for pad, size in zip(geometry["pads"], kernel * 2, strict=True)
            )
            attrs = window(**geometry | {"dilations": (1, 1)}) | {"kernel": kernel}
            attrs |= {} if kind == "max" else {"counted": attrs["pads"] if rng.integers(2) else (0, 0, 0, 0)}
            nodes.append(Node("MaxPool" if kind == "max" else "AveragePool", new, (tensor,), (new,), attrs))
        tensor = new
        _, channels, height, width = graph_of(nodes, x=shape).shapes[tensor]
    return graph_of(nodes, x=shape)


def _geometry(rng, height, width):
    """A window that leaves something of a map."""
    kernel = tuple(int(rng.integers(1, 1 + min(3, size))) for size in (height, width))
    strides = tuple(int(rng.integers(1, 3)) if size > 4 else 1 for size in (height, width))
    pads = tuple(int(rng.integers(0, size)) for size in kernel * 2)
    dilations = tuple(
        2 if size > 2 * k and rng.random() < 0.3 else 1 for size, k in zip((height, width), kernel, strict=True)
    )
    return {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}


# Programs ------------------------------------------------------------------------------------------


def choices(graph, config=LARGE, unfold=Unfold.BOTH):
    """The lowered graph, and everything that can be computed in row tiles."""
    lowered = lower(graph, config, unfold)
    return lowered, list(prefixes(lowered))


def image_in_row_tiles(lowered, prefix, rows, config=LARGE, formats=DEFAULT):
    """The image with row tiles of so many rows, and the row tiles."""
    tiling = prefix.schedule(rows)
    tiled = RowTiled(planned(lowered, data_types(lowered), tiling), config, formats, tiling)
    assert tiled.fits({Mem.NARROW: config.narrow_depth, Mem.WIDE: config.wide_depth // 2})[0]
    return tiled.allocator.image(tiled.emitter.builder.words()), tiling


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
