"""Functions of C for inputs and outputs: numbers as binary16 patterns, and back; what the driver does to inputs."""

from __future__ import annotations

import numpy as np

from concord.derive.c.plan import PreparedInput
from concord.derive.c.storage import CArray
from concord.derive.c.unit import TABLES, Unit
from concord.utils.arrays import FloatArray, Ids


def input_declarations(stem: str, some: PreparedInput) -> list[str]:
    """Declarations of an input in a header."""
    name = some.storage.name
    return [
        f"int {stem}_{name}_from_doubles({stem}_inputs *inputs, const uint64_t *numbers)",
        f"int {stem}_{name}_from_floats({stem}_inputs *inputs, const uint32_t *numbers)",
    ]


def output_declaration(stem: str, storage: CArray) -> str:
    """Declaration of an output in a header."""
    return f"void {stem}_{storage.name}_to_floats(const {stem}_outputs *outputs, uint32_t *numbers)"


def input_functions(stem: str, some: PreparedInput, unit: Unit) -> str:
    """The functions of an input."""
    name, prepared = some.storage.name, f"{stem}_{some.storage.name}_half"
    steps = _preparation(some, unit)
    by_element = any("[k]" in step for step in steps)
    call = f"{prepared}(x, k)" if by_element else f"{prepared}(x)"
    doubles, singles = input_declarations(stem, some)
    head = [
        f"static uint16_t {prepared}(uint64_t x{', int32_t k' * by_element})",
        "{",
        *(f"    {step}" for step in steps),
        "    return half_of_real(x);",
        "}",
    ]
    texts = ["\n".join(head)]
    for declaration, value in ((doubles, "numbers[k]"), (singles, "real_of_single(numbers[k])")):
        lines = [
            declaration,
            "{",
            "    int fits = 1;",
            f"    for (int32_t k = 0; k < {some.storage.size}; ++k) {{",
            f"        const uint64_t x = {value};",
            "        fits &= real_fits(x);",
            f"        inputs->{name}[k] = {call};",
            "    }",
            "    return fits;",
            "}",
        ]
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def output_functions(stem: str, storage: CArray) -> str:
    """The functions of an output."""
    lines = [
        output_declaration(stem, storage),
        "{",
        f"    for (int32_t k = 0; k < {storage.size}; ++k) {{",
        f"        numbers[k] = single_of_half(outputs->{storage.name}[k]);",
        "    }",
        "}",
    ]
    return "\n".join(lines)


def _preparation(some: PreparedInput, unit: Unit) -> list[str]:
    """Statements of the driver for the number ``x``, which is the element ``k``."""
    node, storage, steps = some.prepare, some.storage, list[str]()
    if node is None:
        return steps
    if node.grid is not None:
        steps.append(f"x = on_grid(x, {', '.join(map(str, node.grid))});")
    if node.middles is not None:
        middles = _patterns(np.broadcast_to(node.middles, storage.shape))
        steps.append(
            f"x = real_sub(x, (uint64_t){unit.constant(middles, 'int64', TABLES, storage.name, 'middles')}[k]);"
        )
    if node.factors is not None:
        mantissas, powers = np.frexp(np.broadcast_to(node.factors, storage.shape))
        if (mantissas != 0.5).any():
            raise ValueError(f"factors of input {some.name} must be powers of two in C")
        steps.append(f"x = real_scaled(x, {unit.constant(powers - 1, 'int16', TABLES, storage.name, 'powers')}[k]);")
    if node.offset:
        steps.append(f"x = real_sub(x, {int(np.float64(node.offset).view(np.uint64)):#018x}u);")
    return steps


def _patterns(values: FloatArray) -> Ids:
    """Patterns of binary64."""
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
