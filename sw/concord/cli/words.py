"""Programs as text and as words: assembler and disassembler."""

from __future__ import annotations

import zipfile
from pathlib import Path

import click

from concord.cli.common import EXISTING, THING, echo, readable, text_of, text_output
from concord.networks.folder import load_image
from concord.program.assembler import assemble, disassemble
from concord.utils.files import write_text


@click.command()
@click.argument("file", type=EXISTING)
@text_output
@readable
def asm(file: Path, output: Path | None) -> None:
    """Assemble FILE to words in hexadecimal, one per line."""
    _emit("".join(f"{word:016x}\n" for word in assemble(text_of(file))), output)


@click.command()
@click.argument("file", type=THING)
@text_output
@readable
def disasm(file: Path, output: Path | None) -> None:
    """Disassemble FILE.

    FILE is an image, a compiled network, or words in hexadecimal as `concord asm` writes them.
    """
    _emit(disassemble(_words(file)), output)


def _words(file: Path) -> list[int]:
    if file.is_dir() or zipfile.is_zipfile(file):
        return list(load_image(file).program)
    words = []
    for number, line in enumerate(text_of(file).split(), 1):
        try:
            words.append(int(line, 16))
        except ValueError:
            raise ValueError(f"{file}: word {number} must be hexadecimal, not {line!r}") from None
    return words


def _emit(text: str, output: Path | None) -> None:
    if output is None:
        echo(text, nl=False)
    else:
        write_text(output, text)
