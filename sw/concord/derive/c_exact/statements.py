"""Values as text of C: expressions, with statements in front of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.rounding import FixedScale, binary32_literal
from concord.derive.c_exact.values import Expression
from concord.integer.float32 import Binary32, Integers
from concord.integer.wide import integers_of

#: Characters from which on an expression is a statement of its own.
_LONG = 60
#: Heads of values of binary32 that are exact integers times a scale, still to be rounded.
SCALED = "scaled"
#: Heads of sums of numbers of binary32, which have a name of that type.
NUMBER = "number"
#: Types of constants.
_KINDS = ("int8", "uint8", "int16", "uint16", "int32", "int64")
#: Functions of integers of 32 bits.
_NARROW = ("fixed_point_product", "high_product", "divided", "reciprocal", "interpolated", "interpolated_reciprocal")
#: Functions of numbers of binary32, and those of wide numbers.
_WIDE = {"binary32_sum": "wide_numbers_sum", "binary32_product": "wide_numbers_product"}


def kind_of(values: Integers, kinds: tuple[str, ...] = _KINDS) -> str:
    """The smallest type of integers that holds them, without ``_t``."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    return next(kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)


class Statements:
    """Writes values.

    Parameters
    ----------
    function : ExactFunction
    elements : dict of Expression to str
        What elements of sources are called; of constants, the number of the element.

    prefix : str
        What the names of variables begin with.

    Members
    -------
    lines : list of str
        Statements in front.
    """

    def __init__(self, function: ExactFunction, elements: Mapping[Expression, str], prefix: str = "v") -> None:
        self._function, self._elements, self._prefix = function, elements, prefix
        self.lines: list[str] = []

    def code(self, value: Expression, kind: str) -> str:
        """A value as an integer of a type."""
        text = self._wide(value) if value.real else self.integer(value)
        return text if kind == "int32" and not value.wide else f"({kind}_t){_factor(text, value)}"

    def integer(self, value: Expression) -> str:
        """An integer."""
        match value:
            case Expression(source=None, head="+" | "-" | "*", parts=(a, b)):
                text = self._infix(value, a, b)
            case Expression(source=None, head="[]", parts=(index,), extra=(table,)):
                text = f"{table}[{self.integer(index)}]"
            case Expression(source=None, head="requantised", parts=(scaled,)):
                text = self._requantised(scaled, value.extra)
            case Expression(source=None, head="binary32_integer", parts=(number,)):
                text = f"binary32_integer({self.number(number)})"
            case Expression(source=None):
                text = self._call(value)
            case _:
                return self._element(value)
        return self._named(text, "int64_t" if value.wide else "int32_t")

    def _named(self, text: str, kind: str) -> str:
        """A name for a long text."""
        if len(text) < _LONG:
            return text
        name = f"{self._prefix}{len(self.lines)}"
        self.lines.append(f"const {kind} {name} = {text};")
        return name

    def _infix(self, value: Expression, a: Expression, b: Expression) -> str:
        if value.head == "+" and b.literal is not None and b.low < 0:
            return f"{self._operand(value, a)} - {-int(b.low)}"
        if value.head == "-" and b.literal is not None and b.low < 0:
            return f"{self._operand(value, a)} + {-int(b.low)}"
        first = self._operand(value, a)
        second = self.integer(b)
        return f"{first} {value.head} {second if value.head == '+' else _factor(second, b)}"

    def _operand(self, value: Expression, a: Expression) -> str:
        """The first operand, in 64 bits if the result has them."""
        text = self.integer(a)
        cast = value.wide and not any(part.wide for part in value.parts)
        return f"(int64_t){_factor(text, a)}" if cast else text if value.head != "*" else _factor(text, a)

    def _call(self, value: Expression) -> str:
        self._function.overflows |= "&raised" in value.extra
        narrow = value.head in _NARROW
        parts = [self.integer(part) for part in value.parts]
        parts = [
            f"(int32_t){_factor(text, part)}" if narrow and part.wide else text
            for text, part in zip(parts, value.parts, strict=True)
        ]
        return f"{value.head}({', '.join([*parts, *value.extra])})"

    def _element(self, value: Expression) -> str:
        assert value.source is not None
        constant = value.source.constant
        if constant is None:
            return self._elements[value]
        if value.literal is not None:
            number = int(value.literal)
            return str(number) if value.fits else f"INT64_C({number})"
        return self._of_constant(value, constant, value.text)

    def _of_constant(self, value: Expression, values: Integers, word: str, kind: str = "") -> str:
        if (values == values[0]).all():
            return str(int(values[0]))
        return f"{self._function.weights(values, kind or kind_of(values), word)}[{self._elements[value]}]"

    # ---- Numbers of binary32.

    def _requantised(self, scaled: Expression, extra: tuple[str, ...]) -> str:
        """Code of an exact integer times a scale, by way of binary32."""
        number, scale = scaled.parts
        assert scale.source is not None and scale.source.constant is not None
        fixed = FixedScale.of(scale.source.constant)
        single = power_of_two(scale)
        if single is not None:
            fixed = FixedScale(np.array([1]), np.array([-single]))
        text = _factor(self.integer(number), number)
        significand = self._of_constant(scale, fixed.significands, "scales")
        if significand != "1":
            text = f"{'' if number.wide else '(int64_t)'}{text} * {significand}"
        return f"requantised({text}, {self._of_constant(scale, fixed.shifts, 'shifts', 'uint8')}, {', '.join(extra)})"

    def number(self, value: Expression) -> str:
        """A number of the type ``binary32``."""
        if value.source is not None and value.source.constant is not None:
            whole = value.source.constant.astype(np.int64)
            same = (whole == value.source.constant).all()
            numbers = Binary32.of_integers(whole) if same else Binary32.of(value.source.constant)
            if value.literal is not None:
                return binary32_literal(numbers[0])
            mantissa, exponent = (
                self._of_constant(value, part, word)
                for part, word in ((numbers.mantissa, value.text), (numbers.exponent, f"{value.text} exponents"))
            )
            return f"(binary32){{{mantissa}, {exponent}}}"
        if value.head == SCALED:
            number, *scales = value.parts
            text, exponent = self._scaled(number, scales)
            return self._named(f"binary32_rounded({text}, {exponent})", "binary32")
        if value.head == NUMBER:
            return self._elements[value]
        if value.head == "[]" and np.min(value.low) >= 0:
            return f"binary32_of_bits((uint32_t){self.integer(value)})"
        if value.head in ("finite", "[]", "-", "limited") or value.source is not None:
            return f"wide_number({self._wide(value)})"
        if not value.parts:
            return value.extra[0]
        parts = [self.number(part) if part.real else self.integer(part) for part in value.parts]
        return self._named(f"{value.head}({', '.join(parts)})", "binary32")

    def _scaled(self, number: Expression, scales: list[Expression]) -> tuple[str, str]:
        """An exact mantissa, and the exponent."""
        text = self.integer(number)
        if not scales:
            return text, "0"
        (scale,) = scales
        assert scale.source is not None and scale.source.constant is not None
        numbers = Binary32.of(scale.source.constant)
        if (single := power_of_two(scale)) is not None:
            return text, str(single)
        mantissa = self._of_constant(scale, numbers.mantissa, scale.text)
        exponent = self._of_constant(scale, numbers.exponent, f"{scale.text} exponents")
        return f"{'' if number.wide else '(int64_t)'}{_factor(text, number)} * {mantissa}", exponent

    def _wide(self, value: Expression) -> str:
        """A number of binary32 as an integer in the order of numbers."""
        if value.source is not None and value.source.constant is not None:
            return self._of_constant(value, integers_of(value.source.constant), value.text, "int32")
        if value.source is not None:
            return self._elements[value]
        match value:
            case Expression(head="finite", parts=(part,)):
                return self._wide(part)
            case Expression(head="[]"):
                return self.integer(value)
            case Expression(head="-", parts=(part,)):
                return f"-{self._wide(part)}"
            case Expression(head="limited", parts=(part,)):
                return f"limited({', '.join([self._wide(part), *value.extra])})"
        self._function.overflows = True
        if value.head == SCALED:
            number, *scales = value.parts
            if scales and scales[0].literal is None:
                rounded = self._named(f"wide_rounded({self.integer(number)}, 0, &raised)", "int32_t")
                text = f"wide_numbers_product({rounded}, {self._wide(scales[0])}, &raised)"
            else:
                text = f"wide_rounded({', '.join(self._scaled(number, scales))}, &raised)"
        else:
            text = f"{_WIDE[value.head]}({', '.join(self._wide(part) for part in value.parts)}, &raised)"
        return self._named(text, "int32_t")


def power_of_two(scale: Expression) -> int | None:
    """The exponent of a number that is a power of two by which integers are shifted 1 to 62 bits down."""
    if scale.literal is None:
        return None
    fraction, exponent = np.frexp(scale.literal)
    return int(exponent) - 1 if fraction == 0.5 and -62 <= exponent - 1 <= -1 else None


def _factor(text: str, value: Expression) -> str:
    """A text as an operand: in parentheses, if it is a sum, a difference or a product."""
    infix = value.source is None and value.head in ("+", "-", "*") and " " in text
    return f"({text})" if infix or text.startswith("-") else text
