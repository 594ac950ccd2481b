"""``concord types``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from concord.cli.common import EXISTING, FILE, echo, npu, readable, wide_console
from concord.cli.selection import selection_options

if TYPE_CHECKING:
    from concord.frontend.selection import Selection


@click.command()
@click.argument("model", type=EXISTING)
@click.option("-o", "--output", type=FILE, help="ONNX file to write, with the types and the shared conversions in it.")
@click.option(
    "--conversions-from",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Share a conversion where more than N readers want a tensor narrow; others convert for themselves.",
)
@npu
@readable
@selection_options
def types(model: Path, output: Path | None, conversions_from: int, preset: str, selection: Selection) -> None:
    """Show which tensors of an ONNX MODEL are narrow or wide, and where they are converted.

    The table has every tensor of the network, layer by layer, with the bytes of one sample in the formats of the
    preset. Factors are those of the model's scales, if it has some. The file computes the same as the model.
    """
    from concord.cli.type_table import type_table
    from concord.display.terminal import counted
    from concord.frontend import import_model
    from concord.frontend.load import one_file
    from concord.frontend.typed import typed_model
    from concord.graph.passes.dtype_report import graph_rows
    from concord.graph.passes.dtypes import assign, factors_of_codes
    from concord.spec.presets import PRESETS
    from concord.utils.files import check_place, write_bytes

    if output is not None:
        check_place(output)
    data = selection.of(one_file(model))
    graph = import_model(data)
    decided = assign(graph, factors_of_codes(graph), conversions_from=conversions_from)
    rows = graph_rows(graph, PRESETS[preset], decided)
    wide_console().print(type_table(rows, f" of {model.name}, bytes with {preset}"))
    if output is None:
        return
    typed = typed_model(data, graph, decided, rows, conversions_from)
    write_bytes(output, typed.data)
    for line in typed.left_out:
        echo(line, err=True)
    count = len(typed.conversions)
    echo(f"{output}: {counted(count, 'shared conversions')} as {'a node' if count == 1 else 'nodes'}")
