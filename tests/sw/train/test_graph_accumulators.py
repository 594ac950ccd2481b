"""Graph networks for accumulators of few bits: both products are watched, and the NPU gives the same bits."""

from dataclasses import replace

import numpy as np
import pytest

from concord.graph.ir import Node
from concord.graph.signs import never_negative
from concord.overflow.kinds import KINDS
from concord.spec.presets import ECP5_25F, ECP5_85F
from concord.sums.reach import radius
from concord.train import adjacency_of
from concord.train.bound import row_norms
from concord.train.layers.base import PassContext
from concord.train.layers.dense import FixedDense
from concord.train.overflow_monitor import moved
from concord.train.tensor import Tensor
from support.bounded import same_bits_on_the_npu, within_bound
from support.graph_nets import RING, linear, trainer


def test_both_products_have_an_accumulator_and_the_settings_of_the_kind():
    got = trainer(accumulator_bits=14, lanes=4, method="bound", grid="layer")
    assert {name: (site.tensor, site.positive, site.fixed) for name, site in got.monitor.sites.items()} == {
        "graph_conv1.features": ("x", False, False),
        "graph_conv1.neighbours": ("graph_conv1.turned", False, True),
        "graph_conv2.features": ("relu1", True, False),
        "graph_conv2.neighbours": ("graph_conv2.turned", False, True),
        "dense1": ("flatten1", True, False),
    }
    assert got.monitor.counting == KINDS["graph"].replace(width=14, output_width=14)
    assert (KINDS["graph"].threshold, KINDS["graph"].weight_share) == (0, 0.5)
    mixed_first = linear(np.random.default_rng(1), "(A X) W")
    assert not never_negative(mixed_first, "p")
    mixed_first.nodes[1:1] = [Node("Relu", "relu", ("i",), ("r",))]
    mixed_first.nodes[2] = mixed_first.nodes[2].replace(inputs=("r",))
    assert not never_negative(mixed_first, "p")  # the matrix has negative elements
    k = next(k for k, node in enumerate(mixed_first.nodes) if node.attrs.get("fixed"))
    mixed_first.nodes[k] = mixed_first.nodes[k].with_attrs(weight=np.abs(mixed_first.nodes[k].attrs["weight"]))
    assert never_negative(mixed_first, "p")
    mixed_first.nodes[k] = mixed_first.nodes[k].with_attrs(bias=-np.ones(4))
    assert not never_negative(mixed_first, "p")


def test_the_predictor_counts_every_product_and_every_partial_sum_of_both():
    """In Python integers, product by product."""
    got = trainer(accumulator_bits=9, lanes=1, method="plain", samples=3)
    rows = np.arange(12)
    got.monitor.count_next(len(rows))
    got._forward(got.samples, rows, PassContext(got.settings.formats))
    scale, found = got.monitor.scales[0], {name: site.sums for name, site in got.monitor.sites.items()}
    x = np.rint(got.samples.inputs(rows[:3]).reshape(3, 6, 3) * 2.0**-scale.exp).astype(int)
    w = got.network.parameters["graph_conv1.features.weight"].tensor.mant.astype(int)
    a = got.network.constants["graph_conv1.neighbours.weight"].tensor.mant.astype(int)
    products = [
        [int(x[s, n, k]) * int(w[o, k]) for k in range(3)] for s in range(3) for n in range(6) for o in range(5)
    ]
    check_counts(found["graph_conv1.features"], products)
    features = np.array([ended(terms) for terms in products]).reshape(3, 6, 5) * 2.0 ** (
        scale.exp + int(got.network.parameters["graph_conv1.features.weight"].exp[0])
    )
    read = np.clip(np.rint(features.astype(np.float16).astype(float) * 2.0**-scale.exp), -127, 127).astype(int)
    products = [[int(a[i, n]) * int(read[s, n, o]) for n in range(6)] for s in range(3) for o in range(5)
                for i in range(6)]  # fmt: skip
    check_counts(found["graph_conv1.neighbours"], products)


def ended(terms, most=255):
    """A sum in a register of 9 bits: the first term or sum that does not fit ends it."""
    total = 0
    for term in terms:
        for value in (term, total + term):
            if not -most - 1 <= value <= most:
                return most + 1 if value > 0 else -most - 2
        total += term
    return total


def check_counts(found, rows):
    flat = [p for row in rows for p in row]
    partial = [int(s) for row in rows for s in np.cumsum(row)[1:]]
    assert (found["product"].total, found["sum"].total) == (len(flat), len(partial))
    for width in range(2, 12):
        most = 2 ** (width - 1)
        beyond = [sum(not -most <= v < most for v in values) for values in (flat, partial)]
        assert [found["product"].beyond(width), found["sum"].beyond(width)] == beyond
        assert all(beyond) or width > 7


def test_a_sum_over_neighbours_ends_where_a_single_product_or_sum_leaves():
    """Nodes are positions: no lanes are added up in front of the register."""
    rng = np.random.default_rng(2)
    got = trainer(accumulator_bits=10, lanes=8, method="plain")
    layer = next(layer for layer in got.network.layers if isinstance(layer, FixedDense))
    x = Tensor(rng.integers(-30, 31, (4, 1, 5, 6)).astype(np.float32), got.monitor.scales[0].exp, 127)
    y, _ = layer.forward([x], PassContext(got.settings.formats, monitor=got.monitor))
    a = layer.weight.tensor
    want = [[int(a.mant[i, n]) * int(x.mant[s, 0, o, n]) for n in range(6)] for s in range(4) for o in range(5)
            for i in range(6)]  # fmt: skip
    values = np.array([ended(terms, 511) for terms in want]) * 2.0 ** (x.exp + a.exp)
    assert np.array_equal(y[0].values.reshape(-1), values.astype(np.float16))
    assert 0 < got.monitor.counts.ended < len(values)


@pytest.mark.parametrize("grid", ["network", "layer"])
def test_a_constant_gets_within_the_bound_by_its_exponent(grid):
    """Trained weights are projected; the ratios of an adjacency stay."""
    got = trainer(accumulator_bits=8, lanes=2, method="bound", grid=grid)

    got.fit(within_bound)
    assert got.history[-1].overflow.ended == 0
    for site in (site for site in got.monitor.sites.values() if site.fixed):
        step = 2.0 ** int(site.weight.exp[0])
        assert np.abs(site.weight.values - adjacency_of(6, RING)).max() <= step / 2 * (1 + 2.0**-14)


def test_the_least_exponent_within_the_bound_is_taken():
    got = trainer(accumulator_bits=8, lanes=1, method="bound", grid="layer")
    scale = next(scale for scale in got.monitor.scales if scale.sites[0].fixed)
    (site,) = scale.sites
    limit, fmt, exp = radius(8, got.monitor._limits(scale)[1]), site.weight.fmt, int(site.weight.exp[0])
    assert row_norms(site.weight, False).max() <= limit
    assert row_norms(moved(site.weight, exp - 1, replace(fmt, bits=16)), False).max() > limit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits_of", "method", "grid", "before"),
    [(16, "evidence", "network", ECP5_85F), (12, "evidence", "network", ECP5_25F), (12, "bound", "network", ECP5_25F),
     (12, "evidence", "layer", ECP5_85F)],
    ids=["16, evidence", "12, evidence", "12, bound", "12, evidence by layer"],
)  # fmt: skip
def test_the_npu_with_that_accumulator_gives_the_same_bits(bits_of, method, grid, before):
    got = trainer(accumulator_bits=bits_of, method=method, grid=grid, lanes=before.lanes)
    got.fit()
    evidence, _ = same_bits_on_the_npu(got, before)
    assert {layer.name for layer in evidence.layers} == set(got.monitor.sites)
    assert all(layer.observed <= bits_of and not layer.beyond for layer in evidence.layers)


def test_a_bias_is_what_the_npu_adds():
    """In binary16, and no finer than its last bit."""
    rng = np.random.default_rng(3)
    monitor = trainer(accumulator_bits=16, lanes=2).monitor
    for exp, at in ((-9, -12), (-14, -28), (-3, -9), (-24, -24), (2, -26)):
        x = Tensor(rng.integers(-2000, 2001, (3, 40)).astype(np.float64), exp, 2000)
        bias = Tensor(rng.integers(-127, 128, 40).astype(np.float64), at, 127)
        exact = np.sign(bias.mant) * np.floor(np.abs(bias.mant) * 2.0 ** (at + 24) + 0.5) * 2.0**-24
        want = (x.values.astype(np.float16) + exact.astype(np.float16)).astype(float)
        got = monitor.add_binary16(Tensor(x.values.astype(np.float16).astype(float) * 2.0**24, -24, 1 << 40), bias)
        assert np.array_equal(got.values, want) and np.array_equal(got.mant, np.rint(got.mant))
        if np.array_equal(x.values.astype(np.float16), x.values):
            assert np.array_equal(monitor.add_binary16(x, bias).values, want)
    far = monitor.add_binary16(Tensor(np.full((1, 1), 65504.0), 0, 65504), Tensor(np.full(1, 100.0), 0, 100))
    assert far.values == 65504
