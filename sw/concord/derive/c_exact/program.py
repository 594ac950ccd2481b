"""Quantised networks in C as programs of this machine: compiled with its compiler, fed with codes by files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.derive.c.file import CFiles, file_names
from concord.derive.c.program import OPTIMISED, compiled, main_text, results_of
from concord.derive.c_exact.source import write_exact
from concord.derive.c_exact.tensors import plan
from concord.integer.graph import IntegerGraph
from concord.utils.files import write_text

Codes = NDArray[np.integer[Any]]


def graph_main(graph: IntegerGraph, stem: str, flags: bool = True) -> str:
    """The text of ``stem_main.c`` for a graph: a program that runs a file of codes."""
    reads, writes = [], []
    tensors = plan(graph, file_names())
    for tensor in tensors.inputs.values():
        name = tensor.array.name
        reads += [f"if (fread(inputs.{name}, sizeof inputs.{name}, 1, from) != 1) {{", "    return 3;", "}"]
    for tensor in tensors.outputs.values():
        writes.append(f"fwrite(outputs.{tensor.array.name}, sizeof outputs.{tensor.array.name}, 1, to);")
    return main_text(stem, flags, (), reads, writes)


class CompiledGraph:
    """A program that runs a network on codes in C.

    Parameters
    ----------
    graph : IntegerGraph
    files : CFiles
        Its texts.
    program : Path
        Compiled from these and :func:`graph_main`.
    """

    def __init__(self, graph: IntegerGraph, files: CFiles, program: Path) -> None:
        self.files, self._plan, self._program = files, plan(graph, file_names()), program

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs of a run, by their names."""
        return {name: tensor.shape for name, tensor in self._plan.inputs.items()}

    def run(self, codes: Mapping[str, Codes]) -> tuple[dict[str, Codes], NDArray[np.uint8]]:
        """Codes of the outputs by their names, and flags ``[samples, places]``.

        ``codes`` are those of all inputs, for at least one sample. ``ValueError`` if the program ends with an error.
        """
        inputs, outputs = self._plan.inputs, self._plan.outputs
        count = len(next(iter(codes.values()))) // next(iter(inputs.values())).shape[0]
        columns = [np.asarray(codes[name], dtype=tensor.array.kind) for name, tensor in inputs.items()]
        kinds = {name: (tensor.array.kind, tensor.size) for name, tensor in outputs.items()}
        made, flags = results_of(self._program, columns, count, kinds, len(self.files.flag_places))
        shapes = {name: (-1, *tensor.shape[1:]) for name, tensor in outputs.items()}
        return {name: values.reshape(shapes[name]) for name, values in made.items()}, flags


class ExactProgram(CompiledGraph):
    """A network on codes in C, compiled.

    Parameters
    ----------
    graph : IntegerGraph
    folder : Path
        For its files.
    command : sequence of str
        That compiles C.
    options : sequence of str
        Of the compiler.
    flags : bool
        Whether the program says which accumulators do not fit.

    Raises
    ------
    ValueError
        If the graph has no form in C, or the compiler ends with an error.
    """

    def __init__(
        self,
        graph: IntegerGraph,
        folder: Path,
        command: Sequence[str],
        options: Sequence[str] = OPTIMISED,
        *,
        flags: bool = True,
    ) -> None:
        files = write_exact(graph, folder / "net.c", flags)
        write_text(folder / "net_main.c", graph_main(graph, "net", flags))
        super().__init__(graph, files, compiled(folder, "net", graph.name, command, options))
