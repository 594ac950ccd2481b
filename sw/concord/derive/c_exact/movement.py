"""Movements of codes in C."""

from __future__ import annotations

from concord.derive.c.copies import copy_loops
from concord.derive.c.storage import CArray, View
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.tensors import limits_codes, move_places
from concord.integer.operations import CodeMovement


def write_movement(function: ExactFunction, operation: CodeMovement) -> None:
    """Copies of pieces, or a table of places."""
    tensors = dict(zip(operation.inputs, function.sources, strict=True)) | {operation.output: function.result}
    places, constants = move_places(operation, tensors)
    kind, lines = function.result.array.kind, function.lines
    sources = tuple(CArray(f"x{k}", source.stored) for k, source in enumerate(function.sources))
    for loops in copy_loops(View(sources, places, constants), constants, kind, function.unit):
        code = loops.origin
        if loops.source is not None:
            code = f"{sources[loops.source].name}[{code}]"
            limited = limits_codes(operation, tensors)
            code = f"({kind}_t){f'limited({code}, {operation.low}, {operation.high})' if limited else code}"
        with lines.loops(loops.variables, loops.sizes):
            lines.add(f"y[{loops.to}] = {code};")
