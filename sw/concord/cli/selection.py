"""Options of the commands that read an ONNX model: sizes, the part that is taken, constants in the place of inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from concord.cli.options import compile_options

R = TypeVar("R")
#: Parameters of the commands by option.
SELECTED = {"shape": "shapes", "inputs": "cut_inputs", "outputs": "cut_outputs", "fix": "fixed"}


def selection_options(command: Callable[..., R]) -> Callable[..., R]:
    """``--shape``, ``--inputs``, ``--outputs`` and ``--fix``; the command gets a ``Selection``."""

    @wraps(command)
    def chosen(
        *args: Any,
        shapes: tuple[str, ...],
        cut_inputs: str | None,
        cut_outputs: str | None,
        fixed: tuple[str, ...],
        **others: Any,
    ) -> R:
        from concord.frontend.selection import Selection

        return command(*args, selection=Selection.parse(shapes, cut_inputs, cut_outputs, fixed), **others)

    return compile_options(**SELECTED)(chosen)
