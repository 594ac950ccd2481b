"""What raises the sticky flags of the NPU, as ONNX functions: part of :mod:`.onnx_functions`.

AnyOfSample
    Whether anything of a sample is true: 0 or 1, INT32 ``[samples]``.
Beyond, BeyondSum
    Sums that an accumulator for ``-limit <= sum < limit`` cuts off, as one DOUBLE or as two as for RoundSumToHalf.
Infinite, Overflowed
    Infinities; infinities that come from finite operands.
NotFinite
    Infinities and NaNs, of which a converter or a table makes something else.
Saturated, SaturatedStochastic
    Numbers that a static exponent rounds to ``codes`` units or more, which no mantissa holds: to the nearest, or with
    noise.
TableClamped
    Numbers beyond the codes of a table; an end is infinite where the function is settled.
"""

from __future__ import annotations

from concord.spec.formats import HALF_MAX

_FINITE = f"""
    greatest = Constant <value = float {{{HALF_MAX}.0}}> ()
    FOR_size = Abs (FOR)
    FOR_finite = LessOrEqual (FOR_size, greatest)
"""

#: The same of another number.
_OTHER = _FINITE.split("\n", 2)[2]

_LIMITS = """
    limit_single = Constant <value_float: float = @limit> ()
    limit = Cast <to = 11> (limit_single)
    minus_limit = Neg (limit)
"""


def _size(finite: str) -> str:
    return finite + "size = Abs (finite)\n"


def flag_texts(finite: str) -> dict[str, tuple[str, str]]:
    """Signatures and bodies by name; ``finite`` are lines that make ``finite`` of ``x``."""
    return {
        "AnyOfSample": ("(where) => (y)", """
            shape = Constant <value = int64[2] {0, -1}> ()
            flat = Reshape (where, shape)
            whole = Cast <to = 6> (flat)
            axis = Constant <value = int64[1] {1}> ()
            y = ReduceMax <keepdims = 0> (whole, axis)
        """),
        "Beyond": ("<limit> (sum) => (y)", _LIMITS + """
            below = Less (sum, minus_limit)
            above = GreaterOrEqual (sum, limit)
            y = Or (below, above)
        """),
        "BeyondSum": ("<limit> (sum, rest) => (y)", _LIMITS + """
            zero = Constant <value = double {0.0}> ()
            negative = Less (rest, zero)
            positive = GreaterOrEqual (rest, zero)
            low = Equal (sum, minus_limit)
            high = Equal (sum, limit)
            just_below = And (low, negative)
            just_above = And (high, positive)
            below = Less (sum, minus_limit)
            above = Greater (sum, limit)
            far = Or (below, above)
            near = Or (just_below, just_above)
            y = Or (far, near)
        """),
        "Infinite": ("(x) => (y)", "y = IsInf (x)"),
        "Overflowed": ("(x, a, b) => (y)", _FINITE.replace("FOR", "a") + _OTHER.replace("FOR", "b") + """
            infinite = IsInf (x)
            both = And (a_finite, b_finite)
            y = And (infinite, both)
        """),
        "NotFinite": ("(x) => (y)", _FINITE.replace("FOR", "x") + "y = Not (x_finite)"),
        "Saturated": ("<unit, codes> (x) => (y)", _size(finite) + """
            unit = Constant <value_float: float = @unit> ()
            codes = Constant <value_float: float = @codes> ()
            one_half = Constant <value = float {0.5}> ()
            tie = Sub (codes, one_half)
            top = Mul (tie, unit)
            y = GreaterOrEqual (size, top)
        """),
        "SaturatedStochastic": ("<unit, codes> (x, noise) => (y)", _size(finite) + """
            unit = Constant <value_float: float = @unit> ()
            codes = Constant <value_float: float = @codes> ()
            real = Cast <to = 11> (size)
            real_unit = Cast <to = 11> (unit)
            real_codes = Cast <to = 11> (codes)
            ratio = Div (real, real_unit)
            parts_of_unit = Constant <value = double {65536.0}> ()
            scaled = Mul (ratio, parts_of_unit)
            fine = Floor (scaled)
            noisy = Add (fine, noise)
            top = Mul (real_codes, parts_of_unit)
            y = GreaterOrEqual (noisy, top)
        """),
        "TableClamped": ("<factor, low, high> (x) => (y)", finite + """
            factor = Constant <value_float: float = @factor> ()
            low = Constant <value_float: float = @low> ()
            high = Constant <value_float: float = @high> ()
            scaled = Mul (finite, factor)
            code = Round (scaled)
            under = Less (code, low)
            over = Greater (code, high)
            y = Or (under, over)
        """),
    }  # fmt: skip
