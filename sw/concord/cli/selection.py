"""Options of the commands that read an ONNX model: sizes, the part that is taken, constants in the place of inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

R = TypeVar("R")


def selection_options(command: Callable[..., R]) -> Callable[..., R]:
    """``--shape``, ``--inputs``, ``--outputs`` and ``--fix``; the command gets a ``Selection``."""
    options = (
        click.option(
            "--shape",
            "shapes",
            multiple=True,
            metavar="NAME=SIZES",
            help="Sizes of an input, batch included, such as x=1,3,64,64, or of an open dimension by its name, such as "
            "height=64. The option can be repeated.",
        ),
        click.option(
            "--inputs", "cut_inputs", metavar="NAMES", help="Tensors that become the inputs: take the part behind them."
        ),
        click.option(
            "--outputs",
            "cut_outputs",
            metavar="NAMES",
            help="Tensors that become the outputs: take the part in front of them. Names have commas in between.",
        ),
        click.option(
            "--fix",
            "fixed",
            multiple=True,
            metavar="NAME=VALUE",
            help="Make an input a constant: a number, numbers with commas in between, or an npy file. The option can "
            "be repeated.",
        ),
    )

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

    for option in reversed(options):
        chosen = option(chosen)
    return chosen
