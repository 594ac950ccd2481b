"""Contents of look-up tables, and their place in the table memory."""

import hashlib
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from concord.functions import FUNCTIONS, evaluate, function
from concord.functions.tables import Table, TableSet, build_table, round_to_binary16, standard_table
from concord.golden import binary16
from concord.golden.table import lookup
from concord.spec.presets import PRESETS, TINY, UP5K
from support import naive

LARGE = TINY.replace(table_depth=4096)
ALL = np.arange(1 << 16, dtype=np.uint16)
ONE = 1 << 400  # the references below count in units of 2**-400
PI = 3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117068


def fixed(x):
    return x.numerator * ONE // x.denominator


def exp(x):
    """Taylor series of x / 2**12, squared 12 times, in integers; relative error far below 2**-300."""
    small = fixed(x) >> 12
    total, term, k = ONE, ONE, 1
    while term not in (0, -1):
        term = term * small // ONE // k
        total, k = total + term, k + 1
    for _ in range(12):
        total = total * total // ONE
    return Fraction(total, ONE)


def erf(x):
    """The alternating series (the product uses another one)."""
    square = x * x
    total = power = fixed(x)
    n = 0
    while power not in (0, -1):
        n += 1
        power = -power * square.numerator // square.denominator // n
        total += power // (2 * n + 1)
    return Fraction(total, ONE) * 2 / root(Fraction(PI, 10**99))


def root(x):
    return Fraction(isqrt(fixed(x) * ONE), ONE)


def tanh(x):
    return (exp(2 * x) - 1) / (exp(2 * x) + 1)


REFERENCES = {
    "identity": lambda x: x,
    "relu": lambda x: max(x, 0),
    "leaky_relu": lambda x: x if x > 0 else x * Fraction(0.01),
    "elu": lambda x: x if x > 0 else exp(x) - 1,
    "hardsigmoid": lambda x: min(max(Fraction(0.2) * x + Fraction(1, 2), 0), 1),
    "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "reciprocal": lambda x: 1 / x if x else Fraction(65504),
    "sigmoid": lambda x: 1 / (1 + exp(-x)),
    "tanh": tanh,
    "exp": exp,
    "erf": erf,
    "gelu": lambda x: x * (1 + erf(x / root(Fraction(2)))) / 2,
    "gelu_tanh": lambda x: x * (1 + tanh(root(2 / Fraction(PI, 10**99)) * (x + Fraction("0.044715") * x**3))) / 2,
    "normal_cdf": lambda x: (1 + erf(x / root(Fraction(2)))) / 2,
    "gelu_tanh_gate": lambda x: (1 + tanh(root(2 / Fraction(PI, 10**99)) * (x + Fraction("0.044715") * x**3))) / 2,
    "tanh_ratio": lambda x: tanh(x) / x if x else Fraction(1),
    "erf_ratio": lambda x: erf(x) / x if x else 2 / root(Fraction(PI, 10**99)),
    "celu": lambda x: x if x > 0 else exp(x) - 1,
    "celu_ratio": lambda x: 1 if x >= 0 else (exp(x) - 1) / x,
    "linear": lambda x: x,
    "silu": lambda x: x / (1 + exp(-x)),
    "softsign": lambda x: x / (1 + x) if x >= 0 else x / (1 - x),
    "sqrt": root,
    "rsqrt": lambda x: 1 / root(x) if x else Fraction(65504),
}
#: Functions checked through their inverse: t = f(x) as exp(f(x)) = inverse(x).
INVERSES = {"softplus": lambda x: 1 + exp(x), "log": lambda x: x}

#: The first 64 bits of the SHA-256 of the table that a function has in TINY.
CONTENTS = {
    "celu": "485d55d3299934a4",
    "celu_ratio": "6ae735e96c73f532",
    "elu": "485d55d3299934a4",
    "erf": "2b744dcb58e2385e",
    "erf_ratio": "cc36e8b95de9718f",
    "exp": "361be38719c618f7",
    "gelu": "7c1f925acf3d339a",
    "gelu_tanh": "7fb34b50a30bae64",
    "gelu_tanh_gate": "f582cced01b7c635",
    "hardsigmoid": "a739d5e25ab07a7f",
    "hardswish": "2b73921e6400ffd7",
    "identity": "862cb18c373e1aa1",
    "leaky_relu": "b48f2095b843f72b",
    "linear": "862cb18c373e1aa1",
    "log": "54374214031314ab",
    "normal_cdf": "3b12ced646a27932",
    "reciprocal": "85bbf3cdad89b5eb",
    "relu": "470d47be8c33a99d",
    "rsqrt": "3fd153120421ac11",
    "sigmoid": "1596c738229adc55",
    "silu": "47a952b9d032e9a7",
    "softplus": "6284b19f6936e0bd",
    "softsign": "184703caf915bf8a",
    "sqrt": "53d102d157e77b1b",
    "tanh": "97c6057392d54a66",
    "tanh_ratio": "0e055e25befbb653",
}


def inputs(table):
    return [Fraction(code) * naive.power(-table.scale) for code in range(table.low, table.high + 1)]


def test_every_function_has_a_reference():
    assert set(REFERENCES) | set(INVERSES) == set(FUNCTIONS)


@pytest.mark.parametrize("entries", [256, 300])
@pytest.mark.parametrize("name", REFERENCES)
def test_entries_are_correctly_rounded(name, entries):
    """Both ends of an interval around the true value round to the entry."""
    table = standard_table(name, LARGE, entries, domain=(-2, 1) if entries == 300 and name in ("exp", "gelu") else None)
    for x, entry in zip(inputs(table), table.entries, strict=True):
        value = REFERENCES[name](x)
        for error in (Fraction(-1, 1 << 90), Fraction(1, 1 << 90)):
            exact = name in ("identity", "linear", "relu", "leaky_relu", "hardsigmoid", "hardswish", "reciprocal")
            want = naive.nearest(value if exact else value * (1 + error))
            assert entry == (0 if want == 0x8000 else want), f"{name}({float(x)})"


@pytest.mark.parametrize("name", INVERSES)
def test_entries_of_logarithms_are_correctly_rounded(name):
    """The true value lies between the midpoints to the neighbours of the entry."""
    table = standard_table(name, LARGE, 256)
    for x, entry in zip(inputs(table), table.entries, strict=True):
        if x == 0 and name == "log":
            assert entry == 0xFBFF
            continue
        target, value = INVERSES[name](x), naive.value(entry)
        if entry == 0:
            assert abs(target - 1) < naive.power(-26)
            continue
        below, above = sorted([naive.value(entry - 1), naive.value(entry + 1)])
        assert exp((below + value) / 2) < target < exp((above + value) / 2), f"{name}({float(x)})"


def test_round_to_binary16_is_rounding_to_nearest():
    for bits in naive.corners():
        if naive.is_nan(bits) or naive.is_inf(bits) or bits == 0x8000:
            continue
        value = naive.value(bits)
        step = Fraction(1, 1 << 60)
        for x in (value, value + step, value - step, value * (1 + Fraction(1, 2048)), value * Fraction(4097, 4096)):
            want = naive.nearest(x)
            want = {0x8000: 0, 0x7C00: 0x7BFF, 0xFC00: 0xFBFF}.get(want, want)
            assert round_to_binary16(x) == want
    assert [round_to_binary16(x) for x in (float("inf"), float("-inf"), Decimal(10) ** 9, 1e-9)] == [
        0x7BFF,
        0xFBFF,
        0x7BFF,
        0,
    ]


def contents(name):
    """A hash of the entries of a table."""
    with localcontext() as context:
        context.prec = 5  # the caller's decimal context must not matter
        return hashlib.sha256(np.array(standard_table(name, TINY).entries, dtype="<u2").tobytes()).hexdigest()[:16]


def test_contents_never_change():
    """The stored contents are part of the contract: the same on every machine and in every version."""
    assert {name: contents(name) for name in sorted(FUNCTIONS)} == CONTENTS


@pytest.mark.parametrize("scale", [-20, -3, 0, 7, 12, 31])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_bounds_decide_as_exact_evaluation_does(name, scale):
    """A function by name goes through bounds in float64, the same function as a callable does not."""
    limits = {"low": -40, "high": 40, "scale": scale, "name": name}
    assert build_table(name, TINY, **limits).entries == build_table(function(name).exact_with(), TINY, **limits).entries


def test_inputs_far_outside_are_bounded_in_time():
    for name in ("exp", "sigmoid", "tanh", "gelu_tanh", "softplus", "silu", "gelu", "elu"):
        table = build_table(name, TINY, low=-2, high=2, scale=-32)
        assert all(binary16.is_finite(np.array(table.entries, dtype=np.uint16)))


def test_sigmoid_is_close_everywhere():
    for entries, limit in ((256, 0.0080), (1024, 0.0023), (4096, 0.0009)):
        got = standard_table("sigmoid", LARGE, entries).apply(ALL[binary16.is_finite(ALL)]).entries
        with np.errstate(over="ignore"):
            want = 1 / (1 + np.exp(-binary16.decode(ALL[binary16.is_finite(ALL)])))
        assert np.abs(binary16.decode(got) - want).max() < limit


@pytest.mark.parametrize(
    "name, entries, domain, want",
    [
        ("sigmoid", 256, None, (-128, 127, 4)),
        ("sigmoid", 4096, None, (-2048, 2047, 8)),
        ("exp", 256, None, (-255, 0, 5)),
        ("reciprocal", 256, (0, 1000), (0, 249, -2)),
        ("tanh", 200, (-4, 4), (-64, 63, 4)),
        ("gelu", 256, (-0.75, 0.5), (-96, 63, 7)),
        ("exp", 64, (-0.5, 0), (-63, 0, 7)),
        ("sqrt", 256, (6.1995, 6.1999), (3175, 3175, 9)),  # between two codes
    ],
)
def test_standard_ranges(name, entries, domain, want):
    table = standard_table(name, LARGE, entries, domain)
    assert (table.low, table.high, table.scale) == want


@pytest.mark.parametrize("entries", [64, 256, 1024, 4096])
@pytest.mark.parametrize(
    "name, domain, want",
    [
        ("sigmoid", None, (True, True)),
        ("sigmoid", (-2, 2), (False, False)),
        ("sigmoid", (-9, 2), (True, False)),
        ("tanh", None, (True, True)),
        ("erf", None, (True, True)),
        ("hardsigmoid", None, (True, True)),
        ("exp", None, (True, False)),
        ("exp", (-2, 0), (False, False)),
        ("gelu", None, (True, False)),
        ("silu", (-12, 12), (True, False)),
        ("elu", None, (True, False)),
        ("softplus", None, (True, False)),
        ("relu", None, (True, False)),
        ("leaky_relu", None, (False, False)),
        ("hardswish", None, (True, False)),
        ("hardswish", (-2, 8), (False, False)),
        ("reciprocal", None, (False, False)),
        ("rsqrt", None, (False, False)),
        ("sqrt", None, (False, False)),
        ("log", None, (False, False)),
    ],
)
def test_which_ends_are_constant(name, domain, want, entries):
    assert standard_table(name, LARGE, entries, domain).constant_ends == want


def test_an_end_beyond_all_numbers_is_constant():
    assert build_table("identity", TINY, low=-16, high=15, scale=-12).constant_ends == (True, False)
    assert build_table("identity", TINY, low=-15, high=16, scale=-12).constant_ends == (False, True)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_beyond_a_constant_end_a_table_errs_as_inside(name):
    """Against float64 functions: no more than half the greatest step between neighbours, for every binary16 number."""
    numbers = binary16.decode(ALL[binary16.is_finite(ALL)])
    for low, high in ((-8, 8), (-1, 3), (0, 20), (-30, -0.5), (-100, 0)):
        table = standard_table(name, LARGE, 256, (low, high))
        entries = binary16.decode(np.array(table.entries, dtype=np.uint16))
        codes = np.rint(np.ldexp(numbers, table.scale))
        with np.errstate(all="ignore"):
            values = np.clip(evaluate([(name, {})], numbers), -65504, 65504)
            if function(name).constant_below_zero:
                values[numbers < 0] = np.nan
        for end, beyond, entry in zip(
            table.constant_ends, (codes < table.low, codes > table.high), entries[[0, -1]], strict=True
        ):
            worst = np.nan_to_num(np.abs(values[beyond] - entry), nan=np.inf).max(initial=0.0)
            steps = np.abs(np.diff(entries)).max(initial=0.0) / 2 + np.ptp(entries) * 2.0**-10
            assert worst <= steps if end else worst > 0


def test_ends_of_the_callers_function():
    limits = {"low": -8, "high": 7, "scale": 1}
    assert build_table(function("sigmoid").exact_with(), TINY, **limits).constant_ends == (False, False)
    assert build_table(function("sigmoid").exact_with(), TINY, **limits, constant_ends=(True, False)).constant_ends == (
        True,
        False,
    )
    assert build_table("relu", TINY, **limits, constant_ends=(False, True)).constant_ends == (False, True)


def test_parameters_of_functions():
    assert function("leaky_relu").exact_with(alpha=0.5)(Fraction(-3)) == Fraction(-3, 2)
    assert standard_table("elu", TINY, alpha=2.0).entries[0] == binary16.encode(2 * np.expm1(-8.0))
    assert function("hardsigmoid").exact_with(alpha=0.25, beta=0.0)(Fraction(2)) == Fraction(1, 2)
    with pytest.raises(TypeError, match=r"parameters of sigmoid must be of \[\], not \['alpha'\]"):
        function("sigmoid").exact_with(alpha=1.0)


def test_any_function_is_rounded_once():
    sigmoid = function("sigmoid").exact_with()
    table = build_table(lambda x: sigmoid(x * 3), TINY, low=-8, high=7, scale=1, name="scaled")
    want = [naive.nearest(1 / (1 + exp(-3 * x))) for x in inputs(table)]
    assert list(table.entries) == want and table.name == "scaled"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"source": "sine", "low": 0, "high": 1, "scale": 0}, "function must be one of"),
        ({"source": "tanh", "low": 0, "high": 256, "scale": 0}, r"codes must be in -256\.\.255, not 0\.\.256"),
        ({"source": "tanh", "low": 5, "high": 4, "scale": 0}, "codes must be in"),
        (
            {"source": "tanh", "low": -200, "high": 100, "scale": 0},
            "must have at most table_depth=256 entries, not 301",
        ),
        ({"source": "tanh", "low": 0, "high": 1, "scale": 32}, r"scale must be in -32\.\.31, not 32"),
        (
            {"source": lambda x: float("nan"), "low": 0, "high": 1, "scale": 0, "name": "bad"},
            "bad must be a number at 0",
        ),
    ],
)
def test_build_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_table(config=TINY, **arguments)


def test_standard_errors():
    with pytest.raises(ValueError, match=r"entries must be in 2\.\.table_depth=256, not 512"):
        standard_table("tanh", TINY, 512)
    with pytest.raises(ValueError, match="domain must be"):
        standard_table("tanh", TINY, domain=(1, 1))
    with pytest.raises(ValueError, match="entries must be 3 for this range, not 2"):
        Table("x", 0, 2, 0, (1, 2))
    with pytest.raises(ValueError, match="binary16 patterns"):
        Table("x", 0, 0, 0, (1 << 16,))


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_the_memory_holds_every_table(config):
    tables = TableSet(config)
    chosen = [standard_table(name, config, config.table_depth // 2) for name in ("sigmoid", "exp")]
    slots = [tables.add(table) for table in chosen]
    assert slots == [0, 1] and tables.used <= config.table_depth
    for slot, table in zip(slots, chosen, strict=True):
        fields = config.table_slot.unpack(tables.slots()[slot])
        got, want = lookup(ALL, tables.memory(), fields), table.apply(ALL)
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(got, want, strict=True))


def test_equal_tables_are_stored_once():
    tables = TableSet(TINY)
    one = standard_table("sigmoid", TINY, 64)
    other_name = Table("gate", one.low, one.high, one.scale, one.entries)
    other_range = Table("shifted", one.low + 9, one.high + 9, one.scale - 1, one.entries)
    loud = replace(one, constant_ends=(False, False))
    other_name, loud_too = (replace(table, constant_ends=one.constant_ends) for table in (other_name, other_range))
    assert [tables.add(t) for t in (one, other_name, other_range, one)] == [0, 0, 1, 0]
    assert [tables.add(t) for t in (loud, loud_too)] == [2, 3]
    assert tables.stored == 1 and tables.used == len(one.entries) == len(tables.memory())
    assert lookup(binary16.encode(0.0), tables.memory(), tables.descriptors()[0])[0] == binary16.encode(0.5)


def test_tables_that_have_entries_in_common():
    whole = Table("whole", -3, 4, 0, tuple(range(100, 108)), (True, True))
    parts = [Table("part", low, high, 0, whole.entries[low + 3 : high + 4], (True, True)) for low, high in
             [(-3, 0), (1, 4), (0, 0)]]  # fmt: skip
    tables = TableSet(TINY)
    tables.store("whole", whole.entries)
    assert [tables.add(table) for table in parts] == [0, 1, 2]
    assert tables.used == len(tables.memory()) == 8
    for table, slot in zip(parts, tables.descriptors(), strict=True):
        x = binary16.encode(np.arange(-9.0, 9.0))
        assert np.array_equal(lookup(x, tables.memory(), slot)[0], table.apply(x)[0])


def test_tables_that_do_not_fit_are_refused_and_leave_no_trace():
    tables = TableSet(UP5K)
    tables.add(standard_table("tanh", UP5K, 128))
    with pytest.raises(ValueError, match="table_depth=256: exp needs 256 entries, 128 are left"):
        tables.add(standard_table("exp", UP5K, 256))
    tables.add(standard_table("exp", UP5K, 64))
    with pytest.raises(ValueError, match="table_slots=2: relu does not, beside tanh, exp"):
        tables.add(standard_table("relu", UP5K, 16))
    assert tables.stored == 2 and len(tables.slots()) == 2


def test_the_memory_is_filled_to_its_last_entry():
    tables = TableSet(TINY)
    tables.add(build_table("tanh", TINY, low=-100, high=99, scale=5))
    tables.add(build_table("sigmoid", TINY, low=-28, high=27, scale=2))
    assert tables.used == TINY.table_depth == len(tables.memory())
    with pytest.raises(ValueError, match="needs 1 entries, 0 are left"):
        tables.add(build_table("exp", TINY, low=0, high=0, scale=0))
    assert tables.used == TINY.table_depth and len(tables.tables) == 2
