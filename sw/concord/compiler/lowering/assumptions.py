"""Assumptions of a compilation without samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from concord.compiler.ir.activations import depends, domain_of
from concord.compiler.ir.table_specs import Domain, InputSpan, Proven, TableSpec, WholeEntries
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.input_assumptions import assumed
from concord.compiler.lowering.lowered import Lowered, VarianceRange
from concord.compiler.lowering.normalisations import assumed_variances
from concord.display.tables import text_table
from concord.functions import function
from concord.functions.segmented import TableSegment
from concord.graph.ir import Graph
from concord.graph.ops.elementwise import FunctionAttributes
from concord.spec.config import NpuConfig

#: Reason for which a normalisation is not for numbers of any size.
_NO_ROOM = "from the inputs, as memories have no room for instructions and tables for any"


@dataclass(frozen=True)
class Assumed:
    """One thing that was taken for granted.

    Parameters
    ----------
    layer : str
        Name of the layer, or of an input of the network.
    what : str
        What the range is of.
    range : pair of floats
        Least and greatest value that is covered.
    reason : str
        Where it is from.
    """

    layer: str
    what: str
    range: Domain
    reason: str

    @property
    def text(self) -> str:
        """One line about the assumption."""
        return f"{self.layer}: {self.what} {self.range[0]:g} to {self.range[1]:g} ({self.reason})"


def assumptions(
    graph: Graph, requested: Formats, complete: Formats, lowered: Lowered, config: NpuConfig
) -> tuple[Assumed, ...]:
    """Assumptions about inputs and tables; none if samples, or the network itself, say all of them.

    Parameters
    ----------
    graph : Graph
        The network.
    given, complete : Formats
        Formats asked for, and with bounds for all tables (:func:`concord.compiler.lowering.bounds.with_bounds`).
    lowered : Lowered
        The compiled network.
    config : NpuConfig
        Configuration that it is compiled for.
    """
    carried: set[TableSpec] = set()
    for node in graph.nodes:
        if node.op == "Function" and node.inputs[0] in complete.bounds and node.inputs[0] not in requested.ranges:
            functions = node.attributes(FunctionAttributes).spec
            carried.add((functions, domain_of(functions, complete.bounds[node.inputs[0]])))
    entries = []
    for layer in lowered.layers:
        for functions, domain in dict.fromkeys(layer.table_specs):
            if isinstance(domain, TableSegment | Proven | InputSpan | WholeEntries) or not depends(functions):
                continue
            what = f"the table of {'+'.join(name for name, _ in functions)} covers"
            if domain is None:
                entries.append(Assumed(layer.name, what, function(functions[0][0]).domain, "default"))
            elif (functions, domain) in carried:
                entries.append(Assumed(layer.name, what, domain, "from the inputs"))
    for node in graph.nodes:
        if node.op == "Normalise" and lowered.variance_range is not VarianceRange.ANY:
            covered = assumed_variances(node, lowered.variance_range, complete, config)
            if covered is not None:
                entries.append(Assumed(node.name, "the normalisation covers variances from", covered, _NO_ROOM))
    if not any(entry.reason in ("from the inputs", _NO_ROOM) for entry in entries):
        return tuple(entries)
    inputs = assumed(graph, requested.inputs).items()
    shape = {True: "normal, deviation 1, within", False: "values from"}
    of_inputs = (Assumed(name, shape[it.normal], (it.low, it.high), it.reason) for name, it in inputs)
    return (*of_inputs, *entries)


def assumption_table(entries: Sequence[Assumed]) -> Table:
    """Assumptions for a terminal."""
    table = text_table(
        "Assumed, as no samples say it (--calibrate)",
        ("input or layer", "what", "range", "reason"),
        caption="Values beyond are cut off, and concord run says so.",
    )
    for entry in entries:
        table.add_row(entry.layer, entry.what, f"{entry.range[0]:g} to {entry.range[1]:g}", entry.reason)
    return table
