"""Summary of a compiled network, as text and as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from concord.compiler.lowering.layout_copies import copies_text
from concord.compiler.lowering.lowered import Lowered
from concord.display import pages
from concord.display.pages import shape
from concord.display.tables import text_table
from concord.display.terminal import counted, printable
from concord.graph.ir import Graph
from concord.host.copied_weights import copied_weights
from concord.host.rates import Rates, spoken
from concord.image import Image


@dataclass(frozen=True)
class Summary:
    """A compiled network at a glance.

    Parameters
    ----------
    title : str
        What it is for.
    rows : mapping of str to str
        Texts by what they are about.
    warnings : sequence of str
        What to know before trusting the results.
    """

    title: str
    rows: Mapping[str, str]
    warnings: Sequence[str]

    @property
    def text(self) -> str:
        """A table for a terminal, and the warnings below it."""
        console = Console(width=120, markup=False, highlight=False)
        with console.capture() as captured:
            table = text_table(self.title, header=False)
            for name, value in self.rows.items():
                table.add_row(name, printable(value))
            console.print(table)
            for line in self.warnings:
                console.print(f"warning: {printable(line)}", soft_wrap=True)
        return "\n".join(line.rstrip() for line in captured.get().strip().splitlines()) + "\n"

    @property
    def html(self) -> str:
        """A piece of a page, as notebooks show it."""
        return pages.render("concord.api", "summary.html.j2", summary=self)


def summary(
    image: Image,
    shapes: tuple[Mapping[str, tuple[int, ...]], Mapping[str, tuple[int, ...]]],
    source: str,
    rates: Rates,
    warnings: Sequence[str],
    host_graph: Graph | None = None,
    lowered: Lowered | None = None,
) -> Summary:
    """The summary of a network.

    Parameters
    ----------
    image : Image
        Program and constants.
    shapes : tuple of mapping
        Shapes of one sample of the inputs, and of the results.
    source : str
        Where it comes from.
    rates : Rates
        On its board.
    warnings : sequence of str
        What to know before trusting the results.
    host_graph : Graph, optional
        What the host computes.
    lowered : Lowered, optional
        The layers, if they are at hand: they know which operands were copied.
    """
    config = image.config
    inputs, outputs = (", ".join(f"{name} {shape(sizes)}" for name, sizes in part.items()) for part in shapes)
    rows = {
        "from": source,
        "inputs": inputs,
        "results": outputs,
        "NPU": f"{config.name}, {counted(config.macs, 'products')} per cycle at {rates.clock}",
        "program": f"{counted(len(image.metadata.get('layers', ())), 'layers')}, "
        f"{counted(len(image.program), 'instructions')}",
        "weights": f"{sum(len(part.data) for part in image.segments) / 1024:,.1f} KiB, with tables and other constants",
        "cycles": f"{rates.cycles:,} per run{rates.assumption}",
        "on the board": f"{spoken(rates.per_second)} samples/s in a batch, limited by the {rates.limit}; "
        f"{spoken(rates.single_per_second)} one at a time",
    }
    if copies := copied_weights(image).text(rates.cycles):
        rows["external memory"] = copies
    if host_graph is not None:
        rows["on the host"] = ", ".join(node.op for node in host_graph.nodes)
    if lowered is not None:
        rows["copies"] = copies_text(lowered) or "none"
    return Summary(f"Network for {config.name}", rows, warnings)
