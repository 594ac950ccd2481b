"""Rewrites of a graph that change no result but for rounding; each is a module with ``run(graph) -> None``.

The data-type pass and its report (``dtypes``, ``dtype_report``) rewrite nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from concord.graph.ir import Graph
from concord.graph.level import GRAPH
from concord.graph.passes import (
    centring,
    dead,
    fake_quantize,
    fold_affine,
    fold_pad,
    functions,
    gelu,
    noops,
    normalisations,
    offsets,
    order,
    piecewise,
    reshapes,
    scales,
    uneven_windows,
)
from concord.pipeline.manager import Pass, Pipeline


@dataclass(frozen=True)
class Rewriting:
    """A graph that every pass changes in place."""

    graph: Graph


def _rewrite(name: str, module: ModuleType) -> Pass:
    """A module's ``run`` as a pass that changes the graph in place."""

    def run(state: Rewriting) -> Rewriting:
        module.run(state.graph)
        return state

    return Pass(name, run, (module.__doc__ or "").partition("\n")[0])


#: In this order after import. Each leaves a consistent graph.
AFTER_IMPORT: tuple[Pass, ...] = (
    _rewrite("order", order),
    _rewrite("dead nodes", dead),
    _rewrite("quantised tensors", fake_quantize),
    _rewrite("no-ops", noops),
    _rewrite("reshapes", reshapes),
    _rewrite("no-ops", noops),
    _rewrite("uneven windows", uneven_windows),
    _rewrite("gelu", gelu),
    _rewrite("piecewise functions", piecewise),
    _rewrite("fold affine", fold_affine),
    _rewrite("fold padding", fold_pad),
    _rewrite("join functions", functions),
    _rewrite("normalisations", normalisations),
    _rewrite("sums of constants", offsets),
    _rewrite("centring", centring),
    _rewrite("scales", scales),
    _rewrite("order", order),
)
CANONICAL = Pipeline("canonical form", Rewriting, Rewriting, AFTER_IMPORT, (GRAPH,))


def run(graph: Graph) -> None:
    """Bring an imported graph into its canonical form."""
    CANONICAL.run(Rewriting(graph))
