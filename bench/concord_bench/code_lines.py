"""``python -m concord_bench.code_lines``: lines of code by package, without blank lines, comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from concord.cli.common import wide_console
from concord.display.tables import text_table

ROOT = Path(__file__).parents[2]
#: Folders of packages, and those whose lines are counted as one.
SOURCES, OTHERS = ("sw/concord", "hw/concord_rtl"), ("constraints", "sim", "bench", "tests")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Number of lines of a Python text with something that is neither a comment nor part of a docstring.

    Raises
    ------
    SyntaxError
        If the text is no Python.
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for first, last in _docstrings(ast.parse(text)):
        lines.difference_update(range(first, last + 1))
    return len(lines)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last lines of docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.lineno, first.end_lineno or first.lineno


def lines_of(files: Iterable[Path]) -> int:
    """Lines of code in some files."""
    return sum(code_lines(path.read_text()) for path in files)


def by_package(root: Path) -> dict[str, int]:
    """Lines of code of a source tree by package, and of the folders beside the packages as a whole."""
    counts: dict[str, int] = {}
    for source in SOURCES:
        folder = root / source
        counts[source] = lines_of(folder.glob("*.py"))
        for package in sorted(path for path in folder.iterdir() if path.is_dir() and list(path.rglob("*.py"))):
            counts[f"{source}/{package.name}"] = lines_of(package.rglob("*.py"))
    return counts | {name: lines_of((root / name).rglob("*.py")) for name in OTHERS}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=ROOT, help="Source tree."
)
def main(root: Path) -> None:
    """Count lines of code by package, without blank lines, comments and docstrings."""
    counts = by_package(root)
    rows = [(name, f"{count:,}") for name, count in counts.items()]
    total = sum(count for name, count in counts.items() if name.startswith(SOURCES))
    table = text_table("Lines of code", ["", "lines"], right=("lines",), rows=[*rows, ("sw and hw", f"{total:,}")])
    wide_console().print(table)


if __name__ == "__main__":
    main()
