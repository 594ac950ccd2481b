"""Options of commands that are options of compiling, made from their record (:mod:`concord.spec.compile_options`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from concord.cli.common import EXISTING
from concord.spec.compile_options import DEFAULTS, OPTIONS, CompileOptions, OptionHelp
from concord.spec.name_choice import NameChoice

C = TypeVar("C", bound=Callable[..., Any])


class CodesOptions(NamedTuple):
    """``--exact``, for a network on codes, and ``--rounding`` or ``None``."""

    exact: bool
    rounding: str | None

    def check(self) -> None:
        """``ValueError`` if there is a rule of rounding without a network on codes."""
        CompileOptions(rounding=self.rounding).check_codes()


def compile_options(*names: str, **parameters: str) -> Callable[[C], C]:
    """A decorator that adds options of compiling to a command, in this order.

    Parameters
    ----------
    names : str
        Names of options that the command takes as parameters of the same name.
    parameters : str
        Names of parameters by the option that they stand for, where those differ.
    """
    options = [_option(name, name) for name in names] + [_option(*pair) for pair in parameters.items()]

    def decorate(command: C) -> C:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _option(name: str, parameter: str) -> Callable[[C], C]:
    known, default = OPTIONS[name], DEFAULTS[name]
    if default is False:
        return click.option(known.spelling, parameter, is_flag=True, help=known.help)
    return click.option(
        known.spelling,
        parameter,
        type=_type(name, known),
        multiple=known.repeated,
        default=default or None,
        show_default=bool(default),
        metavar=known.metavar or None,
        help=known.help,
    )


def _type(name: str, known: OptionHelp) -> click.ParamType[Any] | None:
    """Parameter type of click for an option; ``None`` for texts."""
    if known.choices:
        return NameChoice(name, known.choices, known.removed) if known.guess else click.Choice(known.choices)
    if known.least is not None:
        return click.IntRange(known.least, known.most)
    return EXISTING if known.file else None
