"""Indices as the input of a network: numbers of rows of tables, which are read as they are and never rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from concord.golden.host_math import host_places
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.host import LookupAttributes


def _moves(node: Node) -> bool:
    """True if indices after a node are still those in front of it."""
    return operator_of(node).view and len(node.inputs) == 1


def _moved(graph: Graph) -> dict[str, Node | None]:
    """Tensors that have the elements of the first input, with the nodes that move them; ``None``: the input itself."""
    tensors: dict[str, Node | None] = {graph.inputs[0]: None}
    for node in graph.nodes:
        if _moves(node) and node.inputs[0] in tensors:
            tensors[node.outputs[0]] = node
    return tensors


def index_lookups(graph: Graph) -> list[Node]:
    """Nodes that read rows of a table at the indices in the first input."""
    tensors = _moved(graph)
    return [node for node in graph.nodes if node.op == "Lookup" and node.inputs[0] in tensors]


def only_indices(graph: Graph) -> bool:
    """True if the elements of the first input are indices and nothing else: only tables read them."""
    tensors = _moved(graph)
    readers = [node for tensor in tensors for node in graph.consumers(tensor)]
    return not set(graph.outputs) & set(tensors) and all(node.op == "Lookup" or _moves(node) for node in readers)


def check_indices(what: str, graph: Graph, values: npt.NDArray[np.float64]) -> None:
    """Check the indices of samples.

    Parameters
    ----------
    what : str
        Of which data they are, for messages.
    graph : Graph
        The network.
    values : array of float64
        ``[samples, *shape]``, as the network reads them.

    Raises
    ------
    ValueError
        If one is neither the number of a row of the table that reads it, nor one from its end.
    """
    shape = graph.shapes[graph.inputs[0]]
    moved: dict[str, npt.NDArray[Any]] = {}
    for name, node in _moved(graph).items():
        moved[name] = (
            values.reshape(len(values), *shape)
            if node is None
            else np.asarray(operator_of(node).evaluate(node, [moved[node.inputs[0]]])[0])
        )
    for node in index_lookups(graph):
        attributes = node.attributes(LookupAttributes)
        try:
            host_places(moved[node.inputs[0]], attributes.table.shape[attributes.axis])
        except ValueError as error:
            raise ValueError(f"{what} data must be rows of the table {node.name}: {error}") from error
