"""Numbers that inputs of a host's part may have: of their types and, if indices, of a table; and which may be NaN."""

from __future__ import annotations

from collections.abc import Mapping

from concord.graph.element_types import ends
from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.graph.ops.host import LookupAttributes

#: Whole numbers of wide types are taken from within this range, where any would do.
_USUAL = 1000.0


def with_missing(part: Graph | None) -> frozenset[str]:
    """The inputs of a host's part that may be NaN: whatever reads them puts numbers in the place of NaN.

    Parameters
    ----------
    part : Graph or None
        What the host computes from inputs.
    """
    if part is None:
        return frozenset()
    open_names: dict[str, bool] = dict.fromkeys(part.outputs, False)
    for node in reversed(part.nodes):
        view = operator_of(node).view
        allowed = node.op == "Impute" or (view and all(open_names.get(name, True) for name in node.outputs))
        for name in node.inputs:
            open_names[name] = open_names.get(name, True) and allowed
    return frozenset(name for name in part.inputs if open_names.get(name, False))


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
