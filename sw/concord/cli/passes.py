"""Options of ``concord compile`` that show what its passes do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

import click

from concord.cli.common import FOLDER, echo, wide_console
from concord.pipeline.instruments import Checks, Dump, Timings
from concord.pipeline.manager import Instrument, instrumented

if TYPE_CHECKING:
    from concord.compiler.model import Compiled
    from concord.graph.ir import Graph
    from concord.spec.config import NpuConfig

P = ParamSpec("P")
R = TypeVar("R")


def passes_options(command: Callable[P, R]) -> Callable[P, R]:
    """``--verbose``, ``--dump`` and ``--check``."""
    options = (
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            help="Show every pass of the compiler with its time, and the strategies that were tried.",
        ),
        click.option("--dump", type=FOLDER, help="Folder for numbered text files with the result of every pass."),
        click.option("--check", is_flag=True, help="Check the result of every pass for its invariants."),
    )
    for option in reversed(options):
        command = option(command)
    return command


class PassesShown(NamedTuple):
    """Values of the options; ``None`` without a folder."""

    verbose: bool
    dump: Path | None
    check: bool


class Watch:
    """The instruments that the options ask for.

    Parameters
    ----------
    verbose : bool
        Whether times and strategies are to be shown.
    dump : Path or None
        Folder for what passes make.
    check : bool
        Whether invariants are to be checked.
    """

    def __init__(self, verbose: bool, dump: Path | None, check: bool):
        from concord.compiler.pipeline.strategies import Strategies

        self.timings, self.strategies, self.checks = Timings(), Strategies(), Checks()
        self.verbose, self.check = verbose, check
        self.instruments: list[Instrument] = [self.timings, self.strategies] if verbose else []
        self.instruments += [Dump(dump)] if dump is not None else []
        self.instruments += [self.checks] if check else []

    def observed(self, really: bool = True) -> AbstractContextManager[None]:
        """The instruments observe what runs inside, if it is ``really`` what the options are about."""
        return instrumented(*(self.instruments if really else ()))

    def again(self, graph: Graph, compiled: Compiled) -> None:
        """Compile a network whose formats have been chosen among candidates once more, observed."""
        from concord.compiler.model import compile_graph

        if self.instruments:
            package = compiled.package
            with self.observed():
                compile_graph(graph, package.config, package.formats, batch=package.arrangement.batch)

    def refused(self, graph: Graph, config: NpuConfig, batch: int) -> None:
        """Compile a network that no preset takes once more for one of them, observed up to where it is refused."""
        from concord.compiler.model import compile_graph

        if self.instruments:
            with self.observed(), suppress(ValueError):
                compile_graph(graph, config, batch=batch)

    def show(self) -> None:
        """Print the tables, and how many passes were checked, if that is asked for."""
        if self.check:
            echo(f"{self.checks.passes} passes checked, all invariants hold behind each of them")
        if self.verbose:
            console = wide_console()
            console.print(self.timings.table())
            if self.strategies.considered:
                console.print(self.strategies.table())
