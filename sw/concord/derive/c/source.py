"""The files of a network in C: ``net.c`` and ``net.h``."""

from __future__ import annotations

import re
from pathlib import Path

from concord.derive import ir
from concord.derive.c.file import CFiles, FileWriter, check_file_name, file_names
from concord.derive.c.header import HeaderPort, HeaderText
from concord.derive.c.memory import placed_in_arrays, start_of
from concord.derive.c.places import Scope
from concord.derive.c.plan import CPlan, LayerSteps, local_values
from concord.derive.c.planner import plan
from concord.derive.c.ports import input_declarations, input_functions, output_declaration, output_functions
from concord.derive.c.steps import StepWriter
from concord.derive.c.storage import CArray
from concord.derive.c.texts import comment
from concord.spec.formats import FLAG_BITS

_ABOUT = """/* {name}: written by `concord derive --to c`.
 *
 * Numbers are binary16 patterns of IEEE 754. It needs neither floating point nor a library. Buffers are
 * static: one run at a time.
 */"""


def write_c(model: ir.Model, path: Path) -> None:
    """Write ``path``, a file like ``net.c``, and the header of the same name beside it.

    ``ValueError`` for a model with parts that the host computes, or with an operation that has no form in C.
    """
    check_file_name(path)
    c_files(model, path.stem).write(path)


def c_files(model: ir.Model, stem: str) -> CFiles:
    """The texts of a model; names that others see begin with ``stem``."""
    for graph, where in ((model.front, "in front of"), (model.host_partition, "behind")):
        if graph is not None:
            words = ", ".join(dict.fromkeys(node.op for node in graph.nodes))
            raise ValueError(
                f"{model.name or 'model'} must have nothing in C that the host computes {where} the NPU, not {words}; "
                "--npu-part leaves it out"
            )
    names, flags = file_names(), model.flags
    steps, file = plan(model, names), FileWriter(stem, names)
    places = None if flags is None else flags.places
    writer = StepWriter(file.unit, places or (), local_values(steps))
    scopes = [writer.layer(layer) for layer in steps.layers]
    ram, arrays = placed_in_arrays(file.unit.buffers)
    for layer, scope in zip(steps.layers, scopes, strict=True):
        _add_layer(file, layer, scope, list(places or ()))
    ports = [input_functions(stem, some, file.unit) for some in steps.inputs]
    ports += [output_functions(stem, storage) for _, storage in steps.outputs]
    always = [] if flags is None else [flags.always.get(where, 0) for where in flags.places]
    source = file.text(arrays, places, always, ports)
    rom = file.unit.rom
    return CFiles(_header(model, steps, stem, ram, rom), source, ram, sum(rom.values()), places or ())


def _add_layer(file: FileWriter, layer: LayerSteps, scope: Scope, flag_places: list[str]) -> None:
    """Adds the function of a layer."""
    pcs = sorted({pc for node in layer.nodes for pc in node.pcs})
    about = f"Layer {layer.layer}." if layer.layer else "A part of the program."
    about += f" Chains at {', '.join(map(str, pcs))}." if pcs else ""
    parameters = {
        f"const {file.stem}_inputs *inputs": "inputs" if scope.inputs else "",
        f"{file.stem}_outputs *outputs": "outputs" if scope.outputs else "",
        "uint8_t *flags": "flags" if scope.places else "",
    }
    body = scope.lines.lines
    words = {*re.findall(r"\w+", "\n".join(body))}
    lines = [
        f"    {buffer.kind}_t *const {buffer.name} = {start_of(buffer)};"
        for buffer in scope.buffers
        if buffer.name in words
    ]
    lines += [f"    const uint16_t *const {some.name} = inputs->{some.name};" for some in scope.inputs]
    lines += [f"    uint16_t *const {some.name} = outputs->{some.name};" for some in scope.outputs]
    lines += [f"    unsigned {variable} = 0;" for variable in scope.places.values()]
    lines += body
    for where, variable in scope.places.items():
        number = flag_places.index(where)
        lines.append(f"    flags[{number}] = (uint8_t)(flags[{number}] | {variable});")
    used = {declaration: word for declaration, word in parameters.items() if word}
    file.add(layer.layer or "program", about, used, lines)


def _header(model: ir.Model, steps: CPlan, stem: str, ram: int, rom: dict[str, int]) -> str:
    """The text of the header."""
    samples = "a run" if model.group == 1 else f"a run, which is {model.group} samples together,"
    functions = []
    if steps.inputs:
        functions += [
            "/* Inputs from patterns of binary64 and binary32, as memcpy of doubles and floats gives them; 0 if a",
            " * number is not finite, or infinite in binary16. */",
            *(f"{text};" for some in steps.inputs for text in input_declarations(stem, some)),
            "",
        ]
    if steps.outputs:
        functions += [
            "/* Outputs as patterns of binary32. */",
            *(f"{output_declaration(stem, storage)};" for _, storage in steps.outputs),
            "",
        ]
    return HeaderText(
        stem=stem,
        head=_ABOUT.format(name=comment(model.name) or "A program"),
        origin=model.origin,
        rom=rom,
        ram=ram,
        settings=[f"\n/* Samples of a run. */\n#define {stem.upper()}_SAMPLES {model.group}"],
        inputs=[_port(some.name, some.storage, some.prepare) for some in steps.inputs],
        outputs=[_port(name, storage) for name, storage in steps.outputs],
        numbers="/* Inputs that are rounded to codes, code * SCALE from LEAST to GREATEST. */",
        run=f"/* What {samples} takes, and gives. */",
        flag_places=None if model.flags is None else model.flags.places,
        flags="/* Sticky flags: a byte for every place, to which a run adds bits. The caller clears them. */",
        bits=FLAG_BITS,
        functions=functions,
    ).text()


def _port(name: str, storage: CArray, prepare: ir.Prepare | None = None) -> HeaderPort:
    """An input or output, with the codes that it is rounded to."""
    if prepare is None or prepare.grid is None:
        return HeaderPort(name, storage.name, "uint16", storage.shape)
    exponent, least, greatest = prepare.grid
    numbers = {"SCALE": repr(2.0**exponent), "LEAST": least, "GREATEST": greatest}
    meaning = f"{least} to {greatest} times 2**{exponent}"
    return HeaderPort(name, storage.name, "uint16", storage.shape, meaning, numbers)
