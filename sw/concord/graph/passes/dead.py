"""Remove nodes that no output depends on, and leave out results that nothing reads."""

from __future__ import annotations

from concord.graph.ir import Graph


def run(graph: Graph) -> None:
    """Keep what outputs depend on; inputs stay."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            kept.append(node.replace(outputs=tuple(name if name in needed else "" for name in node.outputs)))
            needed.update(node.inputs)
    graph.nodes = kept[::-1]
    known = needed.union(graph.inputs)
    graph.shapes = {name: shape for name, shape in graph.shapes.items() if name in known}
    graph.quantization = {name: value for name, value in graph.quantization.items() if name in known}
    names = {node.name for node in graph.nodes}
    graph.weight_quantization = {name: value for name, value in graph.weight_quantization.items() if name in names}
