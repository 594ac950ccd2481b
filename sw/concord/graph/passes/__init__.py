"""Rewrites of a graph that change no result but for rounding; each is a module with ``run(graph) -> None``.

The data-type pass and its report (``dtypes``, ``dtype_report``) rewrite nothing.
"""

from __future__ import annotations

from types import ModuleType

from concord.graph.ir import Graph
from concord.graph.passes import (
    dead,
    fold_affine,
    fold_pad,
    functions,
    gelu,
    noops,
    normalisations,
    piecewise,
    reshapes,
    scales,
)

#: In this order after import. Each leaves a consistent graph.
AFTER_IMPORT: tuple[ModuleType, ...] = (
    dead, noops, reshapes, noops, gelu, piecewise, fold_affine, fold_pad, functions, normalisations, scales,
)  # fmt: skip


def run(graph: Graph) -> None:
    """Bring an imported graph into its canonical form."""
    for rewrite in AFTER_IMPORT:
        rewrite.run(graph)
