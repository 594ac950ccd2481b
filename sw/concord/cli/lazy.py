"""A group of commands whose modules are imported when one of them is used, listed in sections.

What a command does is read from the source of its function, so that the list needs no import of it.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from concord.cli.pipes import ends_with_its_reader

#: Characters that a sentence may have.
_LONGEST = 200


@dataclass(frozen=True)
class LazyCommand:
    """Place of a command.

    Parameters
    ----------
    module : str
        Name of the module, in the package of the commands.
    function : str
        Its function.
    """

    module: str
    function: str

    def load(self) -> click.Command:
        """The command itself."""
        command = getattr(importlib.import_module(f"{__package__}.{self.module}"), self.function)
        assert isinstance(command, click.Command)
        return command

    @property
    def summary(self) -> str:
        """First sentence of the help of the command."""
        source = Path(__file__).with_name(f"{self.module}.py").read_text(encoding="utf-8")
        texts = [
            ast.get_docstring(node)
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef) and node.name == self.function
        ]
        return click.Command(self.function, help=texts[0]).get_short_help_str(_LONGEST)


class LazyGroup(click.Group):
    """Commands in sections, each imported when it is called.

    Parameters
    ----------
    sections : mapping of str to mapping of str to LazyCommand
        By title of a section: its commands by name, in the order in which they are listed.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, LazyCommand]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections = sections

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context; help is written here."""
        with ends_with_its_reader():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was called."""
        with ends_with_its_reader():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the sections."""
        return [name for section in self.sections.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; ``None`` if there is none of that name."""
        places = {name: place for section in self.sections.values() for name, place in section.items()}
        return places[cmd_name].load() if cmd_name in places else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        width = max(map(len, self.list_commands(ctx)))
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), place.summary) for name, place in section.items()])
