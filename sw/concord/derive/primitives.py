"""The vocabulary of derived software: what its files compute with, by the same names.

Files of NumPy and of PyTorch have a function of the name of each primitive that they need (``half_add``), ONNX graphs
have one in the spelling of ONNX (``HalfAdd``). A *half* is a binary16 number in float32; a block has the values of its
numbers, mantissa times power of two, which are such numbers, too; an exact sum is float64. Any NaN stands for the
canonical one.

half_add, half_sub, half_mul, half_max, half_min, half_relu
    Operations of the multifunction units: those of :mod:`concord.operations`.
half_reduce_max
    The greatest element along an axis, which goes away. ONNX graphs call HalfMax for it.
half_table
    ``entries[clamp(rne(x * factor), low, high) - low]``; an infinity counts as +-65504, a NaN as 0.
block_quantize
    Blocks (last axis) to their numbers with dynamic exponents. ``least`` are the least powers of two of the blocks,
    ``share`` is what a code has of the power of two at or below the greatest element.
static_quantize
    The same with a static exponent, of elements in any shape.
round_to_half
    Exact sums to halves: one rounding, nearest even; an exact zero gives +0. In ONNX round_single_to_half is the same
    for sums that float32 holds.
round_sum_to_half
    The same for sums of two numbers, whose second one is at most half a unit in the last place of the first.
sum_of_two, sum_of_three
    float64 numbers as their rounded sum and what it leaves: of that, the sign and enough for round_sum_to_half.
real_to_half, half_to_real
    float64 to halves, rounded once: -0, infinities and NaN stay what they are, numbers beyond become infinities. Halves
    to float64.
beyond, beyond_sum
    Whether an accumulator for ``-limit <= sum < limit`` cuts sums off, as one number or two as for round_sum_to_half.
infinite, overflowed
    Whether numbers are infinities; whether these come from finite operands.
not_finite
    Whether numbers are infinities or NaNs, of which a converter or a table makes something else.
saturated
    Whether a static exponent rounds numbers to ``codes`` units or more, which no mantissa holds; or whether numbers ask
    for an exponent beyond the greatest one: then that is half a unit of one code.
table_clamped
    Whether numbers are beyond the codes of a table; an end is infinite where the function is constant beyond it.

What rounds is to the nearest, even or away from zero, or has 16 bits of noise for every element:
``(floor(|x| * 2**16 / unit) + noise) >> 16``. In Python the rounding is an argument; ONNX has a function for each,
whose name ends in ``Away`` or ``Stochastic``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from concord.operations import OPERATIONS
from concord.spec.formats import Flag


@dataclass(frozen=True)
class Primitive:
    """A function of derived software.

    Parameters
    ----------
    name : str
        In Python.
    operands, attributes : tuple of str
        Its arguments: tensors, and numbers that are known when the file is written.
    raises : mapping of Flag to str
        What may raise a flag, and the primitive that says where.
    results : tuple of str
        Names of what it gives.
    """

    name: str
    operands: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    raises: Mapping[Flag, str] = field(default_factory=dict)
    results: tuple[str, ...] = ("y",)

    @property
    def onnx(self) -> str:
        """Name of the primitive in ONNX."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_READ = {Flag.NONFINITE: "not_finite"}
_SUM = {Flag.ACC_OVERFLOW: "beyond", Flag.HALF_OVERFLOW: "infinite"}

#: By name.
PRIMITIVES = {
    primitive.name: primitive
    for primitive in (
        *(
            Primitive(
                operation.primitive,
                ("a", "b") if operation.combines else ("x",),
                raises={Flag.HALF_OVERFLOW: "overflowed"} if operation.rounds else {},
            )
            for operation in OPERATIONS.values()
        ),
        Primitive("half_reduce_max", ("x",), ("axis",)),
        Primitive(
            "half_table", ("x", "entries"), ("factor", "low", "high"), _READ | {Flag.TABLE_CLAMPED: "table_clamped"}
        ),
        Primitive("block_quantize", ("x", "least"), ("share", "greatest_code"), _READ | {Flag.SATURATED: "saturated"}),
        Primitive("static_quantize", ("x",), ("unit", "greatest_code"), _READ | {Flag.SATURATED: "saturated"}),
        Primitive("round_to_half", ("total",), raises=_SUM),
        Primitive("round_single_to_half", ("total",), raises=_SUM),
        Primitive("round_sum_to_half", ("total", "rest"), raises=_SUM | {Flag.ACC_OVERFLOW: "beyond_sum"}),
        Primitive("sum_of_two", ("a", "b"), results=("total", "rest")),
        Primitive("sum_of_three", ("a", "b", "c"), results=("total", "rest")),
        Primitive("real_to_half", ("x",)),
        Primitive("half_to_real", ("x",)),
        Primitive("beyond", ("total",), ("limit",)),
        Primitive("beyond_sum", ("total", "rest"), ("limit",)),
        Primitive("infinite", ("x",)),
        Primitive("overflowed", ("x", "a", "b")),
        Primitive("not_finite", ("x",)),
        Primitive("saturated", ("x",), ("unit", "codes")),
        Primitive("table_clamped", ("x",), ("factor", "low", "high")),
    )
}
