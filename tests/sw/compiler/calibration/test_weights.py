"""Weights that are rounded for the inputs of samples."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.compiler.calibration.weights import DAMPINGS, Rounder, Units, loss, rounded, units
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.graph.ir import Node
from concord.image.packing import depthwise_units, matrix_units, rounded_depthwise, rounded_matrix
from concord.spec.presets import PRESETS
from support.expressions import ROOMY, graph_of
from support.product_nets import PRODUCTS


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    preset=st.sampled_from(sorted(PRESETS)),
    mant=st.integers(3, 8),
    shape=st.one_of(
        st.tuples(st.integers(1, 37), st.integers(1, 37)),
        st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 37)),
        st.tuples(st.integers(1, 37), st.integers(1, 3), st.integers(1, 3)),
    ),
)
def test_multiples_of_units_are_held_exactly(seed, preset, mant, shape):
    """In any mixture: none of them needs a block with another unit to be rounded."""
    rng, config = np.random.default_rng(seed), PRESETS[preset]
    mant = min(mant, config.wgt_mant)
    in_units, hold = (depthwise_units, rounded_depthwise) if len(shape) == 3 else (matrix_units, rounded_matrix)
    # Near the greatest and below the least of what there are exponents for, and blocks without any.
    exponents = rng.integers(config.wgt_exp_min - 4, config.wgt_exp_max + config.wgt_mant - 1, shape)
    weight = rng.choice([-1, 1], shape) * rng.uniform(0.5, 1, shape) * 2.0**exponents
    weight[rng.random(shape[0]) < 0.3] = 0
    unit, largest = in_units(weight, config, mant), (1 << mant - 1) - 1
    assert unit.shape == shape
    np.testing.assert_array_equal(Units(unit, largest).nearest(weight), hold(weight, config, mant))
    for limit in (largest, 1, 2 + largest // 4):
        other = rng.integers(-limit, limit + 1, shape) * unit
        np.testing.assert_array_equal(hold(other, config, mant), other)
        np.testing.assert_array_equal(hold(other, config), other)
    # The next multiple is too much: units are not finer than they have to be.
    beyond = (largest + 1) * unit
    assert mant == config.wgt_mant or not (hold(beyond + unit, config, mant) == beyond + unit).any()


def correlated(rng, groups, inputs, count=None):
    """Mean products of inputs that have much in common, as those behind a mean that is not taken off."""
    x = rng.normal(0, 1, (groups, count or 4 * inputs, inputs)) + 2 * rng.normal(0, 1, (groups, count or 4 * inputs, 1))
    return x.swapaxes(1, 2) @ x / x.shape[1]


def some_units(rng, shape, mant=4):
    """Weights, and what they may become: units differ from one to the next."""
    weight = rng.normal(0, 1, shape)
    return weight, Units(2.0 ** rng.integers(-3, 0, shape), (1 << mant - 1) - 1)


@pytest.mark.parametrize("damping", DAMPINGS)
def test_inputs_that_are_not_alike_want_the_nearest(damping):
    rng = np.random.default_rng(5)
    weight, allowed = some_units(rng, (6, 3, 2, 2))
    for products in (np.eye(12)[None], np.stack([np.diag(rng.uniform(0.1, 9, 12)) for _ in range(2)])):
        np.testing.assert_array_equal(rounded(weight, allowed, products, damping), allowed.nearest(weight))
    np.testing.assert_array_equal(rounded(weight, allowed, np.zeros((1, 12, 12)), damping), allowed.nearest(weight))


@pytest.mark.parametrize("damping", DAMPINGS)
def test_weights_are_multiples_within_the_largest(damping):
    rng = np.random.default_rng(6)
    weight, allowed = some_units(rng, (8, 4, 3), mant=3)
    products = correlated(rng, 2, 12)
    found = rounded(weight, allowed, products, damping)
    codes = found / allowed.unit
    assert np.array_equal(codes, np.rint(codes)) and np.abs(codes).max() == 3
    assert (found != allowed.nearest(weight)).any()
    # Already there: nothing changes.
    np.testing.assert_array_equal(rounded(found, allowed, products, damping), found)


def test_correlated_inputs_lose_less():
    rng = np.random.default_rng(7)
    shares = []
    for _ in range(20):
        weight, allowed = some_units(rng, (16, 3, 3, 3), mant=5)
        products = correlated(rng, 2, 27)
        shares.append(
            loss(weight, rounded(weight, allowed, products, 0.01), products)
            / loss(weight, allowed.nearest(weight), products)
        )
    assert max(shares) < 0.4 and np.mean(shares) < 0.25  # measured: 0.36 and 0.23


@pytest.mark.slow
def test_it_is_near_the_best_of_all():
    """Against every choice of rounding up or down of four weights, summed over many."""
    rng = np.random.default_rng(8)
    sums = np.zeros(3)
    for _ in range(300):
        weight, allowed = some_units(rng, (1, 4), mant=5)
        products = correlated(rng, 1, 4, 16)
        low = np.floor(weight / allowed.unit)
        best = min(loss(weight, (low + up) * allowed.unit, products) for up in product((0, 1), repeat=4))
        own, nearest = rounded(weight, allowed, products, 0.01), allowed.nearest(weight)
        sums += best, loss(weight, own, products), loss(weight, nearest, products)
    assert sums[1] < 2.6 * sums[0] and sums[2] > 5.5 * sums[0]  # measured: 2.53 and 5.60


def _last(graph):
    return next(node for node in graph.nodes if node.name == "last")


def chosen(graph, x, mant=3):
    """Weights of the product ``last`` for samples, or None; the nearest ones."""
    compiled = compile_graph(graph, ROOMY, Formats(mantissas={"last": mant}))
    found = Rounder(graph, execute.run(graph, {"x": x}, keep="all")).weights(compiled).get("last")
    return found, units(graph, compiled)["last"].nearest(_last(graph).attrs["weight"])


def wide():
    rng = np.random.default_rng(9)
    attrs = {"weight": rng.normal(0, 0.5, (48, 40)), "bias": 0.1 * np.arange(1, 49)}
    return graph_of([Node("Dense", "last", ("x",), ("y",), attrs)], x=(1, 40))


@pytest.mark.parametrize("seed", range(6))
def test_noise_of_few_samples_decides_nothing(seed):
    """Fewer samples than inputs, and nothing in one half of them that is in the other."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 1, (16, 40))
    assert chosen(wide(), noise)[0] is None
    found, nearest = chosen(wide(), noise + 2 * rng.normal(0, 1, (16, 1)))
    assert found is not None and (found != nearest).any()


@pytest.mark.parametrize("make", PRODUCTS.values(), ids=PRODUCTS)
def test_one_sample_decides_nothing(make):
    graph, rng = make(), np.random.default_rng(10)
    shape = graph.sample_shape("x")
    alike = rng.normal(2, 0.1, (64, *shape)) + rng.normal(0, 1, (64, *[1] * len(shape)))
    assert chosen(graph, alike[:1])[0] is None
    assert chosen(graph, alike)[0] is not None


def test_inputs_that_are_always_the_same_are_no_trouble():
    """Their weights stay: what becomes of their mean is for the bias."""
    rng = np.random.default_rng(11)
    x = rng.normal(0, 0.3, (64, 40)) + rng.normal(0, 1, (64, 1))
    dead = [0, 7, 39]
    x[:, dead] = [0, 3, -1]
    found, nearest = chosen(wide(), x)
    np.testing.assert_array_equal(found[:, dead], nearest[:, dead])
    assert (found != nearest).any() and np.isfinite(found).all()
    assert chosen(wide(), np.zeros((64, 40)))[0] is None


@pytest.mark.parametrize("make", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("start", [0, 1])
def test_halves_are_those_of_half_of_the_samples(make, start):
    """Sums over quarters of all samples give what the samples of one half alone give."""
    graph, rng = make(), np.random.default_rng(12)
    shape = graph.sample_shape("x")
    x = rng.normal(2, 0.1, (42, *shape)) + rng.normal(0, 1, (42, *[1] * len(shape)))
    compiled = compile_graph(graph, ROOMY, Formats(mantissas={"last": 3}))
    whole, alone = (Rounder(graph, execute.run(graph, {"x": y}, keep="all")) for y in (x, x[start::2]))
    half = whole.halved(start)
    assert whole.divisible and not half.divisible
    want = alone.weights(compiled)
    found = half.weights(compiled)
    assert found.keys() == want.keys()
    for name, weight in want.items():
        np.testing.assert_array_equal(found[name], weight)
    again = whole.weights(compiled)  # a half leaves the whole as it is
    for name, weight in Rounder(graph, execute.run(graph, {"x": x}, keep="all")).weights(compiled).items():
        np.testing.assert_array_equal(again[name], weight)


@pytest.mark.parametrize("make", PRODUCTS.values(), ids=PRODUCTS)
def test_inputs_without_any_variance_keep_the_nearest_weights(make):
    """A constant that binary fractions do not hold: its mean, and so what is left of it, is rounded."""
    graph = make()
    x = np.full((37, *graph.sample_shape("x")), 0.1)
    x[::3] += 1e-17
    found, _ = chosen(graph, x)
    assert found is None or np.isfinite(found).all()
    compiled = compile_graph(graph, ROOMY, Formats(mantissas={"last": 3}))
    whole = Rounder(graph, execute.run(graph, {"x": x}, keep="all"))
    for rounder in (whole, whole.halved(0), whole.halved(1)):
        rounder.weights(compiled)
