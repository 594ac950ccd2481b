"""The files of a quantised network in C on codes: ``net.c`` and ``net.h``."""

from __future__ import annotations

import re
from pathlib import Path

from concord.derive.c.library import called
from concord.derive.c.memory import Buffer, place
from concord.derive.c.source import (
    LONGEST_WORD,
    CFiles,
    check_file_name,
    file_names,
    places_text,
    several_runs,
    source_head,
)
from concord.derive.c.storage import Place
from concord.derive.c.texts import C_WORDS, comment
from concord.derive.c.unit import Unit
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.header import ACC_OVERFLOW, exact_header, run_arguments
from concord.derive.c_exact.operations import check_operations, write_operation
from concord.derive.c_exact.tensors import CodeTensor, plan
from concord.derive.names import Names
from concord.integer.graph import IntegerGraph
from concord.utils.files import write_text

#: Arrays that buffers are in: codes and rows of windows, and what has 32 bits, for an array has one type.
_ARENA, _WIDE = "arena", "wide"


def write_exact(graph: IntegerGraph, path: Path, flags: bool = True, origin: str = "") -> CFiles:
    """Write ``path``, a file like ``net.c``, and the header of the same name beside it.

    ``ValueError`` as of :func:`exact_files`, and for another name.
    """
    check_file_name(path)
    made = exact_files(graph, path.stem, flags, origin)
    write_text(path.with_suffix(".h"), made.header)
    write_text(path, made.source)
    return made


def exact_files(graph: IntegerGraph, stem: str, flags: bool = True, origin: str = "") -> CFiles:
    """The texts of a graph of codes.

    Parameters
    ----------
    graph : IntegerGraph
    stem : str
        Names that others see begin with it.
    flags : bool
        Say which accumulators have too many bits. Without it they become the least or greatest number that has not.
    origin : str
        SHA-256 of the model, in hexadecimal; empty if it is not known.

    Raises
    ------
    ValueError
        If an operation has no form in C, or a size is open that is not the number of samples.
    """
    check_operations(graph)
    return _ExactWriter(graph, stem, flags, origin).files()


class _ExactWriter:
    """Writes the files of one graph."""

    def __init__(self, graph: IntegerGraph, stem: str, flags: bool, origin: str):
        self.stem, self.flagged, self.origin = stem, flags, origin
        names = file_names()
        self.plan, self.unit = plan(graph, names), Unit(names)
        self._functions = Names({*C_WORDS, f"{stem}_run", f"{stem}_run_all"}, LONGEST_WORD)
        self._calls: list[str] = []
        self._flag_places: list[str] = []

    def files(self) -> CFiles:
        """Both texts."""
        functions = [self._written(step) for step in range(len(self.plan.steps))]
        own = [buffer for function in functions for buffer in function.scratch]
        narrow = [buffer for buffer in (*self.plan.buffers, *own) if not _is_wide(buffer)]
        wide = [buffer for buffer in (*self.plan.buffers, *own) if _is_wide(buffer)]
        sizes = {_ARENA: place(narrow), _WIDE: place(wide)}
        texts = [self._text(function) for function in functions]
        body = "\n\n".join([*self.unit.functions, *texts, *self._run()])
        arrays = {_ARENA: ("uint16", sizes[_ARENA] // 2), _WIDE: ("int32", sizes[_WIDE] // 4)}
        buffers = [f"static {kind}_t {name}[{count}] CONCORD_ARENA;" for name, (kind, count) in arrays.items() if count]
        buffer_text = "\n".join(["/* All buffers. */", *buffers]) if buffers else ""
        ram = sum(sizes.values())
        parts = [source_head(self.stem), *called(body), *self.unit.constants, buffer_text, body]
        source = "\n\n".join(part for part in parts if part) + "\n"
        places = self._flag_places if self.flagged else None
        text = exact_header(self.plan, self.stem, ram, self.unit.rom, places, self.origin)
        return CFiles(text, source, ram, sum(self.unit.rom.values()))

    def _written(self, step: int) -> ExactFunction:
        operation, tensors = self.plan.steps[step], self.plan.tensors
        sources = [tensors[name] for name in operation.inputs]
        function = ExactFunction(self.unit, operation, step, sources, tensors[operation.output])
        write_operation(function, self.plan)
        return function

    def _text(self, function: ExactFunction) -> str:
        """The function of an operation; its call is kept."""
        operation, result = function.operation, function.result
        name = self._functions.new(self.stem, function.label or "operation")
        over = any(source.array is result.array or _together(source, result) for source in function.sources)
        restrict = "" if over else "restrict "
        arguments = [
            (f"const {source.array.kind}_t *{restrict}x{k}", self._pointer(source))
            for k, source in enumerate(function.sources)
        ]
        arguments.append((f"{result.array.kind}_t *{restrict}y", self._pointer(result)))
        if function.overflows and self.flagged:
            arguments.append(("uint8_t *flags", "flags"))
        lines = [f"/* {comment(operation.name or type(operation).__name__)}. */"]
        lines += [f"static void {name}({', '.join(text for text, _ in arguments)})", "{"]
        for buffer, own in function.scratch.items():
            lines.append(f"    {buffer.kind}_t *const {own} = {_start(buffer)};")
        if function.overflows:
            lines.append("    unsigned raised = 0;")
        lines += function.lines.lines
        if function.overflows and self.flagged:
            number = len(self._flag_places)
            self._flag_places.append(operation.name or "operation")
            flag = f"{self.stem.upper()}_{ACC_OVERFLOW}"
            lines.append(f"    flags[{number}] = (uint8_t)(flags[{number}] | (raised ? {flag} : 0));")
        elif function.overflows:
            lines.append("    (void)raised;")
        self._calls.append(f"{name}({', '.join(text for _, text in arguments)});")
        return "\n".join([*lines, "}"])

    def _pointer(self, tensor: CodeTensor) -> str:
        """An expression in the function that calls all others."""
        array = tensor.array
        match array.place:
            case Place.INPUT:
                return f"inputs->{array.name}"
            case Place.OUTPUT:
                return f"outputs->{array.name}"
            case Place.CONSTANT:
                assert array.data is not None
                return self.unit.constant(array.data, array.kind, "CONCORD_TABLES", array.name, "codes")
        assert array.buffer is not None
        return _start(array.buffer, array.kind)

    def _run(self) -> list[str]:
        """The functions that call all others, and names of places."""
        calls = " ".join(self._calls)
        arguments = run_arguments(self.stem, self.flagged)
        words = ["inputs", "outputs", *["flags"] * self.flagged]
        lines = [f"void {self.stem}_run({arguments})", "{"]
        lines += [f"    (void){word};" for word in words if not re.search(rf"\b{word}\b", calls)]
        lines += [*(f"    {call}" for call in self._calls), "}"]
        texts = ["\n".join(lines), several_runs(self.stem, arguments, self.flagged)]
        return [places_text(self.stem, self._flag_places), *texts] if self.flagged else texts


def _is_wide(buffer: Buffer) -> bool:
    return buffer.kind == "int32"


def _together(source: CodeTensor, result: CodeTensor) -> bool:
    """True if both have the same place in the arena."""
    return source.array.buffer is not None and source.array.buffer is result.array.buffer


def _start(buffer: Buffer, kind: str = "") -> str:
    """A pointer to a buffer, for codes of a type."""
    kind = kind or buffer.kind
    if _is_wide(buffer):
        return f"{_WIDE} + {buffer.offset // 4}"
    start = f"{_ARENA} + {buffer.offset // 2}"
    return start if kind == "uint16" else f"({kind}_t *)({start})"
