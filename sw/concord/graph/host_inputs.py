"""Which numbers the inputs of a host's part may have: those of their types and, where they are indices, of a table."""

from __future__ import annotations

from collections.abc import Mapping

from concord.graph.element_types import ends
from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.graph.ops.host import LookupAttributes

#: Whole numbers of wide types are taken from within this range, where any would do.
_USUAL = 1000.0


def whole_ranges(part: Graph | None, element_types: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Least and greatest number for samples of every input that has whole numbers, by name.

    Parameters
    ----------
    part : Graph or None
        What the host computes from inputs.
    element_types : mapping of str to str
        Types of inputs that are no floats, by name; names of others are left out.
    """
    ranges = {name: (max(ends(kind)[0], -_USUAL), min(ends(kind)[1], _USUAL)) for name, kind in element_types.items()}
    if part is not None:
        sources = {name: name for name in part.inputs}
        for node in part.nodes:
            if node.op == "Lookup" and node.inputs[0] in sources:
                name, lookup = sources[node.inputs[0]], node.attributes(LookupAttributes)
                size = lookup.table.shape[lookup.axis]
                low, high = ranges.get(name, (0.0, size - 1.0))
                ranges[name] = max(low, 0.0), min(high, size - 1.0)
            elif operator_of(node).view and len(node.inputs) == 1 and node.inputs[0] in sources:
                sources[node.outputs[0]] = sources[node.inputs[0]]
    return ranges
