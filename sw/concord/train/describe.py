"""A network from a list of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from concord.functions import trainable
from concord.graph.ir import Graph, Node, Shape
from concord.graph.ops import operator_of
from concord.graph.ops.linear import AffineAttributes, is_fixed
from concord.spec.formats import MASKED
from concord.train.indices import index_lookups
from concord.utils.arrays import FloatArray

#: Layers and their options; those with a default may be left out.
LAYERS: dict[str, dict[str, Any]] = {
    "conv": {"channels": None, "kernel": 3, "stride": 1, "pad": 0, "groups": 1},
    "depthwise": {"kernel": 3, "stride": 1, "pad": 0},
    "dense": {"outputs": None},
    "embedding": {"rows": None, "outputs": None},
    "graph_conv": {"outputs": None, "edges": None, "adjacency": None},
    "batch_norm": {"momentum": 0.9, "epsilon": 1e-5},
    "layer_norm": {"epsilon": 1e-5},
    "positions": {},
    "attention": {"heads": 1, "causal": False},
    "relu": {},
    **{record.name: {} for record in trainable()},
    "max_pool": {"kernel": 2, "stride": None, "pad": 0},
    "average_pool": {"kernel": 2, "stride": None, "pad": 0},
    "global_average": {},
    "flatten": {},
    "add": {"to": None},
}


def described(
    layers: Sequence[Mapping[str, Any]], shape: Sequence[int], name: str = "network", outputs: Sequence[str] = ()
) -> Graph:
    """A graph from layers, each of which reads the one before; weights are zeros.

    Parameters
    ----------
    layers : list of dict
        ``op`` is one of :data:`LAYERS`, the other keys are its options. ``name`` names a layer, so that a later
        ``add`` can be ``to`` it: the sum of the layer before and that one. A layer that is ``from`` another one reads
        that in the place of the one before.
    shape : tuple of int
        Of a sample: channels, height and width of images; channels, frames, height and width of videos; nodes and
        features of graphs; positions in front of an ``embedding``, whose input is an index per position.
    outputs : sequence of str
        Names of the layers that are outputs; empty: the last one.

    Raises
    ------
    ValueError
        If a layer is not understood or does not fit.
    """
    if not shape or any(type(size) is not int or size < 1 for size in shape):
        raise ValueError(f"input must be a shape such as [1, 28, 28], not {list(shape)!r}")
    graph = Graph(name, [], ["x"], [], {"x": (1, *shape)}, {"x"})
    last, names = "x", list[str]()
    for number, layer in enumerate(layers):
        entry = dict(layer)
        kind, called, last = entry.pop("op", None), str(entry.pop("name", "")), entry.pop("from", last)
        if kind not in LAYERS:
            raise ValueError(f"layer {number} must have an op of {', '.join(LAYERS)}, not {kind!r}")
        called = called or f"{kind}{1 + sum(name.startswith(kind) for name in names)}"
        names.append(called)
        if last not in graph.shapes:
            raise ValueError(f"layer {called} must be from a layer in front of it, not {last!r}")
        options = LAYERS[kind] | entry
        if kind == "graph_conv":
            options = _like_before(options, graph)
        missing = [key for key in ("channels", "outputs", "rows", "to") if key in options and options[key] is None]
        if missing or set(entry) - set(LAYERS[kind]):
            raise ValueError(f"layer {called} must have {', '.join(LAYERS[kind]) or 'no options'}, not {entry!r}")
        try:
            for node in _nodes(kind, called, options, last, graph.shapes[last]):
                shapes = [graph.shapes[tensor] for tensor in node.inputs]
                (graph.shapes[node.name],) = operator_of(node).shape(node, list(shapes))
                graph.nodes.append(node)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ValueError(f"layer {called} must fit what is in front of it: {error}") from error
        last = called
    ends = list(outputs) or [last]
    if unknown := [end for end in ends if end not in names]:
        raise ValueError(f"outputs must be among the layers {', '.join(names)}, not {', '.join(map(str, unknown))}")
    graph.outputs, graph.batched = ends, {"x", *ends}
    if index_lookups(graph):
        graph.element_types["x"] = "int64"
    graph.check()
    return graph


def _along(options: Mapping[str, Any], name: str, rank: int) -> tuple[int, ...]:
    """An option of a window: a number for every spatial axis, or one for all."""
    value = options[name]
    if type(value) is int:
        return (value,) * rank
    if not isinstance(value, Sequence) or len(value) != rank or any(type(number) is not int for number in value):
        raise ValueError(f"{name} must be a whole number, or one for each of {rank} spatial axes, not {value!r}")
    return tuple(value)


def _window(options: Mapping[str, Any], rank: int) -> dict[str, Any]:
    stride = "kernel" if options["stride"] is None else "stride"
    pads = _along(options, "pad", rank)
    return {"strides": _along(options, stride, rank), "pads": (*pads, *pads), "dilations": (1,) * rank}


def adjacency_of(nodes: int, edges: Sequence[Sequence[int]]) -> FloatArray:
    """The normalised adjacency ``D^-1/2 (A + I) D^-1/2`` of a graph [gcn].

    Parameters
    ----------
    nodes : int
    edges : sequence of pairs of int
        Nodes that are neighbours, numbered from 0, in either order; of several between two nodes one counts.

    Returns
    -------
    array ``[nodes, nodes]``
        Symmetric; D are the degrees with the loop that every node gets.

    Raises
    ------
    ValueError
        If an edge is not a pair of nodes that are there.
    """
    there = np.eye(nodes)
    for edge in edges:
        pair = list(edge) if isinstance(edge, Sequence) else [edge]
        if len(pair) != 2 or any(type(node) is not int or not 0 <= node < nodes for node in pair):
            raise ValueError(f"an edge must be a pair of nodes in 0..{nodes - 1}, not {edge!r}")
        there[pair[0], pair[1]] = there[pair[1], pair[0]] = 1.0
    degrees = there.sum(axis=1)
    return np.asarray(there / np.sqrt(np.outer(degrees, degrees)))


def _like_before(options: dict[str, Any], graph: Graph) -> dict[str, Any]:
    """The options of a graph convolution: without a graph of its own, it has that of the one before."""
    if options["edges"] is not None or options["adjacency"] is not None:
        return options
    before = [node.attributes(AffineAttributes).weight for node in graph.nodes if is_fixed(node)]
    return options | ({"adjacency": before[-1]} if before else {})


def _graph_convolution(name: str, options: Mapping[str, Any], last: str, shape: Shape) -> list[Node]:
    """``A (X W) + b`` of nodes with features."""
    if len(shape) != 3:
        raise ValueError(f"it must have nodes with features, a sample of two axes, not {list(shape[1:])}")
    edges, adjacency, outputs = options["edges"], options["adjacency"], options["outputs"]
    if (edges is None) == (adjacency is None):
        raise ValueError("it must have edges or an adjacency, or a graph_conv with one of them in front of it")
    matrix = adjacency_of(shape[1], edges) if edges is not None else np.asarray(adjacency, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != shape[1] or not np.all(np.isfinite(matrix)) or not matrix.any():
        raise ValueError(
            f"adjacency must be a matrix of finite numbers with {shape[1]} columns, not all of them zero, not of the "
            f"shape {list(matrix.shape)}"
        )
    weight, turned = np.zeros((outputs, shape[-1])), {"perm": (0, 2, 1)}
    names = [f"{name}.{what}" for what in ("features", "turned", "neighbours", "sum")]
    fixed = {"weight": matrix, "bias": np.zeros(len(matrix)), "fixed": True}
    return [
        Node("Dense", names[0], (last,), (names[0],), {"weight": weight, "bias": np.zeros(outputs)}),
        Node("Transpose", names[1], (names[0],), (names[1],), turned),
        Node("Dense", names[2], (names[1],), (names[2],), fixed),
        Node("Transpose", names[3], (names[2],), (names[3],), turned),
        Node("Add", name, (names[3],), (name,), {"constant": np.zeros(outputs)}),
    ]


def _attention(name: str, options: Mapping[str, Any], last: str, shape: Shape) -> list[Node]:
    """Every position asks all positions, or those up to itself: ``softmax(Q K^T / sqrt(size)) V`` of every head, and a
    product with the heads side by side."""
    heads, causal = options["heads"], options["causal"]
    if len(shape) != 3:
        raise ValueError(f"it must have positions with features, a sample of two axes, not {list(shape[1:])}")
    positions, features = shape[1:]
    if type(heads) is not int or heads < 1 or features % heads:
        raise ValueError(f"heads must be a whole number that divides {features} features, not {heads!r}")
    if type(causal) is not bool:
        raise ValueError(f"causal must be true or false, not {causal!r}")
    size, nodes = features // heads, list[Node]()
    dense = {"weight": np.zeros((features, features)), "bias": np.zeros(features)}

    def add(op: str, what: str, inputs: Sequence[str], **attrs: Any) -> str:
        nodes.append(Node(op, f"{name}.{what}", tuple(inputs), (f"{name}.{what}",), attrs))
        return nodes[-1].name

    def split(what: str, perm: Sequence[int]) -> str:
        whole = add("Dense", what, [last], **dense)
        parts = add("Reshape", f"{what}.split", [whole], shape=(1, positions, heads, size))
        return add("Transpose", f"{what}.heads", [parts], perm=perm)

    products = [split("queries", (0, 2, 1, 3)), split("keys", (0, 2, 3, 1))]
    scores = add("Mul", "scores", [add("MatMul", "products", products)], constant=np.asarray(1 / np.sqrt(size)))
    if causal:
        scores = add("Add", "masked", [scores], constant=np.triu(np.full((positions, positions), MASKED), 1))
    shares = add("Softmax", "shares", [scores], axis=3)
    mixed = add("MatMul", "mixed", [shares, split("values", (0, 2, 1, 3))])
    together = add("Reshape", "together", [add("Transpose", "turned", [mixed], perm=(0, 2, 1, 3))], shape=shape)
    return [*nodes, Node("Dense", name, (together,), (name,), dense)]


def _nodes(kind: str, name: str, options: Mapping[str, Any], last: str, shape: Shape) -> list[Node]:
    """Nodes of a layer; the last one has its name."""
    if kind == "graph_conv":
        return _graph_convolution(name, options, last, shape)
    if kind == "layer_norm":
        between, size = f"{name}.normal", shape[-1]
        attrs = {"axes": (len(shape) - 1,), "centred": True, "epsilon": float(options["epsilon"])}
        return [
            Node("Normalise", between, (last,), (between,), {**attrs, "scale": np.ones(size)}),
            Node("Add", name, (between,), (name,), {"constant": np.zeros(size)}),
        ]
    if kind == "attention":
        return _attention(name, options, last, shape)
    if kind == "positions":
        return [Node("Add", name, (last,), (name,), {"constant": np.zeros(shape[1:])})]
    inputs = (last, options["to"]) if kind == "add" else (last,)
    op, attrs = _operation(kind, options, shape)
    return [Node(op, name, inputs, (name,), attrs)]


def _operation(kind: str, options: Mapping[str, Any], shape: Shape) -> tuple[str, dict[str, Any]]:
    """Operator and attributes of a layer that is one node."""
    rank = len(shape) - 2
    if "kernel" in options and rank not in (2, 3):
        raise ValueError(f"it must have images or videos, a sample of three or four axes, not {list(shape[1:])}")
    kernel = _along(options, "kernel", rank) if "kernel" in options else ()
    if kind in ("conv", "depthwise"):
        groups = shape[1] if kind == "depthwise" else options["groups"]
        outputs = shape[1] if kind == "depthwise" else options["channels"]
        weight = np.zeros((outputs, shape[1] // groups, *kernel))
        return "Conv", {"weight": weight, "bias": np.zeros(outputs), "group": groups, **_window(options, rank)}
    if kind == "dense":
        outputs = options["outputs"]
        return "Dense", {"weight": np.zeros((outputs, shape[-1])), "bias": np.zeros(outputs)}
    if kind == "embedding":
        return "Lookup", {"table": np.zeros((options["rows"], options["outputs"])), "axis": 0}
    if kind == "batch_norm":
        ones, zeros = np.ones(shape[1:2]), np.zeros(shape[1:2])
        attrs = {"scale": ones, "bias": zeros, "mean": zeros, "variance": ones}
        return "BatchNorm", attrs | {key: float(options[key]) for key in LAYERS[kind]}
    if kind == "relu":
        return "Relu", {}
    if kind in [record.name for record in trainable()]:
        return "Function", {"functions": ((kind, {}),)}
    if kind == "max_pool":
        return "MaxPool", {"kernel": kernel, **_window(options, rank)}
    if kind == "average_pool":
        return "AveragePool", {"kernel": kernel, "counted": (0,) * 2 * rank, **_window(options, rank)}
    if kind == "global_average":
        axes = (1,) if len(shape) == 3 else tuple(range(2, len(shape)))  # of nodes, or of positions
        return "ReduceMean", {"axes": axes, "keepdims": False}
    if kind == "flatten":
        return "Reshape", {"shape": (1, int(np.prod(shape)))}
    return "Add", {}
