"""The header of a quantised network in C on codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from concord.derive.c.header import guarded, memory_lines, name_lines, origin_lines
from concord.derive.c.texts import comment
from concord.derive.c_exact.tensors import CodeTensor, ExactPlan
from concord.integer.wide_numbers import WideNumbers
from concord.spec.formats import FLAG_BITS, Flag
from concord.transfer import Codes

#: The flag that there is.
ACC_OVERFLOW = next(name for name in FLAG_BITS if name == Flag.ACC_OVERFLOW.name)
#: Comment on wide numbers.
_WIDE = """/* A wide number is one of binary32 as an integer in the order of the numbers: the bits of its magnitude,
 * with its sign. The bits of the number are x < 0 ? 0x80000000u - (uint32_t)x : (uint32_t)x. */"""


def exact_header(
    plan: ExactPlan, stem: str, ram: int, rom: dict[str, int], flag_places: Sequence[str] | None, origin: str = ""
) -> str:
    """The text of the header; ``ram`` and ``rom`` are bytes, the latter by section, ``origin`` the model's SHA-256."""
    upper = stem.upper()
    ports = {**plan.inputs, **plan.outputs}
    lines = [
        *origin_lines(upper, origin),
        *memory_lines(upper, ram, rom),
        "\n/* Elements of inputs and outputs. */",
        *(f"#define {upper}_{tensor.array.name.upper()}_SIZE {tensor.size}" for tensor in ports.values()),
        *name_lines(upper, {tensor.array.name: name for name, tensor in ports.items()}),
        *_scale_lines(upper, ports.values()),
        "\n/* What a run takes, and gives. */",
        *[_WIDE] * any(isinstance(tensor.scheme, WideNumbers) for tensor in ports.values()),
        "typedef struct {",
        *([_member(name, tensor) for name, tensor in plan.inputs.items()] or ["    uint8_t nothing;"]),
        f"}} {stem}_inputs;\n",
        "typedef struct {",
        *([_member(name, tensor) for name, tensor in plan.outputs.items()] or ["    uint8_t nothing;"]),
        f"}} {stem}_outputs;\n",
    ]
    if flag_places is not None:
        lines += [
            "/* Sticky flags: a byte for every place, to which a run adds bits. The caller clears them. Places are",
            " * layers of which an accumulator might have too many bits, or a wide number be beyond binary32. */",
            f"#define {upper}_PLACES {len(flag_places)}",
            f"#define {upper}_{ACC_OVERFLOW} {FLAG_BITS[ACC_OVERFLOW]}",
            f"extern const char *const {stem}_places[];\n",
        ]
    arguments = run_arguments(stem, flag_places is not None)
    lines += [f"void {stem}_run({arguments});", f"void {stem}_run_all({arguments}, size_t count);\n"]
    head = [
        f"/* {comment(plan.graph.name) or 'A network'}: written by `concord derive --to c --exact`.",
        " *",
        " * Everything is codes, integers that stand for numbers. It needs neither floating point nor a library.",
        " * Buffers are static: one run at a time.",
        " */",
    ]
    return guarded(upper, head, lines)


def _scale_lines(upper: str, tensors: Iterable[CodeTensor]) -> list[str]:
    """Macros with scales and zero points; wide numbers have none."""
    lines = []
    for tensor in tensors:
        if isinstance(tensor.scheme, Codes):
            name = f"{upper}_{tensor.array.name.upper()}"
            lines += [
                f"#define {name}_SCALE {float(tensor.scheme.scale)!r}",
                f"#define {name}_ZERO {tensor.scheme.zero}",
            ]
    return ["\n/* A code stands for (code - ZERO) * SCALE. */", *lines] if lines else []


def run_arguments(stem: str, flagged: bool) -> str:
    """Arguments of a run."""
    return f"const {stem}_inputs *inputs, {stem}_outputs *outputs" + ", uint8_t *flags" * flagged


def _member(name: str, tensor: CodeTensor) -> str:
    shape = " x ".join(map(str, tensor.shape)) or "1"
    meaning = "wide numbers"
    if isinstance(tensor.scheme, Codes):
        meaning = f"(code - {tensor.scheme.zero}) * {float(tensor.scheme.scale):.9g}"
    return f"    {tensor.array.kind}_t {tensor.array.name}[{tensor.size}]; /* {comment(name)}: {shape}, {meaning} */"
