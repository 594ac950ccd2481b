"""Movements of codes in C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from concord.derive.c.storage import CArray, View
from concord.derive.c.views import runs
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.tensors import limits_codes, move_places
from concord.integer.operations import CodeMovement


def write_movement(function: ExactFunction, operation: CodeMovement) -> None:
    """Copies of pieces, or a table of places."""
    tensors = dict(zip(operation.inputs, function.sources, strict=True)) | {operation.output: function.result}
    places, constants = move_places(operation, tensors)
    kind, limits = function.result.array.kind, limits_codes(operation, tensors)
    sources = tuple(CArray(f"x{k}", source.stored) for k, source in enumerate(function.sources))
    pieces = runs(View(sources, places, np.arange(len(constants), dtype=np.uint16)))
    lines = function.lines

    def moved(code: str) -> str:
        return f"({kind}_t){f'limited({code}, {operation.low}, {operation.high})' if limits else code}"

    for piece in pieces or ():
        variables = tuple(f"i{k}" for k in range(len(piece.shape)))
        with lines.loops(variables, piece.shape):
            code = (
                moved(f"x{piece.source}[{piece.origin.text(variables)}]")
                if piece.fill is None
                else str(constants[piece.fill])
            )
            lines.add(f"y[{piece.to.text(variables)}] = {code};")
    if pieces is not None:
        return
    flat, first = places.reshape(-1), 0
    for k, constant in enumerate(constants.tolist()):
        with _targets(function, flat == -1 - k) as element:
            lines.add(f"{element} = {constant};")
    for k, source in enumerate(function.sources):
        own = (flat >= first) & (flat < first + source.size)
        origin = function.table(flat[own] - first, "int32", "places")
        with _targets(function, own) as element:
            lines.add(f"{element} = {moved(f'x{k}[{origin}[k]]')};")
        first += source.size


@contextmanager
def _targets(function: ExactFunction, chosen: NDArray[np.bool_]) -> Iterator[str]:
    """A loop over some elements of the result."""
    elements = np.flatnonzero(chosen)
    table = function.table(elements, "int32", "targets")
    with function.lines.loop("k", len(elements)):
        yield f"y[{table}[k]]"
