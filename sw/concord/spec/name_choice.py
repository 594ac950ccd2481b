"""Names as words of a command line, for the commands of the software and of the generator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from concord.spec.names import unknown_name


class NameChoice(click.Choice[str]):
    """One of some names; another one is refused as :func:`concord.spec.names.unknown_name` says.

    Parameters
    ----------
    what : str
        What is named.
    names : iterable of str
        The names.
    removed : mapping of str to str, optional
        Names that there were, and those that take their place.
    """

    def __init__(self, what: str, names: Iterable[str], removed: Mapping[str, str] | None = None):
        super().__init__(list(names))
        self.what, self.removed = what, removed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; fails with a list and a guess."""
        if value not in self.choices:
            self.fail(str(unknown_name(self.what, self.choices, value, self.removed)), param, ctx)
        return str(value)
