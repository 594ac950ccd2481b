"""The files of a quantised network in C on codes: ``net.c`` and ``net.h``."""

from __future__ import annotations

from pathlib import Path

from concord.derive.c.file import CFiles, FileWriter, check_file_name, file_names
from concord.derive.c.header import HeaderPort, HeaderText
from concord.derive.c.memory import placed_in_arrays, start_of
from concord.derive.c.storage import Place
from concord.derive.c.texts import comment
from concord.derive.c.unit import TABLES
from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.operations import check_operations, write_operation
from concord.derive.c_exact.tensors import CodeTensor, plan
from concord.integer.graph import IntegerGraph
from concord.integer.wide_numbers import WideNumbers
from concord.spec.formats import FLAG_BITS, Flag
from concord.transfer import Codes

#: The flag that there is.
_ACC_OVERFLOW = next(name for name in FLAG_BITS if name == Flag.ACC_OVERFLOW.name)
_ABOUT = """/* {name}: written by `concord derive --to c --exact`.
 *
 * Everything is codes, integers that stand for numbers. It needs neither floating point nor a library.
 * Buffers are static: one run at a time.
 */"""
#: Comment on wide numbers.
_WIDE = """
/* A wide number is one of binary32 as an integer in the order of the numbers: the bits of its magnitude,
 * with its sign. The bits of the number are x < 0 ? 0x80000000u - (uint32_t)x : (uint32_t)x. */"""
_FLAGS = """/* Sticky flags: a byte for every place, to which a run adds bits. The caller clears them. Places are
 * layers of which an accumulator might have too many bits, or a wide number be beyond binary32. */"""


def write_exact(graph: IntegerGraph, path: Path, flags: bool = True, origin: str = "") -> CFiles:
    """Write ``path``, a file like ``net.c``, and the header of the same name beside it.

    ``ValueError`` as of :func:`exact_files`, and for another name.
    """
    check_file_name(path)
    made = exact_files(graph, path.stem, flags, origin)
    made.write(path)
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
    names = file_names()
    tensors, file = plan(graph, names), FileWriter(stem, names)
    written = []
    for step, operation in enumerate(tensors.steps):
        sources = [tensors.tensors[name] for name in operation.inputs]
        written.append(ExactFunction(file.unit, operation, step, sources, tensors.tensors[operation.output]))
        write_operation(written[-1], tensors)
    scratch = [buffer for function in written for buffer in function.scratch]
    ram, arrays = placed_in_arrays([*tensors.buffers, *scratch])
    places: list[str] = []
    for function in written:
        _add_function(file, function, places if flags else None)
    flag_places = places if flags else None
    source, rom = file.text(arrays, flag_places, (), ()), file.unit.rom
    inputs = [_port(name, tensor) for name, tensor in tensors.inputs.items()]
    outputs = [_port(name, tensor) for name, tensor in tensors.outputs.items()]
    wide = any(
        isinstance(tensor.scheme, WideNumbers) for tensor in (*tensors.inputs.values(), *tensors.outputs.values())
    )
    header = HeaderText(
        stem=stem,
        head=_ABOUT.format(name=comment(graph.name) or "A network"),
        origin=origin,
        rom=rom,
        ram=ram,
        inputs=inputs,
        outputs=outputs,
        numbers="/* A code stands for (code - ZERO) * SCALE. */",
        run="/* What a run takes, and gives. */" + _WIDE * wide,
        flag_places=flag_places,
        flags=_FLAGS,
        bits={_ACC_OVERFLOW: FLAG_BITS[_ACC_OVERFLOW]},
    )
    return CFiles(header.text(), source, ram, sum(rom.values()), tuple(places))


def _add_function(file: FileWriter, function: ExactFunction, places: list[str] | None) -> None:
    """Adds the function of an operation, and the place of its flags."""
    operation, result = function.operation, function.result
    over = any(source.array is result.array or _together(source, result) for source in function.sources)
    restrict = "" if over else "restrict "
    parameters = {
        f"const {source.array.kind}_t *{restrict}x{k}": _pointer(file, source)
        for k, source in enumerate(function.sources)
    }
    parameters[f"{result.array.kind}_t *{restrict}y"] = _pointer(file, result)
    lines = [f"    {buffer.kind}_t *const {own} = {start_of(buffer)};" for buffer, own in function.scratch.items()]
    if function.overflows:
        lines.append("    unsigned raised = 0;")
    lines += function.lines.lines
    if function.overflows and places is not None:
        parameters["uint8_t *flags"] = "flags"
        number, flag = len(places), f"{file.stem.upper()}_{_ACC_OVERFLOW}"
        places.append(operation.name or "operation")
        lines.append(f"    flags[{number}] = (uint8_t)(flags[{number}] | (raised ? {flag} : 0));")
    elif function.overflows:
        lines.append("    (void)raised;")
    file.add(function.label or "operation", f"{operation.name or type(operation).__name__}.", parameters, lines)


def _pointer(file: FileWriter, tensor: CodeTensor) -> str:
    """An expression in the function that calls all others."""
    array = tensor.array
    match array.place:
        case Place.INPUT:
            return f"inputs->{array.name}"
        case Place.OUTPUT:
            return f"outputs->{array.name}"
        case Place.CONSTANT:
            assert array.data is not None
            return file.unit.constant(array.data, array.kind, TABLES, array.name, "codes")
    assert array.buffer is not None
    return start_of(array.buffer, array.kind)


def _together(source: CodeTensor, result: CodeTensor) -> bool:
    """True if both have the same place in the arena."""
    return source.array.buffer is not None and source.array.buffer is result.array.buffer


def _port(name: str, tensor: CodeTensor) -> HeaderPort:
    """An input or output; wide numbers have neither scale nor zero point."""
    array, scheme = tensor.array, tensor.scheme
    if not isinstance(scheme, Codes):
        return HeaderPort(name, array.name, array.kind, tensor.shape, "wide numbers")
    meaning = f"(code - {scheme.zero}) * {float(scheme.scale):.9g}"
    numbers = {"SCALE": repr(float(scheme.scale)), "ZERO": scheme.zero}
    return HeaderPort(name, array.name, array.kind, tensor.shape, meaning, numbers)
