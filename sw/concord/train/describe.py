"""A network from a list of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from concord.graph.ir import Graph, Node, Shape
from concord.graph.ops import OPS

#: Layers and their options; those with a default may be left out.
LAYERS: dict[str, dict[str, Any]] = {
    "conv": {"channels": None, "kernel": 3, "stride": 1, "pad": 0, "groups": 1},
    "depthwise": {"kernel": 3, "stride": 1, "pad": 0},
    "dense": {"outputs": None},
    "batch_norm": {"momentum": 0.9, "epsilon": 1e-5},
    "relu": {},
    "tanh": {},
    "sigmoid": {},
    "max_pool": {"kernel": 2, "stride": None, "pad": 0},
    "average_pool": {"kernel": 2, "stride": None, "pad": 0},
    "global_average": {},
    "flatten": {},
    "add": {"to": None},
}


def described(layers: Sequence[Mapping[str, Any]], shape: Sequence[int], name: str = "network") -> Graph:
    """A graph from layers, each of which reads the one before; weights are zeros.

    Parameters
    ----------
    layers : list of dict
        ``op`` is one of :data:`LAYERS`, the other keys are its options. ``name`` names a layer, so that a later
        ``add`` can be ``to`` it: the sum of the layer before and that one.
    shape : tuple of int
        Of a sample: channels, height and width of images.

    Raises
    ------
    ValueError
        If a layer is not understood or does not fit.
    """
    if not shape or any(type(size) is not int or size < 1 for size in shape):
        raise ValueError(f"input must be a shape such as [1, 28, 28], not {list(shape)!r}")
    graph = Graph(name, [], ["x"], [], {"x": (1, *shape)}, {"x"})
    last = "x"
    for number, layer in enumerate(layers):
        given = dict(layer)
        kind, called = given.pop("op", None), str(given.pop("name", ""))
        if kind not in LAYERS:
            raise ValueError(f"layer {number} must have an op of {', '.join(LAYERS)}, not {kind!r}")
        called = called or f"{kind}{1 + sum(node.name.startswith(kind) for node in graph.nodes)}"
        options = LAYERS[kind] | given
        missing = [key for key in ("channels", "outputs", "to") if key in options and options[key] is None]
        if missing or set(given) - set(LAYERS[kind]):
            raise ValueError(f"layer {called} must have {', '.join(LAYERS[kind]) or 'no options'}, not {given!r}")
        try:
            node = _node(kind, called, options, last, graph.shapes[last])
            shapes = [graph.shapes[tensor] for tensor in node.inputs]
            (graph.shapes[called],) = OPS[node.op].shape(node, list(shapes))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ValueError(f"layer {called} must fit what is in front of it: {error}") from error
        graph.nodes.append(node)
        last = called
    graph.outputs, graph.batched = [last], {"x", last}
    graph.check()
    return graph


def _window(options: Mapping[str, Any]) -> dict[str, Any]:
    stride = options["kernel"] if options["stride"] is None else options["stride"]
    return {"strides": (stride, stride), "pads": (options["pad"],) * 4, "dilations": (1, 1)}


def _node(kind: str, name: str, options: Mapping[str, Any], last: str, shape: Shape) -> Node:
    kernel = (options.get("kernel", 1),) * 2
    if kind in ("conv", "depthwise"):
        groups = shape[1] if kind == "depthwise" else options["groups"]
        outputs = shape[1] if kind == "depthwise" else options["channels"]
        weight = np.zeros((outputs, shape[1] // groups, *kernel))
        attrs = {"weight": weight, "bias": np.zeros(outputs), "group": groups, **_window(options)}
        return Node("Conv", name, (last,), (name,), attrs)
    if kind == "dense":
        outputs = options["outputs"]
        return Node(
            "Dense", name, (last,), (name,), {"weight": np.zeros((outputs, shape[-1])), "bias": np.zeros(outputs)}
        )
    if kind == "batch_norm":
        ones, zeros = np.ones(shape[1:2]), np.zeros(shape[1:2])
        attrs = {"scale": ones, "bias": zeros, "mean": zeros, "variance": ones}
        return Node("BatchNorm", name, (last,), (name,), attrs | {key: float(options[key]) for key in LAYERS[kind]})
    if kind == "relu":
        return Node("Relu", name, (last,), (name,))
    if kind in ("tanh", "sigmoid"):
        return Node("Function", name, (last,), (name,), {"functions": ((kind, {}),)})
    if kind == "max_pool":
        return Node("MaxPool", name, (last,), (name,), {"kernel": kernel, **_window(options)})
    if kind == "average_pool":
        return Node("AveragePool", name, (last,), (name,), {"kernel": kernel, "counted": (0,) * 4, **_window(options)})
    if kind == "global_average":
        return Node("ReduceMean", name, (last,), (name,), {"axes": (2, 3), "keepdims": False})
    if kind == "flatten":
        return Node("Reshape", name, (last,), (name,), {"shape": (1, int(np.prod(shape)))})
    return Node("Add", name, (last, options["to"]), (name,))
