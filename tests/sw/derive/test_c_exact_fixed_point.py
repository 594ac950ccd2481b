"""Operations of TensorFlow Lite in C on codes: where each rounding counts, sums that do not fit, and whole files."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from concord.derive.c.program import compiler
from concord.derive.c_exact.program import ExactProgram
from concord.derive.c_exact.source import exact_files
from concord.integer import IntegerNetwork
from concord.integer.tflite.fixed_point import FixedPointMultiplier
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.prove.exact import prove_exact
from concord.transfer import CodeRange, Codes
from support.c_compilers import every_way
from support.c_units import CodeUnit, word
from support.derived_backends import needs_c
from support.fixed_point_graphs import FixedPointDraw, binary64, twice_rounded, wide, wide_binary64
from sw.derive.test_c_exact import compare, compare_program, expected, row_of_sums

pytestmark = needs_c

#: Kinds of requantisation, bits of their sums, and exponents of their scales.
KINDS = {"twice": (31, range(-31, 8)), "wide": (47, range(-31, 8)), "binary64": (31, range(-40, 3)),
         "wide binary64": (35, range(-40, 3))}  # fmt: skip
#: Sums of each scale.
EACH = 40


def near_the_middle(kind, scheme, exponents, rng):
    """Sums and scales whose product is near the middle between two codes, some of the sums ends of their bits."""
    bits, _ = KINDS[kind]
    sums, scales = [], []
    for exponent in exponents:
        scale = 2.0**exponent * (rng.uniform(1, 2) if rng.random() < 0.9 else 1)
        most = (1 << bits - max(exponent + 1, 0) * (kind == "twice")) - 1
        middles = rng.integers(scheme.low - 1, scheme.high + 1, EACH) + 0.5
        near = np.clip(np.rint(middles / scale) + rng.integers(-2, 3, EACH), -most, most).astype(np.int64)
        near[:6] = [-most, most, 0, 1, -1, most // 3]
        own = np.full(EACH, scale)
        if "binary64" in kind:  # most sums have scales with which they are the middle but for the last bit
            signs = np.sign(near[6:]) * np.sign(middles[6:])
            own[6:] = np.where(signs > 0, middles[6:] / np.where(near[6:], near[6:], 1), scale)
        sums.append(near)
        scales.append(own)
    return np.concatenate(sums), np.concatenate(scales)


def requantisation(kind, scales, scheme):
    ends = scheme.zero, scheme.low, scheme.high
    if "binary64" in kind:
        return Binary64Requantisation.of(scales, *ends, wide="wide" in kind)
    return FixedPointRequantisation(FixedPointMultiplier.of(scales), *ends, wide="wide" in kind)


@cache
def rows(kind, bits):
    """By name sums, their scales, and the graph: multipliers far apart, and alike."""
    rng, scheme = np.random.default_rng(bits), Codes(bits, 1.0, 0, CodeRange.SIGNED)
    made = {}
    for name, exponents in (("far", KINDS[kind][1]), ("alike", [-7] * 60)):
        sums, scales = near_the_middle(kind, scheme, exponents, rng)
        made[name] = sums, scales, row_of_sums(sums, requantisation(kind, scales, scheme), scheme)
    return made


#: What every compiler gets.
EVERYWHERE = CodeUnit(
    **{
        word(f"{kind} {name} {bits}"): lambda kind=kind, bits=bits, name=name: rows(kind, bits)[name][2]
        for kind in KINDS for bits in (8, 16) for name in ("far", "alike")
    }
)  # fmt: skip


@every_way
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_near_the_middle(command, options, kind, bits, tmp_path):
    """An exact product that is rounded once gives other codes."""
    other, x = 0, {"x": np.zeros((1, 1), np.int64)}
    scheme = Codes(bits, 1.0, 0, CodeRange.SIGNED)
    for name, (sums, scales, graph) in rows(kind, bits).items():
        program = EVERYWHERE.program(word(f"{kind} {name} {bits}"), tmp_path, command, options)
        assert compare_program(graph, x, program) == len(sums)
        exact = [
            int(Fraction(scale) * abs(total) + Fraction(1, 2))
            for total, scale in zip(sums.tolist(), scales, strict=True)
        ]
        plain = np.clip(np.sign(sums) * np.array(exact, dtype=object), scheme.low, scheme.high)
        other += np.sum(plain != expected(graph, x)["y"][0])
    assert other > 3


def with_bias(draw, output, most):
    """The same operation with a bias of its second channel that leaves no room."""
    k = next(k for k, operation in enumerate(draw.graph.operations) if operation.output == output)
    operation = draw.graph.operations[k]
    bias = np.where(np.arange(len(operation.bias)) == 1, most, operation.bias)
    draw.graph.operations[k] = replace(operation, bias=bias)


def overflowing():
    """Operations whose sums may have too many bits, of each kind; all have a place for flags."""
    draw = FixedPointDraw(5)
    with_bias(draw, draw.dense((6,), 5), (1 << 31) - 1)
    with_bias(draw, draw.convolution((2, 2, 3), 4, (2, 2), how=twice_rounded), (1 << 31) - 1)
    with_bias(draw, draw.dense((4, 6), 3, how=wide_binary64), (1 << 35) - 1)
    with_bias(draw, draw.convolution((2, 2, 2), 4, (2, 2), how=wide), (1 << 47) - 1)
    scales = np.float64([0.1, 900, 40, 5, 1])  # moves sums up by 10 bits at most
    shifted = draw.dense((6,), 5, how=lambda _, zero, **ends: twice_rounded(scales, zero, **ends))
    with_bias(draw, shifted, (1 << 21) - 1)
    return draw


@pytest.mark.slow
@pytest.mark.parametrize("options", [("-O0",), ("-O3",)])
def test_sums_that_do_not_fit(options, tmp_path):
    """Flags of samples and layers for which Python has an error."""
    draw = overflowing()
    samples = draw.samples(60)
    operations = draw.graph.operations
    codes, flags = ExactProgram(draw.graph, tmp_path, [compiler()], options).run(samples)
    assert flags.shape == (60, len(operations))
    assert all(0 < column.sum() < 60 for column in flags.T)
    for operation, column in zip(operations, flags.T, strict=True):
        for k in range(60):
            try:
                want = operation.run(samples[operation.inputs[0]][k : k + 1])[0]
            except OverflowError:
                assert column[k] == 1
            else:
                assert column[k] == 0 and np.array_equal(want, codes[operation.output][k])


def test_shares_of_16_bits(tmp_path):
    """They need every step of the reciprocal."""
    draw = FixedPointDraw(4, (16, 16))
    draw.softmax((3,))
    assert compare(draw.graph, draw.samples(400), tmp_path) == 1200


@pytest.mark.parametrize("options", [("-O0",), ("-O3",)])
def test_softmax_of_many_elements(options, tmp_path):
    """More than 4096 that are nearly equal have a sum of more than 31 bits."""
    draw = FixedPointDraw(3)
    y = draw.softmax((5000,))
    (x,) = draw.graph.inputs
    low = draw.graph.schemes[x].low
    rows = np.full((3, 5000), low)
    rows[0, :3000] += 255  # the power of the others is 0
    rows[1, 17] += 255
    codes, flags = ExactProgram(draw.graph, tmp_path, [compiler()], options).run({x: rows})
    (operation,) = draw.graph.operations
    assert flags.ravel().tolist() == [0, 0, 1] and np.array_equal(codes[y][:2], operation.run(rows[:2]))
    with pytest.raises(OverflowError):
        operation.run(rows)


def other_multiplier(operation):
    """The same with a multiplier whose last bit is another one."""
    how = operation.requantisation
    if isinstance(how, Binary64Requantisation):
        return replace(operation, requantisation=replace(how, exponent=how.exponent + 1))
    scale = replace(how.scale, multiplier=how.scale.multiplier + (1 << 22))
    return replace(operation, requantisation=replace(how, scale=scale))


@pytest.mark.slow
@pytest.mark.parametrize("make", [twice_rounded, wide, binary64])
def test_a_changed_multiplier_is_noticed(make, tmp_path):
    draw = FixedPointDraw(7)
    draw.dense((30,), 40, how=make)
    samples, changed = draw.samples(50), replace(draw.graph, operations=[other_multiplier(draw.graph.operations[0])])
    codes, _ = ExactProgram(changed, tmp_path, [compiler()]).run(samples)
    (output,) = codes
    assert (codes[output] != expected(draw.graph, samples)[output]).sum() > 5
    assert compare(draw.graph, samples, tmp_path) == 2000


def test_fixed_point_is_one_function():
    """It is written once, whatever reads it, and nothing that is not called is in the file."""
    draw = FixedPointDraw(1)
    draw.convolution((4, 4, 3), 3, (2, 2))
    draw.convolution((4, 4, 3), 3, (2, 2), groups=3)
    draw.sum((5,), (5,))
    source = exact_files(draw.graph, "net").source
    assert source.count("static inline int32_t fixed_point_product(") == 1 and "binary64_product" not in source
    assert "int64_t sums" not in source and "rounded_product" not in source


@pytest.mark.slow
def test_all_codes_are_compared():
    draw = FixedPointDraw(2)
    draw.convolution((4, 4, 3), 3, (2, 2))
    proof = prove_exact(IntegerNetwork(draw.graph), samples=4)
    assert proof.same and sum(proof.compared.values()) == 4 * (48 + 2 * 27)
