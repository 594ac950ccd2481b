"""The numbers of the NPU as ONNX functions, from standard operators that ONNX Runtime has for CPUs ([concordance]).

A *wide* tensor is FLOAT and holds binary16 numbers; a *narrow* one is FLOAT and holds the values of blocks, mantissa
times power of two; an exact sum is DOUBLE. Any NaN stands for the canonical one; :data:`FUNCTIONS` are by name:

RoundToHalf
    Exact sum to wide: one rounding, nearest even. ONNX Runtime's cast from DOUBLE to FLOAT16 rounds twice, so the sum
    is first reduced to 24 bits that round to the same number: the nearest number of 23 bits, and where that is not the
    sum, the next one of 24 bits towards it. An exact zero gives +0.
RoundSumToHalf
    The same for a sum of two numbers, whose second one is at most half a unit in the last place of the first.
SumOfTwo, SumOfThree
    DOUBLE numbers as their rounded sum and what it leaves: of that, the sign and enough for RoundSumToHalf.
RoundSingleToHalf
    The same for a sum that is a FLOAT exactly.
RealToHalf
    Any DOUBLE to wide, once rounded; -0, infinities and NaN stay what they are, numbers beyond become infinities.
HalfAdd, HalfMax and so on
    Operations of the multifunction units: those of :mod:`concord.operations`.
HalfTable
    ``entries[clamp(rne(x * 2**scale), low, high) - low]``; an infinity counts as +-65504, a NaN as 0.
BlockQuantize, BlockQuantizeAway
    Wide blocks (last axis) to narrow ones with dynamic exponents, rounded nearest even, or nearest away. ``least`` are
    the least powers of two of the blocks.
StaticQuantize, StaticQuantizeAway
    The same with a static exponent, of elements in any shape.
BlockQuantizeStochastic, StaticQuantizeStochastic
    The same with 16 bits of noise for every element, DOUBLE: ``(floor(|x| * 2**16 / unit) + noise) >> 16``.
CanonicalNaN
    Wide with the pattern of the canonical NaN for every NaN.

Those of sticky flags are in :mod:`.onnx_flag_functions`, those of the host in :mod:`.onnx_host_functions`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import onnx
from onnx import parser

from concord.derive.backends.onnx_flag_functions import flag_texts
from concord.derive.backends.onnx_host_functions import HOST_TEXTS
from concord.operations import OPERATIONS, onnx_text
from concord.operations.onnx_text import DOMAIN
from concord.spec.formats import BINARY16_MAX, NOISE_BITS

#: Version of the standard operators that the functions are made of.
OPSET = 21
IR_VERSION = 10

_ROUND = f"""
    factor = Constant <value = double {{{2**30 + 1}.0}}> ()
    nudge = Constant <value = double {{{1.5 * 2.0**-24!r}}}> ()
    scaled = Mul (sum, factor)
    less = Sub (sum, scaled)
    high = Add (scaled, less)
    low = Sub (sum, high)
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
    one_half = Constant <value = float {{0.5}}> ()
    below = Mul (nearest, one_half)
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
    one_half_unit = Constant <value = float {0.5}> ()
    above_half = Add (ratio, one_half_unit)
    whole = Floor (above_half)
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


_DYNAMIC_ATTRIBUTES = "<share, greatest_code>"
_STATIC_ATTRIBUTES = "<unit, greatest_code>"

_TEXTS = {
    "RoundToHalf": ("(sum) => (y)", _ROUND.replace("SIDE", "side = Sign (low)")),
    "RoundSumToHalf": ("(sum, rest) => (y)", _ROUND.replace("SIDE", "both = Add (low, rest)\n    side = Sign (both)")),
    "RoundSingleToHalf": ("(sum) => (y)", "zero = Constant <value = float {0.0}> ()\n none = Equal (sum, zero)\n"
                          "exact = Where (none, zero, sum)" + onnx_text.SINGLE),
    "SumOfTwo": ("(a, b) => (sum, rest)", _two_sum("a", "b", "sum", "rest")),
    "SumOfThree": ("(a, b, c) => (sum, rest)",
                   _two_sum("a", "b", "first", "rest_1") + _two_sum("first", "c", "second", "rest_2")
                   + _two_sum("rest_1", "rest_2", "rests", "least") + _two_sum("second", "rests", "sum", "more") + """
    zero = Constant <value = double {0.0}> ()
    none = Equal (more, zero)
    rest = Where (none, least, more)
    """),
    "RealToHalf": ("(x) => (y)", _REAL),
    **{
        operation.onnx: (f"({', '.join('ab' if operation.combines else 'x')}) => (y)", operation.onnx_body)
        for operation in OPERATIONS.values()
    },
    "HalfTable": ("<factor, low, high> (x, entries) => (y)", _FINITE + _CODE + """
    code = Clip (whole, low, high)
    place = Sub (code, low)
    index = Cast <to = 6> (place)
    y = Gather (entries, index)
    """),
    "BlockQuantize": (f"{_DYNAMIC_ATTRIBUTES} (x, least) => (y)",
                      _UNIT + "limited = Identity (finite)" + _EVEN + _limit("rounded", "y")),
    "BlockQuantizeAway": (f"{_DYNAMIC_ATTRIBUTES} (x, least) => (y)",
                          _UNIT + "limited = Identity (finite)" + _AWAY + _limit("rounded", "y")),
    "StaticQuantize": (f"{_STATIC_ATTRIBUTES} (x) => (y)",
                       _STATIC + _limit("finite", "limited") + _EVEN + "y = Identity (rounded)"),
    "StaticQuantizeAway": (f"{_STATIC_ATTRIBUTES} (x) => (y)",
                           _STATIC + _limit("finite", "limited") + _AWAY + "y = Identity (rounded)"),
    "BlockQuantizeStochastic": (f"{_DYNAMIC_ATTRIBUTES} (x, least, noise) => (y)",
                                _UNIT + "limited = Identity (finite)" + _STOCHASTIC + _limit("rounded", "y")),
    "StaticQuantizeStochastic": (f"{_STATIC_ATTRIBUTES} (x, noise) => (y)",
                                 _STATIC + _limit("finite", "limited") + _STOCHASTIC + "y = Identity (rounded)"),
    "CanonicalNaN": ("(x) => (y)", """
    nan = IsNaN (x)
    canonical = Constant <value = float {nan}> ()
    y = Where (nan, canonical, x)
    """),
    **flag_texts(_FINITE, _CODE, _NOISY),
    **HOST_TEXTS,
}  # fmt: skip


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
