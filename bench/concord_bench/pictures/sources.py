"""Packages of the software and rooms of the hardware in their order, and what modules import of each other.

``tests/test_layers.py`` checks that the sources follow the order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: Packages of the software, each of which may import from those in front of it alone.
PACKAGES = (
    "utils", "display", "pipeline", "spec", "golden", "functions", "operations", "sums", "image", "program",
    "cycles", "transfer", "integer", "emulator", "examples", "graph", "frontend", "compiler", "host", "networks", "fit",
    "datasets", "derive", "report", "prove", "overflow", "train", "frameworks", "api", "onnx_backend", "live", "demo",
    "cli", "__main__",
)  # fmt: skip
#: Rooms of the hardware, each of which may import from those in front of it alone.
ROOMS = (
    "parts", "netlists", "families", "cells", "arith", "memories", "dram", "mvm", "vector", "pipe", "host", "sequencer",
    "element_serial", "feeder", "link", "core", "flow", "build",
)  # fmt: skip
#: Folders with an order.
SOFTWARE, HARDWARE = ROOT / "sw" / "concord", ROOT / "hw" / "concord_rtl"


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """All statements in a syntax tree, also those within others; expressions, most of a tree, are left out."""
    waiting = [tree]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if isinstance(child, ast.stmt):
                yield child
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.append(child)


@cache
def _import_statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """All import statements of a source text."""
    return [node for node in statements(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path, package: Sequence[str]) -> Iterator[str]:
    """Absolute names of everything that a file imports, also in functions and for type checkers."""
    yield from imported_names(_import_statements(path.read_text(encoding="utf-8")), package)


def imported_names(statements: Iterable[ast.Import | ast.ImportFrom], package: Sequence[str]) -> Iterator[str]:
    """Absolute names of everything that import statements of a module in a package import."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        else:
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = [*above, *([node.module] if node.module else [])]
            yield ".".join(base)
            yield from (".".join([*base, name.name]) for name in node.names)


def modules(folder: Path) -> dict[str, Path]:
    """Files in the folder of a package by the name of the module."""
    paths = {path.relative_to(folder.parent).with_suffix("").parts: path for path in sorted(folder.rglob("*.py"))}
    return {".".join(parts).removesuffix(".__init__"): path for parts, path in paths.items()}


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Modules that each module imports, of those that are there."""
    graph = {}
    for name, path in files.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        graph[name] = {other for other in imported(path, package) if other in files} - {name}
    return graph


def packages(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Imports of the packages in a folder from each other."""
    graph: dict[str, set[str]] = {}
    for name, others in imports(files).items():
        if "." in name:
            graph.setdefault(name.split(".")[1], set()).update(other.split(".")[1] for other in others if "." in other)
    return {name: others - {name} for name, others in graph.items()}


def layers(graph: Mapping[str, set[str]], order: Sequence[str]) -> list[list[str]]:
    """Packages by layer, from the lowest up: each stands as low as possible above all that it imports.

    Raises
    ------
    ValueError
        If a package is missing in the order, or stands in front of what it imports.
    """
    if set(graph) != set(order):
        raise ValueError(f"order must have the packages {sorted(graph)}, not {sorted(order)}")
    heights: dict[str, int] = {}
    for name in order:
        if later := sorted(graph[name] - set(heights)):
            raise ValueError(f"{name} must stand behind what it imports, {', '.join(later)}")
        heights[name] = 1 + max((heights[other] for other in graph[name]), default=-1)
    return [[name for name in order if heights[name] == height] for height in range(1 + max(heights.values()))]
