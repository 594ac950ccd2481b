"""Names of layers in files of backends."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from concord.derive import ir


def runs_of_layers(nodes: Iterable[ir.ModelNode]) -> list[tuple[str, list[ir.ModelNode]]]:
    """Nodes of one layer that follow each other, with its name."""
    return [(layer, list(run)) for layer, run in groupby(nodes, key=lambda node: node.layer)]


def free_name(name: str, taken: set[str]) -> str:
    """A name that is not taken yet, and is then."""
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    taken.add(free)
    return free
