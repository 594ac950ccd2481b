"""A file of C in the making: what files of networks in blocks and of those on codes have in common."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from concord.derive.c.header import run_arguments
from concord.derive.c.library import called, functions
from concord.derive.c.texts import C_WORDS, CPP_WORDS, array, comment, literal
from concord.derive.c.unit import Unit
from concord.derive.names import Names
from concord.utils.files import write_text

#: Characters of a name of the model that names in C have: compilers need to tell 63 apart, and other words follow.
LONGEST_WORD = 40
#: Variables of functions, which no value may hide.
_VARIABLES = (
    "after arena c code count e end f fits flags from i0 i1 i2 i3 i4 i5 inputs k k0 k1 k2 k3 k4 k5 k6 k7 main numbers "
    "narrow offset outputs p b r s shift t tap term total w x y"
).split()

_HEAD = """/* See {stem}.h. */

#include "{stem}.h"

#include <stdbool.h>

/* What stands behind the names of weights, tables and buffers: the sections that they go to. */
#if defined(__GNUC__) && defined(__ELF__)
#ifndef CONCORD_WEIGHTS
#define CONCORD_WEIGHTS __attribute__((section(".concord_weights")))
#endif
#ifndef CONCORD_TABLES
#define CONCORD_TABLES __attribute__((section(".concord_tables")))
#endif
#endif
#ifndef CONCORD_WEIGHTS
#define CONCORD_WEIGHTS
#endif
#ifndef CONCORD_TABLES
#define CONCORD_TABLES
#endif
#ifndef CONCORD_ARENA
#define CONCORD_ARENA
#endif

/* In front of loops that are best left as loops: unrolled they would not become vector instructions. */
#if defined(__GNUC__) && !defined(__clang__)
#define CONCORD_ROLLED _Pragma("GCC unroll 1")
#else
#define CONCORD_ROLLED
#endif"""


@dataclass(frozen=True)
class CFiles:
    """The texts of a network in C, and how much memory it takes.

    Parameters
    ----------
    header, source : str
    ram, rom : int
        Bytes of the buffers, and of all constants.
    flag_places : tuple of str
        Places of flags in their order.
    """

    header: str
    source: str
    ram: int
    rom: int
    flag_places: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write ``path``, a file like ``net.c``, and the header of the same name beside it."""
        write_text(path.with_suffix(".h"), self.header)
        write_text(path, self.source)


def check_file_name(path: Path) -> None:
    """``ValueError`` if names in C cannot begin with the name of a file."""
    if path.suffix != ".c" or not re.fullmatch(r"[a-z]\w*", path.stem, re.ASCII):
        raise ValueError(f"output must be a file like net.c, whose name can begin names in C, not {path.name!r}")


def file_names() -> Names:
    """Hands out names that files do not need themselves."""
    return Names({*C_WORDS, *CPP_WORDS, *functions(), *_VARIABLES}, LONGEST_WORD)


class FileWriter:
    """Collects the functions of layers, and writes the one that calls them in order.

    Parameters
    ----------
    stem : str
        Names that others see begin with it.
    names : Names
        Of the file.

    Members
    -------
    unit : Unit
        Constants and buffers.
    """

    def __init__(self, stem: str, names: Names) -> None:
        self.stem, self.unit = stem, Unit(names)
        self._names = Names({*C_WORDS, f"{stem}_run", f"{stem}_run_all"}, LONGEST_WORD)
        self._functions: list[str] = []
        self._calls: list[str] = []

    def add(self, layer: str, about: str, parameters: Mapping[str, str], lines: Collection[str]) -> None:
        """Adds the function of a layer; ``parameters`` are what a run calls it with, by their declarations."""
        name = self._names.new(self.stem, layer)
        self._calls.append(f"{name}({', '.join(parameters.values())});")
        head = f"static void {name}({', '.join(parameters) or 'void'})"
        self._functions.append("\n".join([f"/* {comment(about)} */", head, "{", *lines, "}"]))

    def text(self, arrays: str, flag_places: Sequence[str] | None, always: Sequence[int], ports: Sequence[str]) -> str:
        """The text of the source.

        Parameters
        ----------
        arrays : str
            Definitions of what buffers are in.
        flag_places : sequence of str or None
            Places of flags, if there are flags.
        always : sequence of int
            What every run raises, by place.
        ports : sequence of str
            Functions of inputs and outputs.
        """
        body = "\n\n".join([*self.unit.functions, *self._functions, *ports, *self._run(flag_places, always)])
        head = _HEAD.format(stem=self.stem)
        parts = [head, *called(body), *self.unit.constants, arrays, body]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _run(self, flag_places: Sequence[str] | None, always: Sequence[int]) -> list[str]:
        """Names of places, and the functions that run a sample and several."""
        stem, arguments = self.stem, run_arguments(self.stem, flag_places)
        raised = [f"flags[{number}] |= {word};" for number, word in enumerate(always) if word]
        steps = [*raised, *self._calls]
        words, used = re.findall(r"\*(\w+)", arguments), {*re.findall(r"\w+", " ".join(steps))}
        lines = [f"(void){word};" for word in words if word not in used] + steps
        run = "\n".join([f"void {stem}_run({arguments})", "{", *(f"    {line}" for line in lines), "}"])
        every = _RUN_ALL.format(stem=stem, arguments=arguments, flags="" if flag_places is None else ", flags")
        if flag_places is None:
            return [run, every]
        names = array("char *const", f"{stem}_places", [literal(where) for where in flag_places] or ["0"])
        return [names.removeprefix("static "), run, every]


_RUN_ALL = """void {stem}_run_all({arguments}, size_t count)
{{
    for (size_t k = 0; k < count; ++k) {{
        {stem}_run(inputs + k, outputs + k{flags});
    }}
}}"""
