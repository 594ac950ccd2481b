"""The graph as a level of pipelines: its size, its text, and the invariants that hold between passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS
from concord.pipeline.manager import Level

#: Numbers of a constant that are shown; of larger ones the shape is.
_SHOWN = 4


def text(graph: Graph) -> Iterator[str]:
    """A graph as readable lines: inputs, a line per node with shapes and attributes, outputs."""
    yield f"graph {graph.name}"
    yield from (f"input {_tensor(graph, name)}" for name in graph.inputs)
    for node in graph.nodes:
        made = ", ".join(_tensor(graph, name) if name else "-" for name in node.outputs)
        attrs = "".join(f" {name}={_attribute(value)}" for name, value in node.attrs.items())
        yield f"{made} = {node.op}({', '.join(name or '-' for name in node.inputs)}){attrs}  # {node.name}"
    yield from (f"output {_tensor(graph, name)}" for name in graph.outputs)


def _tensor(graph: Graph, name: str) -> str:
    shape = graph.shapes.get(name)
    codes = " quantised" if name in graph.quantization else ""
    return f"{name}: {'?' if shape is None else 'x'.join(map(str, shape)) or 'scalar'}{codes}"


def _attribute(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > _SHOWN:
        return f"{value.dtype}[{'x'.join(map(str, value.shape))}]"
    return str(value.tolist()) if isinstance(value, np.ndarray) else repr(value).replace("\n", " ")


def problems(graph: Graph) -> Iterator[str]:
    """Inconsistencies of a graph: names, order, tensors without a shape, shapes that the operators do not give."""
    lines = list(graph.problems())
    yield from lines
    if not lines:
        yield from (problem for node in graph.nodes for problem in _of_node(graph, node))
    yield from (
        f"{name!r} has a quantisation, but does not exist" for name in graph.quantization if name not in graph.shapes
    )
    names = {node.name for node in graph.nodes}
    yield from (
        f"weights of {name!r} have a quantisation, but there is no such node"
        for name in graph.weight_quantization
        if name not in names
    )


def _of_node(graph: Graph, node: Node) -> Iterator[str]:
    """Problems of a node: an unknown operator, wrong attributes, or outputs that have other shapes than these give."""
    if node.op not in OPS:
        yield f"{node.name} is of the operator {node.op!r}, which does not exist"
        return
    if lines := list(OPS[node.op].attribute_problems(node)):
        yield from lines
        return
    try:
        shapes = OPS[node.op].shape(node, [graph.shapes[name] if name else None for name in node.inputs])
    except (ValueError, LookupError, TypeError) as error:
        yield f"{node.name} ({node.op}) must have operands and attributes that fit: {error!r}"
        return
    for name, shape in zip(node.outputs, shapes, strict=False):
        if name and graph.shapes[name] != tuple(shape):
            yield f"{node.name} ({node.op}) gives {name!r} the shape {tuple(shape)}, not {graph.shapes[name]}"


GRAPH = Level(Graph, "nodes", lambda graph: len(graph.nodes), text, lambda graph, _: problems(graph))
