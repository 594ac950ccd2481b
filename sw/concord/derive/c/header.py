"""The header of a network in C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from concord.derive import ir
from concord.derive.c.plan import CPlan, PreparedInput
from concord.derive.c.ports import input_declarations, output_declaration
from concord.derive.c.storage import CArray
from concord.derive.c.texts import comment, literal
from concord.derive.c.unit import TABLES, WEIGHTS
from concord.spec.formats import FLAG_BITS


def header(
    model: ir.Model, plan: CPlan, stem: str, ram: int, rom: dict[str, int], flag_places: Sequence[str] | None
) -> str:
    """The text of the header; ``ram`` and ``rom`` are bytes, the latter by section."""
    upper = stem.upper()
    samples = "a run" if model.group == 1 else f"a run, which is {model.group} samples together,"
    flagged = flag_places is not None
    ports = [*((some.name, some.storage) for some in plan.inputs), *plan.outputs]
    sizes = [(storage.name, storage.size) for _, storage in ports]
    head = [
        f"/* {comment(model.name) or 'A program'}: written by `concord derive --to c`.",
        " *",
        " * Numbers are binary16 patterns of IEEE 754. It needs neither floating point nor a library. Buffers are",
        " * static: one run at a time.",
        " */",
    ]
    lines = [
        *origin_lines(upper, model.origin),
        *memory_lines(upper, ram, rom),
        f"\n/* Samples of a run. */\n#define {upper}_SAMPLES {model.group}",
        "\n/* Elements of inputs and outputs. */",
        *(f"#define {upper}_{name.upper()}_SIZE {size}" for name, size in sizes),
        *name_lines(upper, {storage.name: name for name, storage in ports}),
        *_grid_lines(upper, plan.inputs),
        f"\n/* What {samples} takes, and gives. */",
        "typedef struct {",
        *([_member(some.storage, some.name, _grid(some)) for some in plan.inputs] or ["    uint16_t nothing;"]),
        f"}} {stem}_inputs;\n",
        "typedef struct {",
        *([_member(storage, name) for name, storage in plan.outputs] or ["    uint16_t nothing;"]),
        f"}} {stem}_outputs;\n",
    ]
    if flag_places is not None:
        lines += [
            "/* Sticky flags: a byte for every place, to which a run adds bits. The caller clears them. */",
            f"#define {upper}_PLACES {len(flag_places)}",
            *(f"#define {upper}_{name} {bit}" for name, bit in FLAG_BITS.items()),
            f"extern const char *const {stem}_places[];\n",
        ]
    lines += [
        f"void {stem}_run({run_arguments(stem, flagged)});",
        f"void {stem}_run_all({run_arguments(stem, flagged)}, size_t count);\n",
    ]
    if plan.inputs:
        lines += [
            "/* Inputs from patterns of binary64 and binary32, as memcpy of doubles and floats gives them; 0 if a",
            " * number is not finite, or infinite in binary16. */",
            *(f"{text};" for some in plan.inputs for text in input_declarations(stem, some)),
            "",
        ]
    if plan.outputs:
        lines += [
            "/* Outputs as patterns of binary32. */",
            *(f"{output_declaration(stem, storage)};" for _, storage in plan.outputs),
            "",
        ]
    return guarded(upper, head, lines)


def origin_lines(upper: str, origin: str) -> list[str]:
    """A macro with the SHA-256 of what a network was made of, if that is known."""
    if not origin:
        return []
    return [f'/* SHA-256 of the model that it was made of. */\n#define {upper}_MODEL_SHA256 "{origin}"\n']


def name_lines(upper: str, names: Mapping[str, str]) -> list[str]:
    """Macros with the names that the model has for inputs and outputs, by their names in C."""
    macros = [f"#define {upper}_{word.upper()}_NAME {literal(name)}" for word, name in names.items()]
    return ["\n/* Their names in the model. */", *macros] if macros else []


def _grid_lines(upper: str, inputs: Sequence[PreparedInput]) -> list[str]:
    """Macros with the codes that inputs are rounded to."""
    lines = []
    for some in inputs:
        if some.prepare is not None and some.prepare.grid is not None:
            exponent, least, greatest = some.prepare.grid
            values = {"SCALE": repr(2.0**exponent), "LEAST": least, "GREATEST": greatest}
            lines += [f"#define {upper}_{some.storage.name.upper()}_{word} {value}" for word, value in values.items()]
    return ["\n/* Inputs that are rounded to codes, code * SCALE from LEAST to GREATEST. */", *lines] if lines else []


def memory_lines(upper: str, ram: int, rom: dict[str, int]) -> list[str]:
    """Macros with bytes of the buffers and of constants by section."""
    return [
        "/* Bytes of the buffers, of weights, of tables, and of both. */",
        f"#define {upper}_RAM {ram}",
        f"#define {upper}_WEIGHTS {rom[WEIGHTS]}",
        f"#define {upper}_TABLES {rom[TABLES]}",
        f"#define {upper}_ROM {sum(rom.values())}",
    ]


def guarded(upper: str, head: Sequence[str], lines: Sequence[str]) -> str:
    """A header of some lines, which may be included twice and in C++, after a comment."""
    return "\n".join(
        [
            *head,
            f"\n#ifndef {upper}_H\n#define {upper}_H\n",
            "#include <stddef.h>\n#include <stdint.h>\n",
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            *lines,
            "#ifdef __cplusplus\n}\n#endif",
            "\n#endif\n",
        ]
    )


def run_arguments(stem: str, flagged: bool) -> str:
    """Arguments of a run."""
    return f"const {stem}_inputs *inputs, {stem}_outputs *outputs" + ", uint8_t *flags" * flagged


def _member(storage: CArray, name: str, more: str = "") -> str:
    shape = " x ".join(map(str, storage.shape)) or "1"
    return f"    uint16_t {storage.name}[{storage.size}]; /* {comment(name)}: {shape}{more} */"


def _grid(some: PreparedInput) -> str:
    if some.prepare is None or some.prepare.grid is None:
        return ""
    exponent, least, greatest = some.prepare.grid
    return f", {least} to {greatest} times 2**{exponent}"
