"""Let a convolution do the zero padding in front of it."""

from __future__ import annotations

from concord.graph.ir import Graph
from concord.graph.ops.moving import PadAttributes


def run(graph: Graph) -> None:
    """A Pad with zeros along spatial axes, read by Conv only, disappears."""
    for pad in [node for node in reversed(graph.nodes) if node.op == "Pad"]:
        source, result = pad.inputs[0], pad.outputs[0]
        readers, attributes = graph.consumers(result), pad.attributes(PadAttributes)
        pads = attributes.pads
        rank = len(pads) // 2
        zeros = attributes.mode == "constant" and attributes.value == 0
        spatial = not any((*pads[:2], *pads[rank : rank + 2]))
        if not (zeros and spatial) or result in graph.outputs or any(node.op != "Conv" for node in readers):
            continue
        if result in graph.quantization and not _same_codes(graph, source, result):
            continue
        more = (*pads[2:rank], *pads[rank + 2 :])
        names = {node.name for node in readers}
        graph.nodes = [
            node.replace(inputs=(source,)).with_attrs(pads=tuple(map(sum, zip(node.attrs["pads"], more, strict=True))))
            if node.name in names
            else node
            for node in graph.nodes
            if node.name != pad.name
        ]
        del graph.shapes[result]
        graph.quantization.pop(result, None)


def _same_codes(graph: Graph, source: str, result: str) -> bool:
    """Whether what is padded is quantised as the result is: a zero is one of the codes."""
    known = graph.quantization.get(source)
    return known is not None and known.same(graph.quantization[result])
