"""Conditions of the sticky flags of the NPU, as ONNX functions: part of :mod:`.onnx_functions`."""

from __future__ import annotations

from concord.spec.formats import BINARY16_MAX, Rounding

_FINITE = f"""
    greatest = Constant <value = float {{{BINARY16_MAX}.0}}> ()
    FOR_size = Abs (FOR)
    FOR_finite = LessOrEqual (FOR_size, greatest)
"""

#: Lines of ``_FINITE`` for another number.
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


_ANY = """
    flat = Flatten <axis = 1> (where)
    whole = Cast <to = 6> (flat)
    axis = Constant <value = int64[1] {1}> ()
    y = ReduceMax <keepdims = 0> (whole, axis)
"""

#: 1 if anything of a sample is true, else 0: INT32 ``[samples]``.
ANY_OF_SAMPLE = {"AnyOfSample": ("(where) => (y)", _ANY)}


def flag_bodies(finite: str, code: str, noisy: str) -> dict[tuple[str, Rounding], str]:
    """Bodies by primitive and rounding.

    Parameters
    ----------
    finite, code, noisy : str
        Lines that make ``finite`` of ``x``, as a converter or a table reads it; of that ``whole``, the code of a table
        that is not limited yet, beside its ends ``low`` and ``high``; and of ``magnitude``, ``unit`` and ``noise``
        what a stochastic rounding takes the floor of, ``noisy``, in units of ``1 / parts_of_unit``.
    """
    return {
        ("beyond", Rounding.NEAREST_EVEN): f"""{_LIMITS}
            below = Less (total, minus_limit)
            above = GreaterOrEqual (total, limit)
            y = Or (below, above)
        """,
        ("beyond_sum", Rounding.NEAREST_EVEN): f"""{_LIMITS}
            zero = Constant <value = double {{0.0}}> ()
            negative = Less (rest, zero)
            positive = GreaterOrEqual (rest, zero)
            low = Equal (total, minus_limit)
            high = Equal (total, limit)
            just_below = And (low, negative)
            just_above = And (high, positive)
            below = Less (total, minus_limit)
            above = Greater (total, limit)
            far = Or (below, above)
            near = Or (just_below, just_above)
            y = Or (far, near)
        """,
        ("infinite", Rounding.NEAREST_EVEN): "y = IsInf (x)",
        ("overflowed", Rounding.NEAREST_EVEN): f"""{_FINITE.replace("FOR", "a")}{_OTHER.replace("FOR", "b")}
            infinite = IsInf (x)
            both = And (a_finite, b_finite)
            y = And (infinite, both)
        """,
        ("not_finite", Rounding.NEAREST_EVEN): _FINITE.replace("FOR", "x") + "y = Not (x_finite)",
        ("saturated", Rounding.NEAREST_EVEN): f"""{finite}{_SATURATED}
            middle = Constant <value = float {{0.5}}> ()
            tie = Sub (codes, middle)
            top = Mul (tie, unit)
            y = GreaterOrEqual (magnitude, top)
        """,
        ("saturated", Rounding.STOCHASTIC): f"""{finite}{_SATURATED}{noisy}
            real_codes = Cast <to = 11> (codes)
            top = Mul (real_codes, parts_of_unit)
            y = GreaterOrEqual (noisy, top)
        """,
        ("table_clamped", Rounding.NEAREST_EVEN): f"""{finite}{code}
            under = Less (whole, low)
            over = Greater (whole, high)
            y = Or (under, over)
        """,
    }
