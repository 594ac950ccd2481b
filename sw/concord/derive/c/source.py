"""The files of a network in C: ``net.c`` and ``net.h``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from concord.derive import ir
from concord.derive.c.header import header, run_arguments
from concord.derive.c.library import called, functions
from concord.derive.c.memory import place
from concord.derive.c.places import Scope
from concord.derive.c.plan import LayerSteps, local_values
from concord.derive.c.planner import plan
from concord.derive.c.ports import input_functions, output_functions
from concord.derive.c.steps import StepWriter
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
    """

    header: str
    source: str
    ram: int
    rom: int


def write_c(model: ir.Model, path: Path) -> None:
    """Write ``path``, a file like ``net.c``, and the header of the same name beside it.

    ``ValueError`` for a model with parts that the host computes, or with an operation that has no form in C.
    """
    check_file_name(path)
    made = c_files(model, path.stem)
    write_text(path.with_suffix(".h"), made.header)
    write_text(path, made.source)


def check_file_name(path: Path) -> None:
    """``ValueError`` if names in C cannot begin with the name of a file."""
    if path.suffix != ".c" or not re.fullmatch(r"[a-z]\w*", path.stem, re.ASCII):
        raise ValueError(f"output must be a file like net.c, whose name can begin names in C, not {path.name!r}")


def source_head(stem: str) -> str:
    """Head of every file."""
    return _HEAD.format(stem=stem)


def several_runs(stem: str, arguments: str, flagged: bool) -> str:
    """The function that runs several samples, one after the other."""
    lines = [
        f"void {stem}_run_all({arguments}, size_t count)",
        "{",
        "    for (size_t k = 0; k < count; ++k) {",
        f"        {stem}_run(inputs + k, outputs + k{', flags' * flagged});",
        "    }",
        "}",
    ]
    return "\n".join(lines)


def places_text(stem: str, places: Sequence[str]) -> str:
    """Names of the places of flags."""
    return array("char *const", f"{stem}_places", [literal(where) for where in places] or ["0"]).removeprefix("static ")


def c_files(model: ir.Model, stem: str) -> CFiles:
    """The texts of a model; names that others see begin with ``stem``."""
    for graph, where in ((model.front, "in front of"), (model.host_partition, "behind")):
        if graph is not None:
            words = ", ".join(dict.fromkeys(node.op for node in graph.nodes))
            raise ValueError(
                f"{model.name or 'model'} must have nothing in C that the host computes {where} the NPU, not {words}; "
                "--npu-part leaves it out"
            )
    return _Writer(model, stem).files()


def file_names() -> Names:
    """Hands out names that files do not need themselves."""
    return Names({*C_WORDS, *CPP_WORDS, *functions(), *_VARIABLES}, LONGEST_WORD)


class _Writer:
    """Writes the files of one model."""

    def __init__(self, model: ir.Model, stem: str):
        self.model, self.stem = model, stem
        names = file_names()
        self.plan, self.unit = plan(model, names), Unit(names)
        self.flag_places = None if model.flags is None else model.flags.places
        self._steps = StepWriter(self.unit, self.flag_places or (), local_values(self.plan))
        self._calls: list[str] = []

    def files(self) -> CFiles:
        """Both texts."""
        layers = [(layer, self._steps.layer(layer)) for layer in self.plan.layers]
        ram = place(self.unit.buffers)
        names = Names({*C_WORDS, f"{self.stem}_run", f"{self.stem}_run_all"}, LONGEST_WORD)
        texts = [
            self._function(names.new(self.stem, layer.layer or "program"), layer, scope) for layer, scope in layers
        ]
        texts += [input_functions(self.stem, some, self.unit) for some in self.plan.inputs]
        texts += [output_functions(self.stem, storage) for _, storage in self.plan.outputs]
        body = "\n\n".join([*self.unit.functions, *texts, *self._run()])
        buffers = f"/* All buffers. */\nstatic uint16_t arena[{ram // 2}] CONCORD_ARENA;" if ram else ""
        parts = [source_head(self.stem), *called(body), *self.unit.constants, buffers, body]
        source = "\n\n".join(part for part in parts if part) + "\n"
        text = header(self.model, self.plan, self.stem, ram, self.unit.rom, self.flag_places)
        return CFiles(text, source, ram, sum(self.unit.rom.values()))

    def _function(self, name: str, layer: LayerSteps, scope: Scope) -> str:
        """The function of a layer."""
        arguments = {
            "inputs": f"const {self.stem}_inputs *inputs" if scope.inputs else "",
            "outputs": f"{self.stem}_outputs *outputs" if scope.outputs else "",
            "flags": "uint8_t *flags" if scope.places else "",
        }
        self._calls.append(f"{name}({', '.join(word for word, text in arguments.items() if text)});")
        pcs = sorted({pc for node in layer.nodes for pc in node.pcs})
        about = f"Layer {layer.layer}." if layer.layer else "A part of the program."
        about += f" Chains at {', '.join(map(str, pcs))}." if pcs else ""
        lines = [f"/* {comment(about)} */"]
        lines += [f"static void {name}({', '.join(filter(None, arguments.values())) or 'void'})", "{"]
        body = scope.lines.lines
        words = {*re.findall(r"\w+", "\n".join(body))}
        for buffer in scope.buffers:
            if buffer.name in words:
                start = f"arena + {buffer.offset // 2}"
                start = start if buffer.kind == "uint16" else f"({buffer.kind}_t *)({start})"
                lines.append(f"    {buffer.kind}_t *const {buffer.name} = {start};")
        lines += [f"    const uint16_t *const {some.name} = inputs->{some.name};" for some in scope.inputs]
        lines += [f"    uint16_t *const {some.name} = outputs->{some.name};" for some in scope.outputs]
        lines += [f"    unsigned {variable} = 0;" for variable in scope.places.values()]
        lines += body
        for where, variable in scope.places.items():
            number = list(self.flag_places or ()).index(where)
            lines.append(f"    flags[{number}] = (uint8_t)(flags[{number}] | {variable});")
        return "\n".join([*lines, "}"])

    def _run(self) -> list[str]:
        """The functions that call all others, and names of places."""
        flags, stem, calls = self.model.flags, self.stem, " ".join(self._calls)
        always = [] if flags is None else [flags.always.get(where, 0) for where in flags.places]
        arguments = run_arguments(stem, flags is not None)
        used = {"inputs": "inputs" in calls, "outputs": "outputs" in calls}
        used |= {} if flags is None else {"flags": "flags" in calls or any(always)}
        lines = [f"void {stem}_run({arguments})", "{"]
        lines += [f"    (void){word};" for word, there in used.items() if not there]
        lines += [f"    flags[{number}] |= {word};" for number, word in enumerate(always) if word]
        lines += [*(f"    {call}" for call in self._calls), "}"]
        texts = ["\n".join(lines), several_runs(stem, arguments, flags is not None)]
        if flags is not None:
            texts.insert(0, places_text(stem, flags.places))
        return texts
