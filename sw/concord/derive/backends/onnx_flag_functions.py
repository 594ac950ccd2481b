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
    Numbers beyond the codes of a table; an end is infinite where the function is constant beyond it.
"""

from __future__ import annotations

from concord.spec.formats import BINARY16_MAX

_FINITE = f"""
    greatest = Constant <value = float {{{BINARY16_MAX}.0}}> ()
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


_SATURATED = """
    magnitude = Abs (finite)
    unit = Constant <value_float: float = @unit> ()
    codes = Constant <value_float: float = @codes> ()
"""


def flag_texts(finite: str, code: str, noisy: str) -> dict[str, tuple[str, str]]:
    """Signatures and bodies by name.

    Parameters
    ----------
    finite, code, noisy : str
        Lines that make ``finite`` of ``x``, as a converter or a table reads it; of that ``whole``, the code of a table
        that is not limited yet, beside its ends ``low`` and ``high``; and of ``magnitude``, ``unit`` and ``noise``
        what a stochastic rounding takes the floor of, ``noisy``, in units of ``1 / parts_of_unit``.
    """
    return {
        "AnyOfSample": ("(where) => (y)", """
            flat = Flatten <axis = 1> (where)
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
        "Saturated": ("<unit, codes> (x) => (y)", finite + _SATURATED + """
            one_half = Constant <value = float {0.5}> ()
            tie = Sub (codes, one_half)
            top = Mul (tie, unit)
            y = GreaterOrEqual (magnitude, top)
        """),
        "SaturatedStochastic": ("<unit, codes> (x, noise) => (y)", finite + _SATURATED + noisy + """
            real_codes = Cast <to = 11> (codes)
            top = Mul (real_codes, parts_of_unit)
            y = GreaterOrEqual (noisy, top)
        """),
        "TableClamped": ("<factor, low, high> (x) => (y)", finite + code + """
            under = Less (whole, low)
            over = Greater (whole, high)
            y = Or (under, over)
        """),
    }  # fmt: skip
