"""Transfer tables: entries by the formula of [transfer-lut], evaluated a second time in the plainest way."""

import math
import random
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from concord.functions import FUNCTIONS, function
from concord.functions.tables import build_table, standard_table
from concord.golden import binary16
from concord.spec.presets import TINY
from concord.transfer import Binary16, CodeRange, Codes, table_index, transfer_table
from concord.transfer.operators import CONSTANT_OPERATORS, Composition, PointwiseOperator
from support import naive
from support.random_schemes import AWAY, EVEN, S, U, Y, fixed_point, of_range, schemes, symmetric

#: What the operators of the tests are, once more.
PLAIN = {
    "relu": lambda x: x if x > 0 else Fraction(0),
    "leaky_relu": lambda x: x if x > 0 else x * Fraction(0.01),
    "hardsigmoid": lambda x: sorted((Fraction(0), Fraction(0.2) * x + Fraction(1, 2), Fraction(1)))[1],
    "hardswish": lambda x: x * sorted((0, x + 3, 6))[1] / 6,
}


def code_range(kind, bits):
    """Least and greatest code as the source writes them."""
    n = 2**bits
    return {U: (0, n - 1), S: (-n // 2, n // 2 - 1), Y: (-(n // 2 - 1), n // 2 - 1)}[kind]


def quantized(x, scale, zero, ends, rounding=EVEN):
    """By looking for the nearest integer among three; a half goes to the even one, or to the greater magnitude."""
    scaled = x / scale
    base = math.floor(scaled)

    def badness(n):
        return abs(scaled - n), n % 2 if rounding == EVEN else -abs(n)

    code = min((base - 1, base, base + 1), key=badness) + zero
    return sorted((ends[0], code, ends[1]))[1]


def reference(low, high, scale, zero, curve, to):
    """The whole table from the formula; ``to`` maps a fraction to a code."""
    entries = [None] * (high - low + 1)
    for j in range(low, high + 1):
        entries[j - low] = to(curve((j - zero) * scale))
    return entries


@pytest.mark.slow
@pytest.mark.parametrize("name", ["identity", *PLAIN])
@pytest.mark.parametrize("rounding", [EVEN, AWAY], ids=lambda r: r.name)
@pytest.mark.parametrize("target_codes", CodeRange)
@pytest.mark.parametrize("codes", CodeRange)
def test_every_entry_of_every_small_width(codes, target_codes, rounding, name):
    rng = random.Random(f"{codes}{target_codes}{rounding}{name}")
    curve = PLAIN.get(name, lambda x: x)
    for bits in range(1, 8):
        low, high = code_range(codes, bits)
        for target_bits in range(1, 8):
            ends = code_range(target_codes, target_bits)
            scale = rng.choice([Fraction(1, 4), Fraction(1, 3), Fraction(0.1), Fraction(rng.random() + 0.01)])
            ratio = rng.choice([Fraction(1), Fraction(2), Fraction(2, 3), Fraction(rng.random() + 0.1)])
            zero, target_zero = (rng.choice([a, b, rng.randint(a, b)]) for a, b in ((low, high), ends))
            source = Codes(bits, scale, zero, codes)
            target = Codes(target_bits, scale * ratio, target_zero, target_codes, rounding)
            table = transfer_table(source, [name] if name != "identity" else [], target)
            want = reference(
                low, high, scale, zero, curve, lambda x, t=target, e=ends: quantized(x, t.scale, t.zero, e, t.rounding)
            )
            assert table.entries.tolist() == want, (source, target)
            assert (source.low, source.high) == (low, high)


@pytest.mark.parametrize("codes, bits, shift", [(U, 4, 0), (S, 4, 8), (Y, 4, 7), (U, 8, 0), (S, 8, 128), (Y, 8, 127)])
def test_index_is_the_code_minus_the_least_code(codes, bits, shift):
    source = Codes(bits, 1, 0, codes)
    table = transfer_table(source, [("mul", {"by": 2})], Codes(16, 1))
    assert source.low == -shift and len(table.entries) == 2**bits - (codes is Y)
    for j in range(source.low, source.high + 1):
        assert table.entries[j + shift] == 2 * j == table.apply(j)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize(
    "target",
    [symmetric(8, 1 / 37), Codes(8, 0.05, 100, U, AWAY), fixed_point(3, 12), of_range(6, -1, 3.7), Binary16()],
    ids=lambda t: type(t).__name__,
)
def test_both_ways_agree_on_all_codes_of_8_bits(name, target):
    for source in (Codes(8, 1 / 16, -128), symmetric(8, 0.037), fixed_point(3, 4)):
        assert transfer_table(source, [name], target) == transfer_table(source, [name], target, always_exact=True)


CHAINS = [
    [],
    ["sigmoid"],
    ["gelu"],
    ["tanh", ("mul", {"by": Fraction(1, 3)}), ("add", {"to": -0.25}), "relu"],
    ["silu", ("clip", {"min": -0.2, "max": 5})],
    ["softplus", "sqrt", "log"],
    [("elu", {"alpha": 0.7}), "erf"],
    ["hardswish", "gelu_tanh", "exp", "hardsigmoid"],
    [("leaky_relu", {"alpha": 0.1}), ("mul", {"by": 3e-7})],
]


@pytest.mark.slow
@pytest.mark.parametrize("functions", CHAINS, ids=str)
@pytest.mark.parametrize(
    "source, target",
    [
        (symmetric(16, 8 / 32767), fixed_point(2, 13)),
        (Codes(16, Fraction(1, 3000), 20000, U), Codes(16, 1e-4, 5, U, AWAY)),
        (fixed_point(4, 11), Binary16()),
    ],
    ids=["symmetric", "affine", "half"],
)
def test_both_ways_agree_on_random_codes_of_16_bits(source, functions, target):
    table = transfer_table(source, functions, target)
    chain = Composition([PointwiseOperator.of(f) for f in functions])
    rng = random.Random(1)
    for j in [
        source.low,
        source.high,
        source.zero,
        source.zero + 1,
        *rng.choices(range(source.low, source.high), k=60),
    ]:
        assert table.apply(j) == target.quantize(chain(source.dequantize(j)))


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, Fraction(1, 3), 2.0**-1070])
def test_ties_of_16_bits_are_all_right(step):
    """Every second code is a tie."""
    source = symmetric(16, step)
    for rounding in (EVEN, AWAY):
        got = transfer_table(source, [], Codes(16, 2 * step, rounding=rounding)).entries
        codes = np.arange(source.low, source.high + 1)
        want = np.rint(codes / 2) if rounding == EVEN else np.sign(codes) * ((np.abs(codes) + 1) // 2)
        assert np.array_equal(got, want)


#: Steps far below the least float.
FINE = Codes(1, Fraction(1, 10**400), range=CodeRange.UNSIGNED)
RISING = ["identity", "relu", "leaky_relu", "elu", "sigmoid", "tanh", "erf", "softplus", "exp", "hardsigmoid", "sqrt"]


@pytest.mark.slow
@given(schemes, schemes, st.lists(st.sampled_from(RISING), max_size=2))
@example(Codes(1, 710.0, range=CodeRange.UNSIGNED), FINE, ["exp", "identity"])  # beyond floats, and finite
def test_rising_functions_give_rising_tables(source, target, names):
    entries = transfer_table(source, names, target).entries.tolist()
    assert all(a <= b for a, b in pairwise(entries))
    assert all(target.low <= entry <= target.high for entry in entries)


@given(schemes)
def test_equal_schemes_give_the_identity(scheme):
    codes = np.arange(scheme.low, scheme.high + 1)
    table = transfer_table(scheme, [], scheme)
    assert np.array_equal(table.entries, codes) and np.array_equal(table.apply(codes[::-1]), codes[::-1])


@pytest.mark.slow
@given(schemes, schemes)
def test_a_second_conversion_changes_nothing(source, target):
    there = transfer_table(source, [], target)
    again = transfer_table(target, [], target)
    assert np.array_equal(again.apply(there.entries), there.entries)


@pytest.mark.parametrize("name, parameters", [("sigmoid", {}), ("elu", {"alpha": 2.0}), ("reciprocal", {})])
def test_a_table_of_the_npu_is_one_of_them(name, parameters):
    want = standard_table(name, TINY, **parameters)
    source = table_index(want.low, want.high, want.scale)
    table = transfer_table(source, [(name, parameters)], Binary16())
    assert table.npu_table() == want
    bits = np.array(naive.corners(), dtype=np.uint16)
    bits = bits[binary16.is_finite(bits)]
    codes = [source.quantize(naive.value(int(b))) for b in bits]  # clamp(rne(x * 2**s))
    assert np.array_equal(table.apply(codes), want.apply(bits)[0])


def test_composed_operators_in_a_table_of_the_npu():
    tanh = function("tanh").exact_with()
    codes = {"low": -8, "high": 7, "scale": 1}
    curve = lambda x: tanh(x) / 3 if x > 0 else 0  # noqa: E731
    want = build_table(curve, TINY, **codes, name="tanh+mul+relu", constant_ends=(True, True))
    functions = ["tanh", ("mul", {"by": Fraction(1, 3)}), "relu"]
    assert transfer_table(table_index(-8, 7, 1), functions, Binary16()).npu_table() == want


def test_operators_are_composed_in_order():
    source, target = symmetric(4, 1), symmetric(8, 1)
    shift, factor = ("add", {"to": 2}), ("mul", {"by": 3})
    assert transfer_table(source, [shift, factor], target).entries.tolist() == [3 * (j + 2) for j in range(-7, 8)]
    assert transfer_table(source, [factor, shift], target).entries.tolist() == [3 * j + 2 for j in range(-7, 8)]
    sigmoid = transfer_table(source, ["sigmoid"], Binary16())
    assert np.array_equal(transfer_table(source, ["sigmoid", "relu"], Binary16()).entries, sigmoid.entries)
    assert transfer_table(source, [("clip", {"min": -2, "max": 2.5})], symmetric(4, 0.5)).apply([-7, 7]).tolist() == [
        -4,
        5,
    ]


def test_intermediate_numbers_are_not_rounded():
    """exp(x) passes on with 60 digits: what is left of it after a subtraction of its first 40 is right."""
    near = Fraction(format(Decimal(1).exp().quantize(Decimal("1e-20")), "f"))
    functions = ["exp", ("add", {"to": -near}), ("mul", {"by": 10**20})]
    table = transfer_table(table_index(1, 1, 0), functions, fixed_point(5, 10))
    tail = Fraction("2.718281828459045235360287471352662497757247093699959574966") - near
    assert table.entries[0] == round(tail * 10**20 * 1024) != 0


@pytest.mark.parametrize("name", sorted(CONSTANT_OPERATORS))
def test_constants_lie_between_float64_numbers(name):
    third = Fraction(1, 3)
    parameters = {"mul": {"by": third}, "add": {"to": third}, "clip": {"min": -third, "max": third}}[name]
    for target in (symmetric(8, Fraction(2, 3)), symmetric(8, Fraction(1, 9)), Binary16()):
        args = (symmetric(8, third), [(name, parameters)], target)
        assert transfer_table(*args) == transfer_table(*args, always_exact=True)


def test_callables():
    def cube(x):
        return x**3

    table = transfer_table(symmetric(4, 1), [cube, "relu"], symmetric(8, 1))
    assert table.apply(4) == 64 and table.apply(-4) == 0 and table.operators[0].name == "cube"


def test_codes_of_any_shape():
    table = transfer_table(symmetric(8, 1), [], symmetric(8, 1))
    codes = np.arange(-120, 120, dtype=np.int8).reshape(2, 3, 40)
    assert np.array_equal(table.apply(codes), codes)
    assert table.apply(np.zeros((0, 3), dtype=np.int8)).shape == (0, 3)
    with pytest.raises(ValueError, match="read-only"):
        table.entries[0] = 1
