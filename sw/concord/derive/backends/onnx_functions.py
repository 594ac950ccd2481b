"""The primitives of derived software as ONNX functions, from standard operators that ONNX Runtime has for CPUs.

They are those of :mod:`concord.derive.primitives` ([concordance]). Halves and blocks are FLOAT, exact sums DOUBLE.
ONNX Runtime's cast from DOUBLE to FLOAT16 rounds twice, so a sum is first reduced to 24 bits that round to the same
number: the nearest number of 23 bits, and where that is not the sum, the next one of 24 bits towards it.

Those of sticky flags are in :mod:`.onnx_flags`, those of the host in :mod:`.onnx_host`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import onnx
from onnx import parser

from concord.derive.backends.onnx_flags import ANY_OF_SAMPLE, flag_bodies
from concord.derive.backends.onnx_host import HOST_TEXTS
from concord.derive.primitives import PRIMITIVES
from concord.operations import OPERATIONS, onnx_text
from concord.operations.onnx_text import DOMAIN
from concord.spec.formats import BINARY16_MAX, NOISE_BITS, Rounding

#: Version of the standard operators that the functions are made of.
OPSET = 21
IR_VERSION = 10

_ROUND = f"""
    factor = Constant <value = double {{{2**30 + 1}.0}}> ()
    nudge = Constant <value = double {{{1.5 * 2.0**-24!r}}}> ()
    scaled = Mul (total, factor)
    less = Sub (total, scaled)
    high = Add (scaled, less)
    low = Sub (total, high)
    SIDE
    size = Abs (high)
    unit = Mul (size, nudge)
    moved = Mul (side, unit)
    odd = Add (high, moved)
    single = Cast <to = 1> (odd)
    half = Cast <to = 10> (single)
    y = Cast <to = 1> (half)
"""

_REAL = f"""
    nan = IsNaN (x)
    zero = Constant <value = double {{0.0}}> ()
    number = Where (nan, zero, x)
    beyond = Constant <value = double {{{2.0**17}}}> ()
    below = Neg (beyond)
    real = Clip (number, below, beyond)
    factor = Constant <value = double {{{2**30 + 1}.0}}> ()
    nudge = Constant <value = double {{{1.5 * 2.0**-24!r}}}> ()
    scaled = Mul (real, factor)
    more = Sub (scaled, real)
    high = Sub (scaled, more)
    up = Sub (high, real)
    side = Sign (up)
    size = Abs (high)
    unit = Mul (size, nudge)
    moved = Mul (side, unit)
    odd = Sub (high, moved)
    single = Cast <to = 1> (odd)
    half = Cast <to = 10> (single)
    rounded = Cast <to = 1> (half)
    canonical = Constant <value = float {{nan}}> ()
    y = Where (nan, canonical, rounded)
"""


def _two_sum(a: str, b: str, total: str, error: str) -> str:
    """The sum of two numbers as a rounded one and what that leaves, exact (Knuth's TwoSum)."""
    t = f"{total}_of"
    return f"""
    {total} = Add ({a}, {b})
    {t}_b = Sub ({total}, {a})
    {t}_a = Sub ({total}, {t}_b)
    {t}_rest_a = Sub ({a}, {t}_a)
    {t}_rest_b = Sub ({b}, {t}_b)
    {error} = Add ({t}_rest_a, {t}_rest_b)
    """


_FINITE = f"""
    nan = IsNaN (x)
    zero = Constant <value = float {{0.0}}> ()
    number = Where (nan, zero, x)
    greatest = Constant <value = float {{{BINARY16_MAX}.0}}> ()
    lowest = Neg (greatest)
    finite = Clip (number, lowest, greatest)
"""

# The nearest number of one bit is the power of two at or below the peak, or the next one.
_UNIT = (
    _FINITE
    + f"""
    sizes = Abs (finite)
    axis = Constant <value = int64[1] {{-1}}> ()
    peak = ReduceMax <keepdims = 1> (sizes, axis)
    factor = Constant <value = float {{{2**23 + 1}.0}}> ()
    scaled = Mul (peak, factor)
    more = Sub (scaled, peak)
    nearest = Sub (scaled, more)
    above = Greater (nearest, peak)
    down = Constant <value = float {{0.5}}> ()
    below = Mul (nearest, down)
    power = Where (above, below, nearest)
    share = Constant <value_float: float = @share> ()
    wanted = Mul (power, share)
    unit = Max (wanted, least)
"""
)

_STATIC = """
    unit = Constant <value_float: float = @unit> ()
    nan = IsNaN (x)
    zero = Constant <value = float {0.0}> ()
    finite = Where (nan, zero, x)
"""

# Adding 1.5 * 2**23 units leaves whole units, nearest even, and zeros are +0.
_EVEN = f"""
    to_integer = Constant <value = float {{{1.5 * 2**23}}}> ()
    shift = Mul (unit, to_integer)
    shifted = Add (limited, shift)
    rounded = Sub (shifted, shift)
"""

_SIGNED = """
    size = Mul (whole, unit)
    negative = Less (limited, zero)
    minus = Neg (size)
    signed = Where (negative, minus, size)
    none = Equal (whole, zero)
    rounded = Where (none, zero, signed)
"""

_AWAY = (
    """
    magnitude = Abs (limited)
    ratio = Div (magnitude, unit)
    middle = Constant <value = float {0.5}> ()
    beyond_middle = Add (ratio, middle)
    whole = Floor (beyond_middle)
"""
    + _SIGNED
)

# Of a magnitude in units, with the noise, in parts of a unit.
_NOISY = f"""
    real = Cast <to = 11> (magnitude)
    real_unit = Cast <to = 11> (unit)
    ratio = Div (real, real_unit)
    parts_of_unit = Constant <value = double {{{2.0**NOISE_BITS}}}> ()
    scaled_ratio = Mul (ratio, parts_of_unit)
    fine = Floor (scaled_ratio)
    noisy = Add (fine, noise)
"""

_STOCHASTIC = (
    "magnitude = Abs (limited)\n"
    + _NOISY
    + """
    noisy_ratio = Div (noisy, parts_of_unit)
    real_whole = Floor (noisy_ratio)
    whole = Cast <to = 1> (real_whole)
"""
    + _SIGNED
)

_CODE = """
    factor = Constant <value_float: float = @factor> ()
    low = Constant <value_float: float = @low> ()
    high = Constant <value_float: float = @high> ()
    scaled = Mul (finite, factor)
    whole = Round (scaled)
"""

_LIMIT = """
    greatest_code = Constant <value_float: float = @greatest_code> ()
    limit = Mul (unit, greatest_code)
    minus_limit = Neg (limit)
    BEFORE_below = Min (BEFORE, limit)
    AFTER = Max (BEFORE_below, minus_limit)
"""


def _limit(before: str, after: str) -> str:
    """Codes within the symmetric range."""
    return _LIMIT.replace("BEFORE", before).replace("AFTER", after)


_WHOLE = "limited = Identity (finite)"
_WITHIN = "y = Identity (rounded)"
_ROUNDINGS = {Rounding.NEAREST_EVEN: _EVEN, Rounding.NEAREST_AWAY: _AWAY, Rounding.STOCHASTIC: _STOCHASTIC}

#: Bodies by primitive, of those that have one rounding.
_EXACT = {
    "round_to_half": _ROUND.replace("SIDE", "side = Sign (low)"),
    "round_sum_to_half": _ROUND.replace("SIDE", "both = Add (low, rest)\n    side = Sign (both)"),
    "round_single_to_half": f"""
        zero = Constant <value = float {{0.0}}> ()
        none = Equal (total, zero)
        exact = Where (none, zero, total)
        {onnx_text.SINGLE}
    """,
    "sum_of_two": _two_sum("a", "b", "total", "rest"),
    "sum_of_three": f"""
        {_two_sum("a", "b", "first", "rest_1")} {_two_sum("first", "c", "second", "rest_2")}
        {_two_sum("rest_1", "rest_2", "rests", "least")} {_two_sum("second", "rests", "total", "more")}
        zero = Constant <value = double {{0.0}}> ()
        none = Equal (more, zero)
        rest = Where (none, least, more)
    """,
    "real_to_half": _REAL,
    "half_to_real": """
        nan = IsNaN (x)
        canonical = Constant <value = float {nan}> ()
        number = Where (nan, canonical, x)
        y = Cast <to = 11> (number)
    """,
    **{operation.primitive: operation.onnx_body for operation in OPERATIONS.values()},
    "half_table": f"""{_FINITE} {_CODE}
        code = Clip (whole, low, high)
        place = Sub (code, low)
        index = Cast <to = 6> (place)
        y = Gather (entries, index)
    """,
}
#: Bodies by primitive and rounding.
_BODIES = {(name, Rounding.NEAREST_EVEN): body for name, body in _EXACT.items()}
for _rounding, _lines in _ROUNDINGS.items():
    _BODIES["block_quantize", _rounding] = _UNIT + _WHOLE + _lines + _limit("rounded", "y")
    _BODIES["static_quantize", _rounding] = _STATIC + _limit("finite", "limited") + _lines + _WITHIN
_BODIES |= flag_bodies(_FINITE, _CODE, _NOISY)


def function_name(primitive: str, rounding: Rounding = Rounding.NEAREST_EVEN) -> str:
    """The ONNX function of a primitive with a rounding."""
    return PRIMITIVES[primitive].onnx + _SUFFIXES[rounding]


def _signature(primitive: str, rounding: Rounding) -> str:
    record = PRIMITIVES[primitive]
    operands = [*record.operands, *(["noise"] if rounding is Rounding.STOCHASTIC else [])]
    attributes = f"<{', '.join(record.attributes)}> " if record.attributes else ""
    return f"{attributes}({', '.join(operands)}) => ({', '.join(record.results)})"


_SUFFIXES = {Rounding.NEAREST_EVEN: "", Rounding.NEAREST_AWAY: "Away", Rounding.STOCHASTIC: "Stochastic"}
#: Signatures and bodies by name.
_TEXTS = {
    **{function_name(*key): (_signature(*key), body) for key, body in _BODIES.items()},
    **ANY_OF_SAMPLE,
    **HOST_TEXTS,
}


def needed(names: Collection[str]) -> list[onnx.FunctionProto]:
    """The functions of these names, and those that they call."""
    called = {*names, *(["HalfMax"] if "HalfMin" in names else [])}
    return [function(name) for name in FUNCTIONS if name in called]


@cache
def function(name: str) -> onnx.FunctionProto:
    """The function of a name; ``KeyError`` if there is none."""
    signature, body = _TEXTS[name]
    text = f'<opset_import: ["": {OPSET}, "{DOMAIN}": 1], domain: "{DOMAIN}"> {name} {signature} {{ {body} }}'
    return parser.parse_function(text)


#: Names of all functions.
FUNCTIONS = tuple(_TEXTS)
