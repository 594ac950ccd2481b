"""Recognise layer, instance and root-mean-square normalisation, however an exporter has decomposed it.

What is computed together can be scaled together: the squares of a normalisation need the range of binary16 otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from concord.graph.ir import Graph, Node
from concord.graph.ops.elementwise import BinaryAttributes, ReductionAttributes, constant_of, names_of

_ROOTS = (("rsqrt",), ("sqrt", "reciprocal"))


@dataclass(frozen=True)
class _Found:
    """The nodes of a normalisation, the last one at the end, and the node that takes their place."""

    nodes: tuple[Node, ...]
    joined: Node


def run(graph: Graph) -> None:
    """Put one node in the place of mean, difference, square, mean, root and product, and of a scale after them."""
    for name in [node.name for node in graph.nodes]:
        node = next((node for node in graph.nodes if node.name == name), None)
        if node is None or node.op != "Mul" or (match := _normalisation(graph, node)) is None:
            continue
        gone = {each.name for each in match.nodes}
        graph.nodes = [
            match.joined if each.name == match.nodes[-1].name else each
            for each in graph.nodes
            if each.name not in gone or each.name == match.nodes[-1].name
        ]
        for each in match.nodes[:-1]:
            del graph.shapes[each.outputs[0]]


def _normalisation(graph: Graph, product: Node) -> _Found | None:
    """The normalisation that ends with ``product``: of a tensor and the root that is computed from its squares."""
    for x, factor in (product.inputs, product.inputs[::-1]) if len(product.inputs) == 2 else ():
        root = graph.producer(factor)
        if root is None or names_of(root) not in _ROOTS:
            continue
        shifted = graph.producer(root.inputs[0])
        epsilon = None if shifted is None else constant_of(shifted, "Add")
        if shifted is None or epsilon is None or epsilon.size != 1:
            continue
        mean = graph.producer(shifted.inputs[0])
        square = graph.producer(mean.inputs[0]) if mean is not None else None
        if mean is None or square is None or not _is_mean(mean) or (square.op, square.inputs) != ("Mul", (x, x)):
            continue
        nodes = (square, mean, shifted, root, product)
        grown = graph.shapes[product.outputs[0]] != graph.shapes[x]
        if grown or not float(np.min(epsilon)) > 0 or not _alone(graph, nodes):
            return None
        axes = mean.attributes(ReductionAttributes).axes
        centre = _centre(graph, x, axes, nodes)
        source = centre[0].inputs[0] if centre else x
        scaling = _scale(graph, product)
        scale = np.ones(()) if scaling is None else scaling.attributes(BinaryAttributes).constant
        last = scaling or product
        attrs = {
            "axes": axes,
            "centred": bool(centre),
            "epsilon": float(np.min(epsilon)),
            "scale": scale,
        }
        whole = (*centre, *nodes, *([scaling] if scaling is not None else []))
        return _Found(whole, Node("Normalise", product.name, (source,), last.outputs, attrs))
    return None


def _is_mean(node: Node) -> bool:
    return node.op == "ReduceMean" and node.attributes(ReductionAttributes).keepdims


def _alone(graph: Graph, nodes: tuple[Node, ...]) -> bool:
    """True if nobody else reads a tensor between the nodes."""
    names = {node.name for node in nodes}
    return all(
        graph.is_between(between) and all(reader.name in names for reader in graph.consumers(between))
        for between in (node.outputs[0] for node in nodes[:-1])
    )


def _centre(graph: Graph, x: str, axes: tuple[int, ...], nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Mean and difference in front of a normalisation over the same axes, if they are there for nothing else."""
    difference = graph.producer(x)
    if difference is None or difference.op != "Sub" or len(difference.inputs) != 2:
        return ()
    mean = graph.producer(difference.inputs[1])
    if (
        mean is None
        or not _is_mean(mean)
        or mean.attributes(ReductionAttributes).axes != axes
        or mean.inputs != difference.inputs[:1]
    ):
        return ()
    return (mean, difference) if _alone(graph, (mean, difference, *nodes)) else ()


def _scale(graph: Graph, product: Node) -> Node | None:
    """A product with a constant after a normalisation, which nothing else reads."""
    (between,) = product.outputs
    readers = graph.consumers(between)
    if not graph.is_between(between) or len(readers) != 1:
        return None
    (reader,) = readers
    fits = constant_of(reader, "Mul") is not None
    return reader if fits and graph.shapes[reader.outputs[0]] == graph.shapes[between] else None
