"""The header of a network in C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from concord.derive.c.texts import comment, literal
from concord.derive.c.unit import TABLES, WEIGHTS


@dataclass(frozen=True)
class HeaderPort:
    """An input or output of a run.

    Parameters
    ----------
    name : str
        In the model.
    word : str
        In C.
    kind : str
        Type of an element without ``_t``.
    shape : tuple of int
        Shape of a run.
    meaning : str
        What the elements stand for.
    numbers : mapping of str to object
        Values of macros by the ends of their names.
    """

    name: str
    word: str
    kind: str
    shape: tuple[int, ...]
    meaning: str = ""
    numbers: Mapping[str, object] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def member(self) -> str:
        """Line of the structure that it is part of."""
        shape = " x ".join(map(str, self.shape)) or "1"
        meaning = f", {self.meaning}" if self.meaning else ""
        return f"    {self.kind}_t {self.word}[{self.size}]; /* {comment(self.name)}: {shape}{meaning} */"


@dataclass(frozen=True, kw_only=True)
class HeaderText:
    """Contents of a header.

    Parameters
    ----------
    stem : str
        Names that it declares begin with it.
    head : str
        Comment at the top.
    origin : str
        SHA-256 of the model, in hexadecimal; empty if it is not known.
    rom : mapping of str to int
        Bytes of constants by section.
    ram : int
        Bytes of buffers.
    settings : sequence of str
        Lines in front of those of the ports.
    inputs, outputs : sequence of HeaderPort
    numbers : str
        Comment on the macros of ports.
    run : str
        Comment on what a run takes and gives.
    flag_places : sequence of str or None
        Places of flags, if there are flags.
    flags : str
        Comment on them.
    bits : mapping of str to int
        Bits of a place by the names of flags.
    functions : sequence of str
        Lines after everything else.
    """

    stem: str
    head: str
    origin: str
    rom: Mapping[str, int]
    ram: int
    settings: Sequence[str] = ()
    inputs: Sequence[HeaderPort]
    outputs: Sequence[HeaderPort]
    numbers: str
    run: str
    flag_places: Sequence[str] | None
    flags: str
    bits: Mapping[str, int]
    functions: Sequence[str] = ()

    def text(self) -> str:
        """The text of the header, which may be included twice and in C++."""
        upper = self.stem.upper()
        lines = [
            self.head,
            f"\n#ifndef {upper}_H\n#define {upper}_H\n",
            "#include <stddef.h>\n#include <stdint.h>\n",
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            *self._macros(upper),
            f"\n{self.run}",
            *_structure(f"{self.stem}_inputs", self.inputs),
            *_structure(f"{self.stem}_outputs", self.outputs),
            *self._flags(upper),
            f"void {self.stem}_run({run_arguments(self.stem, self.flag_places)});",
            f"void {self.stem}_run_all({run_arguments(self.stem, self.flag_places)}, size_t count);\n",
            *self.functions,
            "#ifdef __cplusplus\n}\n#endif",
            "\n#endif\n",
        ]
        return "\n".join(lines)

    def _macros(self, upper: str) -> list[str]:
        """Memory, settings, and facts of ports."""
        ports, origin = [*self.inputs, *self.outputs], []
        if self.origin:
            about = "/* SHA-256 of the model that it was made of. */"
            origin = [f'{about}\n#define {upper}_MODEL_SHA256 "{self.origin}"\n']
        names = [f"#define {upper}_{port.word.upper()}_NAME {literal(port.name)}" for port in ports]
        numbers = [
            f"#define {upper}_{port.word.upper()}_{end} {number}"
            for port in ports
            for end, number in port.numbers.items()
        ]
        return [
            *origin,
            "/* Bytes of the buffers, of weights, of tables, and of both. */",
            f"#define {upper}_RAM {self.ram}",
            f"#define {upper}_WEIGHTS {self.rom[WEIGHTS]}",
            f"#define {upper}_TABLES {self.rom[TABLES]}",
            f"#define {upper}_ROM {sum(self.rom.values())}",
            *self.settings,
            "\n/* Elements of inputs and outputs. */",
            *(f"#define {upper}_{port.word.upper()}_SIZE {port.size}" for port in ports),
            *(["\n/* Their names in the model. */", *names] if names else []),
            *([f"\n{self.numbers}", *numbers] if numbers else []),
        ]

    def _flags(self, upper: str) -> list[str]:
        """Declarations of flags."""
        if self.flag_places is None:
            return []
        return [
            self.flags,
            f"#define {upper}_PLACES {len(self.flag_places)}",
            *(f"#define {upper}_{name} {bit}" for name, bit in self.bits.items()),
            f"extern const char *const {self.stem}_places[];\n",
        ]


def run_arguments(stem: str, flag_places: Sequence[str] | None) -> str:
    """Arguments of a run, of a network that may have flags."""
    flags = "" if flag_places is None else ", uint8_t *flags"
    return f"const {stem}_inputs *inputs, {stem}_outputs *outputs{flags}"


def _structure(name: str, ports: Sequence[HeaderPort]) -> list[str]:
    """The type of a structure with a member for each port."""
    members = [port.member for port in ports] or ["    uint8_t nothing;"]
    return ["typedef struct {", *members, f"}} {name};\n"]
