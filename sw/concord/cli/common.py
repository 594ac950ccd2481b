"""Shared by the commands: argument types, options, files, and readable errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from numpy.lib.format import MAGIC_PREFIX
from rich.console import Console
from rich.text import Text

from concord.display.terminal import printable
from concord.spec.boards import BOARD_SPECS
from concord.spec.name_choice import NameChoice
from concord.spec.presets import ECP5_85F, PRESETS, REMOVED
from concord.spec.stored import again, outdated
from concord.utils.extras import install_command
from concord.utils.files import check_place
from concord.utils.npz import read_npy, read_npz
from concord.utils.numbers import number_of

if TYPE_CHECKING:
    from concord.host import Device
    from concord.image import Image
    from concord.spec.config import NpuConfig

P = ParamSpec("P")
R = TypeVar("R")

#: Columns of tables that go to a file or a pipe.
_WIDTH = 120


BOARD, PRESET = NameChoice("board", BOARD_SPECS), NameChoice("preset", PRESETS, REMOVED)
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
THING = click.Path(exists=True, path_type=Path)
POSITIVE = click.IntRange(min=1)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

#: Of demonstrations and figures, which are about one configuration.
npu = click.option("--preset", default=ECP5_85F.name, show_default=True, type=PRESET, help="Configuration of the NPU.")
#: Of commands that run a network.
samples_input = click.option(
    "-i", "--input", "inputs", type=EXISTING, required=True, help="npz file with a batch of samples for every input."
)
on_option = click.option(
    "--on", default="emulator", show_default=True, help="Where to run: emulator, rtl, or the name of a serial port."
)
text_output = click.option("-o", "--output", type=FILE, help="File to write instead of the terminal.")


class NumberRange(click.FloatRange):
    """A number in a range, which may be written as a fraction such as 1/16."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; refused as by the type of click if it is none, or out of the range."""
        with suppress(ValueError):
            value = number_of(value, self.name)
        return float(super().convert(value, param, ctx))


def gathered(**records: Any) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """A decorator of a command that gets options in records: a ``NamedTuple`` by parameter, whose fields they are."""

    def with_records(command: Callable[..., R]) -> Callable[..., R]:
        @wraps(command)
        def called(**values: Any) -> R:
            made = {name: kind(*(values.pop(field) for field in kind._fields)) for name, kind in records.items()}
            return command(**made, **values)

        return called

    return with_records


def readable(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors a user can cause into one message without a traceback."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):  # the group ends with the last one
            raise
        except ModuleNotFoundError as error:
            raise click.ClickException(f"{error.name} is not installed; {install_command('demo,hw')}") from error
        except MemoryError as error:
            what = str(error) or "what the command asked for is not free"
            raise click.ClickException(f"not enough memory, fewer samples need less: {printable(what)}") from error
        except OSError as error:
            raise click.ClickException(printable(_of_system(error))) from error
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            raise click.ClickException(printable(str(error) or type(error).__name__)) from error

    return guarded


def _of_system(error: OSError) -> str:
    """Text of an error of the system, with the name of its file."""
    if error.filename is None or error.strerror is None:
        return error.strerror or str(error)
    return f"{error.filename}: {error.strerror}"


def text_of(file: Path) -> str:
    """The text in a file; ``ValueError`` if it holds none."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} must be text in UTF-8, and is none") from error


def arrays_of(file: Path) -> dict[str, Any]:
    """The arrays of an npz file by name, or that of an npy file as ``x``; ``ValueError`` if it is none, or damaged."""
    return {"x": read_npy(file)} if is_npy(file) else read_npz(file)


def is_npy(file: Path) -> bool:
    """True if a file is one array of NumPy."""
    with file.open("rb") as opened:
        return opened.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX


def inputs_from(file: Path, names: Sequence[str]) -> dict[str, Any]:
    """The arrays of a file by name; an npy file has that of the only input.

    Raises
    ------
    ValueError
        If it is neither npz nor npy, or one array for several inputs.
    """
    arrays = arrays_of(file)
    if not is_npy(file):
        return arrays
    if len(names) != 1:
        raise ValueError(f"{file} must be an npz file with the arrays {list(names)}, not one array (npy)")
    return {names[0]: arrays["x"]}


def check_npz(output: Path) -> None:
    """``ValueError`` if arrays cannot be written there: it must end in ``.npz``, as NumPy appends that else."""
    if output.suffix != ".npz":
        raise ValueError(f"output must be an npz file and end in .npz, not {str(output)!r}")
    check_place(output)


def check_page(page: Path) -> Path:
    """The file with the facts beside a page; ``ValueError`` if either cannot be written."""
    facts = page.with_suffix(".json")
    for path in (page, facts):
        check_place(path)
    return facts


@contextmanager
def connected(on: str, config: NpuConfig, link: str | None, network: Path, model: str = "MODEL") -> Iterator[Device]:
    """A device for a compiled network; parameters as for :func:`concord.spec.stored.compile_again` and ``connect``.

    A device that has another configuration than a network of before is refused with the command that compiles it again.
    """
    from concord.host import MismatchError, connect

    try:
        device = connect(on, config, link=link)
    except MismatchError as error:
        if outdated(config):
            raise MismatchError(f"{error}\n  {again(config, network, model)}") from error
        raise
    with device:
        yield device


def check_link(on: str, link: str | None) -> None:
    """``ValueError`` if a link is named for the emulator, which has none."""
    if on == "emulator" and link is not None:
        raise ValueError(f"--link must be given with --on rtl or a port, not {on!r}")


def echo(text: str, nl: bool = True, err: bool = False) -> None:
    """Print a text; names in it cannot move the cursor or change what the terminal shows."""
    click.echo(printable(text), nl=nl, err=err)


class TerminalConsole(Console):
    """A console in whose texts and tables names cannot move the cursor or change what the terminal shows."""

    def on_broken_pipe(self) -> None:
        """Leave the end of the command to :func:`concord.cli.pipes.ends_with_its_reader`."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def render_str(self, text: str, **options: Any) -> Text:
        """A text with its control characters escaped."""
        return super().render_str(printable(text), **options)


def wide_console() -> Console:
    """Console for tables: a terminal with its width, or a file or pipe with room for all columns.

    Names of layers may have brackets, which mean nothing there.
    """
    console = TerminalConsole(markup=False)
    return console if console.is_terminal else TerminalConsole(width=_WIDTH, markup=False)


def show_rates(image: Image, link: str | None, batch: int = 1, steps: Sequence[Any] | None = None) -> None:
    """Prints the rates of an image over every link of its board; ``steps`` are those of sliding products."""
    from concord.host.copied_weights import copied_weights
    from concord.host.rates import rates_by_link

    speed, *others = rates_by_link(image, batch, steps, link)
    echo(f"on the board: {speed.speeds}")
    echo(f"{speed.cycles:,} cycles per run{speed.assumption}; {speed.times}")
    if copies := copied_weights(image).text(speed.cycles):
        echo(copies)
    for other in others:
        echo(f"over {other.link.name}, {other.link.text}: {other.speeds}")
    echo(f"inputs travel {speed.input_route}")
