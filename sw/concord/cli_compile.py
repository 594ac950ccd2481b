"""``concord compile``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console

from concord.cli_base import EXISTING, FOLDER, POSITIVE, arrays_of, inputs_of, npu, readable
from concord.spec.boards import BOARD_PRESETS
from concord.spec.presets import PRESETS, with_mantissas


@dataclass(frozen=True)
class Widths:
    """What ``--mantissa`` asks for.

    Parameters
    ----------
    npu : int or None
        Bits of the mantissas of a configuration of its own.
    layers : dict
        Bits of the mantissas of the weights by layer.
    """

    npu: int | None = None
    layers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Widths:
        """Read the values of the option, ``5`` and ``layer=5``; ``ValueError`` for anything else."""
        whole: list[int] = []
        layers: dict[str, int] = {}
        for text in texts:
            layer, equals, width = text.rpartition("=")
            if not width.isdecimal() or (equals and (not layer or layer in layers)) or (not equals and whole):
                raise ValueError(f"mantissa must be one width, and at most one layer=width per layer, not {text!r}")
            if equals:
                layers[layer] = int(width)
            else:
                whole.append(int(width))
        return cls(whole[0] if whole else None, layers)


@click.command(name="compile")
@click.argument("model", type=EXISTING)
@npu
@click.option("--board", type=click.Choice(list(BOARD_PRESETS)), help="The NPU of this board, instead of --preset.")
@click.option("--calibrate", type=EXISTING, help="npz file: an array per input, samples along the first axis.")
@click.option(
    "--mantissa",
    "mantissas",
    multiple=True,
    metavar="M|LAYER=M",
    help="M: an NPU whose mantissas have M bits, 3 to 12. LAYER=M: round the weights of a layer to M bits. Repeatable.",
)
@click.option("--batch", default=1, show_default=True, type=POSITIVE, help="Samples per run (products only).")
@click.option("-o", "--output", type=FOLDER, help="Folder to write; default: MODEL without its suffix.")
@readable
def compile_model(
    model: Path,
    preset: str,
    board: str | None,
    calibrate: Path | None,
    mantissas: tuple[str, ...],
    batch: int,
    output: Path | None,
) -> None:
    """Compile an ONNX MODEL to a folder.

    With --calibrate, formats are chosen by what they do to these samples; without, all exponents are dynamic.
    """
    from concord.compiler.formats import choose_formats
    from concord.compiler.model import compile_graph
    from concord.compiler.tensor_formats import Formats
    from concord.frontend import import_model

    widths = Widths.parse(mantissas)
    graph, config = import_model(model), PRESETS[BOARD_PRESETS[board] if board else preset]
    if widths.npu is not None:
        config = with_mantissas(config, widths.npu)
    if calibrate is None:
        compiled = compile_graph(graph, config, Formats(mantissas=widths.layers), batch=batch)
    else:
        given = inputs_of(graph, arrays_of(calibrate))
        with Console(stderr=True).status("choosing formats"):
            evidence = choose_formats(graph, config, given, mantissas=widths.layers, batch=batch)
        Console().print(evidence.table())
        compiled = evidence.chosen.compiled
    target = output or model.with_suffix("")
    compiled.package.save(target, model)
    host = f", on the host: {', '.join(node.op for node in compiled.host.nodes)}" if compiled.host else ""
    strips = f", operand in strips: {', '.join(compiled.strips)}" if compiled.strips else ""
    counts = f"{len(compiled.lowered.layers)} layers, {len(compiled.image.program)} instructions"
    click.echo(f"{target}: {counts}{host}{strips}")
