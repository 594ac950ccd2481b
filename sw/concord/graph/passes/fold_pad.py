"""Let a convolution do the zero padding in front of it."""

from __future__ import annotations

from concord.graph.ir import Graph, Node
from concord.graph.ops.moving import PadAttributes
from concord.graph.ops.windows import WindowAttributes


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
        graph.nodes.remove(pad)
        graph.nodes = [_padded(node, source, more) if node.name in names else node for node in graph.nodes]
        del graph.shapes[result]
        graph.quantization.pop(result, None)


def _padded(conv: Node, source: str, more: tuple[int, ...]) -> Node:
    """A Conv of ``source`` that pads ``more`` than before."""
    pads = conv.attributes(WindowAttributes).pads
    return conv.replace(inputs=(source,)).with_attrs(pads=tuple(map(sum, zip(pads, more, strict=True))))


def _same_codes(graph: Graph, source: str, result: str) -> bool:
    """True if the input of a Pad is quantised as its result is: a zero is one of the codes."""
    known = graph.quantization.get(source)
    return known is not None and known == graph.quantization[result]
