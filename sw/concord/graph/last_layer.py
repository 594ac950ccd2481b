"""A network as its features and its last layer: the features stay as they are, and the layer learns.

The last layer is the last product with constant weights, with everything after it, such as a Softmax. What it reads
are the features.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.linear import DenseAttributes


def split_last_layer(graph: Graph) -> tuple[Graph, Graph]:
    """Divide a network in front of its last layer.

    Parameters
    ----------
    graph : Graph
        A classifier: everything that is computed goes through the last Dense.

    Returns
    -------
    features, last : Graph
        What computes the features ``[..., K]``, and what computes the results from them. The input of the second one
        and the output of the first one have the same name.

    Raises
    ------
    ValueError
        If there is no Dense, or results depend on something that the last one does not compute.
    """
    place = max((k for k, node in enumerate(graph.nodes) if node.op == "Dense"), default=None)
    if place is None:
        raise ValueError(f"network {graph.name} must have a Dense layer (Gemm, or MatMul with a constant)")
    name = graph.nodes[place].inputs[0]
    dependent = [node for node in graph.nodes if _follows(graph, node, place)]
    computed = {output for node in dependent for output in node.outputs}
    besides = sorted({read for node in dependent for read in node.inputs if read} - computed - {name})
    besides += [output for output in graph.outputs if output not in computed]
    if besides:
        raise ValueError(
            f"results of network {graph.name} must depend on its last Dense {graph.nodes[place].name!r} alone, not on "
            f"{', '.join(besides)} as well"
        )
    batched = {name} if graph.shapes[name][:1] == (1,) else set()
    return (
        _part(graph, "features", graph.inputs, _needed(graph, name), [name], batched),
        _part(graph, "last layer", [name], dependent, graph.outputs, batched),
    )


def with_classes(last: Graph, count: int) -> Graph:
    """A last layer with so many outputs: weights and biases of those that are new are zero.

    Parameters
    ----------
    last : Graph
        From :func:`split_last_layer`.
    count : int
        Outputs, at least those that there are.

    Raises
    ------
    ValueError
        If there are more outputs already, or an operator after the Dense does not take so many.
    """
    index = next(k for k, node in enumerate(last.nodes) if node.op == "Dense")
    dense = last.nodes[index].attributes(DenseAttributes)
    more = count - len(dense.weight)
    if more < 0:
        raise ValueError(f"classes must be at least {len(dense.weight)}, those that there are, not {count!r}")
    wider = last.copy()
    wider.nodes[index] = last.nodes[index].with_attrs(
        weight=np.pad(dense.weight, ((0, more), (0, 0))), bias=np.pad(dense.bias, (0, more))
    )
    for node in wider.nodes:
        shapes = operator_of(node).shape(node, [wider.shapes[name] for name in node.inputs])
        wider.shapes.update(zip(node.outputs, shapes, strict=True))
    return wider


def joined(features: Graph, last: Graph) -> Graph:
    """The network whose features go into a last layer: the inverse of :func:`split_last_layer`.

    Raises
    ------
    ValueError
        If the features are not what the last layer reads.
    """
    if features.outputs != last.inputs:
        raise ValueError(f"features must be {last.inputs}, which the last layer reads, not {features.outputs}")
    graph = replace(
        features,
        nodes=[*features.nodes, *last.nodes],
        outputs=list(last.outputs),
        shapes={**features.shapes, **last.shapes},
        batched=(features.batched - set(features.outputs)) | (last.batched - set(last.inputs)),
    )
    graph.check()
    return graph


def _follows(graph: Graph, node: Node, place: int) -> bool:
    """True if a node is the Dense at a place, or depends on it."""
    reached: set[str] = set()
    for other in graph.nodes[place:]:
        if other is graph.nodes[place] or reached.intersection(other.inputs):
            reached.update(other.outputs)
    return bool(reached.intersection(node.outputs))


def _needed(graph: Graph, name: str) -> list[Node]:
    """The nodes that a tensor depends on."""
    names, nodes = {name}, list[Node]()
    for node in reversed(graph.nodes):
        if names.intersection(node.outputs):
            names.update(node.inputs)
            nodes.append(node)
    return nodes[::-1]


def _part(
    graph: Graph, what: str, inputs: list[str], nodes: list[Node], outputs: list[str], batched: set[str]
) -> Graph:
    """The graph of some of the nodes."""
    names = {*inputs, *(name for node in nodes for name in node.outputs)}
    ends = {*inputs, *outputs}
    return replace(
        graph,
        name=f"{graph.name} {what}",
        nodes=nodes,
        inputs=list(inputs),
        outputs=list(outputs),
        shapes={name: shape for name, shape in graph.shapes.items() if name in names},
        batched=(graph.batched | batched) & ends,
    )
