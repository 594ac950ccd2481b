"""The operations as bodies of ONNX functions, of ``a`` and ``b`` or of ``x``, made of standard operators.

Tensors are FLOAT and hold binary16 numbers; any NaN stands for the canonical one. FLOAT has 24 bits, at least
2 * 11 + 2, so rounding its result again changes nothing.
"""

from __future__ import annotations

#: Domain of the functions.
DOMAIN = "concord"

#: The FLOAT ``exact`` rounded once.
SINGLE = """
    half = Cast <to = 10> (exact)
    y = Cast <to = 1> (half)
"""

ADD = "exact = Add (a, b)" + SINGLE
SUB = "exact = Sub (a, b)" + SINGLE
MUL = "exact = Mul (a, b)" + SINGLE

# Where of ONNX Runtime may give +0 for a -0 of its first choice: a -0 that matters is always the second one.
MAXIMUM = """
    either = Max (a, b)
    equal = Equal (a, b)
    inverse_a = Reciprocal (a)
    inverse_b = Reciprocal (b)
    same = Equal (inverse_a, inverse_b)
    signs = Not (same)
    zeros = And (equal, signs)
    zero = Constant <value = float {0.0}> ()
    y = Where (zeros, zero, either)
"""

MINIMUM = f"""
    minus_a = Neg (a)
    minus_b = Neg (b)
    minus_y = {DOMAIN}.HalfMax (minus_a, minus_b)
    y = Neg (minus_y)
"""

RELU = """
    zero = Constant <value = float {0.0}> ()
    low = LessOrEqual (x, zero)
    y = Where (low, zero, x)
    """
