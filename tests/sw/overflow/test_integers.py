"""Integer products of a network, counted fast and one after the other in Python integers."""

import itertools

import numpy as np
import pytest

from concord.functions.float64 import sigmoid
from concord.graph import execute
from concord.graph.ir import Node
from concord.overflow import KINDS, IntegerSettings, analyse_integers, codes_of_range, kind_of
from concord.overflow.layers import products
from concord.overflow.scaling import Excess, Factors, growth, scale, shrinkage
from concord.sums.counting import ORDERED, ProductBlock, count
from concord.sums.histogram import Histogram, SumStage
from concord.sums.reach import bound
from support.compiled_nets import attention, perceptron, recurrent
from support.expressions import graph_of, network, tensor
from support.overflow_reference import as_objects


def listed(terms, bias=None):
    """Products, sums and outputs of lists of factors, in order; a bias is added behind them."""
    found = {"product": [], "sum": [], "output": []}
    for row, pairs in enumerate(terms):
        total = 0
        for k, (a, b) in enumerate(pairs):
            found["product"].append(int(a) * int(b))
            total += int(a) * int(b)
            if k:
                found["sum"].append(total)
        if bias is not None:
            total += int(bias[row])
            found["sum"].append(total)
        found["output"].append(total)
    histograms = {}
    for name, values in found.items():
        histograms[name] = Histogram()
        histograms[name].count(as_objects(values))
    return histograms


def convolution(stride=1, pad=0, group=1, dilation=1, channels=4, outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    outputs = outputs or (3 if group == 1 else channels)
    weight, bias = rng.normal(0, 1, (outputs, channels // group, 3, 2)), rng.normal(0, 1, outputs)
    return network(tensor(1, channels, 6, 5).conv(weight, bias, stride, pad, dilation, group))


def convolved(node, x, w):
    """Factors of every output of a convolution of integers, by its definition: taps, then channels."""
    attrs = node.attrs
    (sy, sx), (dy, dx), pads, group = attrs["strides"], attrs["dilations"], attrs["pads"], attrs["group"]
    outputs, channels, kh, kw = w.shape
    height, width = x.shape[-2:]
    down = (height + pads[0] + pads[2] - (kh - 1) * dy - 1) // sy + 1
    across = (width + pads[1] + pads[3] - (kw - 1) * dx - 1) // sx + 1
    for image, o, i, j in itertools.product(x.reshape(-1, *x.shape[2:]), range(outputs), range(down), range(across)):
        pairs, base = [], o // (outputs // group) * channels
        for ky, kx, c in itertools.product(range(kh), range(kw), range(channels)):
            at_y, at_x = i * sy + ky * dy - pads[0], j * sx + kx * dx - pads[1]
            inside = 0 <= at_y < height and 0 <= at_x < width
            pairs.append((image[base + c, at_y, at_x] if inside else 0, w[o, c, ky, kx]))
        yield o, pairs


def samples(graph, count=2, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 1, (count, *graph.sample_shape(name))) for name in graph.inputs}


def codes(product, bits=8):
    x, w = (codes_of_range(side.min(), side.max(), bits) for side in (product.x, product.w))
    bias = None if product.bias is None else np.rint(product.bias / (x.steps * w.steps)).astype(np.int64)
    return x.codes_of(product.x), w.codes_of(product.w), bias


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "pad": 1}, {"pad": 2, "dilation": 2}, {"group": 4, "pad": 1}, {"group": 4, "stride": 2},
     {"group": 2, "outputs": 6}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("bits", [3, 8, 20])
def test_convolutions(options, bits):
    graph = convolution(**options)
    (product,) = products(graph, samples(graph))
    x, w, bias = codes(product, bits)
    rows, terms = zip(*convolved(graph.nodes[0], x, w), strict=True)
    assert count(product.arrange(x, w, bias)) == listed(terms, bias[list(rows)])
    assert count(product.arrange(x, w, None)) == listed(terms)


@pytest.mark.parametrize("bits", [8, 30])
def test_fully_connected(bits):
    graph = perceptron(7, 4)
    (product,) = products(graph, samples(graph))
    x, w, bias = codes(product, bits)
    terms = [list(zip(v, row, strict=True)) for v in x.reshape(-1, 7) for row in w]
    assert count(product.arrange(x, w, bias)) == listed(terms, bias.tolist() * 2)


def graph_convolution(nodes=4, features=3, hidden=5):
    """Adjacency times features times weights, twice; the adjacency is an input."""
    rng = np.random.default_rng(3)
    a, x = tensor(1, nodes, nodes, name="a"), tensor(1, nodes, features)
    c = a.combined("MatMul", x, name="gather0").dense(rng.normal(0, 1, (hidden, features)), name="fc0")
    d = c.relu(name="d")
    return network(a.combined("MatMul", d, name="gather1").dense(rng.normal(0, 1, (2, hidden)), name="fc1"))


def test_graph_convolutions():
    graph = graph_convolution()
    assert kind_of(graph) == "graph"
    values = execute.run(graph, samples(graph), keep="all")
    found = {product.name: product for product in products(graph, samples(graph))}
    assert list(found) == ["gather0", "fc0", "gather1", "fc1"]
    for name, second in (("gather0", "x"), ("gather1", "d.out")):
        product = found[name]
        x, w, bias = codes(product)
        assert bias is None and product.w.reshape(values[second].shape).tolist() == values[second].tolist()
        terms = [
            [(x[s, 0, i, k], w[s, 0, k, j]) for k in range(4)]
            for s, i, j in itertools.product(range(2), range(4), range(w.shape[-1]))
        ]
        assert count(product.arrange(x, w, None)) == listed(terms)


@pytest.mark.parametrize(("op", "linear"), [("LSTM", 0), ("GRU", 0), ("GRU", 1), ("RNN", 0)])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent_layers(op, direction, linear):
    extra = {"linear_before_reset": bool(linear)} if op == "GRU" else {}
    graph = recurrent(op, 3, 2, 4, direction=direction, **extra)
    node, inputs = next(n for n in graph.nodes if n.op == op), samples(graph)
    values = execute.run(graph, inputs, keep="all")
    x = values[node.inputs[0]].reshape(-1, *graph.shapes[node.inputs[0]])
    found = {product.name: product for product in products(graph, inputs) if product.operator == op}
    for d in range(len(node.attrs["W"])):
        number = f".{d}" if direction == "bidirectional" else ""
        states, gated = walked(op, node, d, x)
        products_of_x = found[f"{node.name}{number}.W"]
        assert np.array_equal(np.sort(products_of_x.x.ravel()), np.sort(x.ravel()))
        np.testing.assert_allclose(found[f"{node.name}{number}.R"].x[:, :, 0], states, atol=1e-12)
        if op == "GRU" and not linear:
            np.testing.assert_allclose(found[f"{node.name}{number}.R_h"].x[:, :, 0], gated, atol=1e-12)
    for product in found.values():
        xs, w, bias = codes(product)
        vectors = xs.reshape(-1, xs.shape[-1])
        terms = [list(zip(v, row, strict=True)) for v in vectors for row in w]
        want = listed(terms, None if bias is None else bias.tolist() * len(vectors))
        assert count(product.arrange(xs, w, bias)) == want


def walked(op, node, d, x):
    """States that each step reads ``[samples, steps, hidden]``, and those a GRU has reset, by the definition."""
    tanh = np.tanh
    w, r, hidden = node.attrs["W"][d], node.attrs["R"][d], node.attrs["hidden_size"]
    wb, rb = np.split(node.attrs["B"][d], 2)
    read, gated = [], []
    for sample in x[:, ::-1] if d else x:
        h = c = np.zeros(hidden)
        for v in sample[:, 0]:
            read.append(h)
            a, b = w @ v + wb, r @ h + rb
            if op == "RNN":
                h = tanh(a + b)
            elif op == "LSTM":
                i, o, f, g = np.split(a + b, 4)
                c = sigmoid(f) * c + sigmoid(i) * tanh(g)
                h = sigmoid(o) * tanh(c)
            else:
                z, reset = np.split(sigmoid(a[: 2 * hidden] + b[: 2 * hidden]), 2)
                gated.append(reset * h)
                last = slice(2 * hidden, None)
                if node.attrs["linear_before_reset"]:
                    inner = reset * b[last]
                else:
                    inner = r[last] @ (reset * h) + rb[last]
                h = (1 - z) * tanh(a[last] + inner) + z * h
    shape = len(x), -1, hidden
    return np.reshape(read, shape), np.reshape(gated, shape) if gated else None


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [2, 8, 22, 31])
def test_random_blocks(seed, size):
    rng = np.random.default_rng(seed)
    groups, terms, columns, rows = rng.integers(1, 5, 4).tolist()
    most = 1 << size
    x = rng.choice([-most, most - 1, 0, 1, -1, int(rng.integers(-most, most))], (groups, terms, columns))
    w = rng.choice([-most, most - 1, 0, 1, -1, int(rng.integers(-most, most))], (groups, rows, terms))
    bias = rng.integers(-most, most, (groups, rows)) if seed % 2 else None
    order = list(itertools.product(range(groups), range(rows), range(columns)))
    lists = [[(x[g, k, c], w[g, o, k]) for k in range(terms)] for g, o, c in order]
    want = listed(lists, None if bias is None else [bias[g, o] for g, o, _ in order])
    assert count([ProductBlock(x, w, bias)]) == want


@pytest.mark.parametrize("bits", [22, 24, 51, 53])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bias_far_above_the_products(bits, sign):
    """It decides about the type of the sums: just beyond a power of two is a number that float types do not have."""
    rows = np.array([[sign, 0], [0, 0], [0, 0]])
    for bias in (sign * 2 ** (bits + 1) - (2 if sign > 0 else 0), sign * 2**bits, sign * (2**bits - 1)):
        offsets = np.array([bias, 0, -sign])
        want = listed([[(1, w), (1, 0)] for w, _ in rows.tolist()], offsets.tolist())
        assert count([ProductBlock(np.ones((1, 2, 1), np.int64), rows[None], offsets[None])]) == want


def test_another_order_and_a_missing_sum_are_noticed():
    rng = np.random.default_rng(1)
    x, w = rng.integers(-127, 128, (1, 40, 9)), rng.integers(-127, 128, (1, 3, 40))
    found = count([ProductBlock(x, w)])
    backward = count([ProductBlock(x[:, ::-1], w[:, :, ::-1])])
    assert [stage for stage in ORDERED if backward[stage] != found[stage]] == [SumStage.SUM]
    assert count([ProductBlock(x[:, 1:], w[:, :, 1:])])[SumStage.SUM] != found[SumStage.SUM]


def bound_bits(*arguments):
    """Bits of what elements in a range can make, by stage."""
    extremes = bound(*arguments)
    return {stage: extremes.bits(stage) for stage in ORDERED}


@pytest.mark.parametrize("seed", range(10))
def test_bounds_are_reached_by_some_input(seed):
    """Elements at the end that suits the sign of each weight make the greatest sum, others none beyond the bound."""
    rng = np.random.default_rng(seed)
    w, bias = rng.integers(-127, 128, (3, 12)), rng.integers(-(1 << 20), 1 << 20, 3)
    low, high = -int(rng.integers(0, 129)), int(rng.integers(1, 256))
    bits = bound_bits(w, bias, (low, high))
    worst = np.concatenate([np.where(w > 0, high, low), np.where(w > 0, low, high)]).T[None]
    sums = count([ProductBlock(worst, w[None], bias[None])])
    assert {name: stage.bits for name, stage in sums.items()} == bits
    any_x = rng.integers(low, high + 1, (1, 12, 300))
    others = count([ProductBlock(any_x, w[None], bias[None])])
    assert all(stage.bits <= bits[name] for name, stage in others.items())


def test_a_sum_may_be_greater_before_its_bias():
    """The bias takes off what the products have made: the sums need the bits all the same."""
    assert bound_bits(np.array([[127, 127]]), np.array([-32768]), (0, 255)) == {"product": 16, "sum": 17, "output": 16}
    assert bound_bits(np.array([[127, 127]]), None, (0, 255)) == {"product": 16, "sum": 17, "output": 17}


# Scaling -----------------------------------------------------------------------------------------


def test_growth_rises_with_frequency_and_amount():
    settings = IntegerSettings()
    counts, bits = (1, 10, 500, 1000), (1, 2, 3, 9)
    grid = [[growth(Excess(n, 1000, b), settings) for n in counts] for b in bits]
    assert all(a < b for row in grid for a, b in itertools.pairwise(row))
    assert all(a < b for column in zip(*grid, strict=True) for a, b in itertools.pairwise(column))
    assert growth(Excess(0, 1000, -3), settings) == 1.0 < min(map(min, grid))


def test_shrinkage_is_between_0_and_1():
    found = [shrinkage(Excess(0, 10, -bits)) for bits in (1, 2, 8)]
    assert all(0 < b < a < 1 for a, b in itertools.pairwise(found)) and shrinkage(Excess(0, 10, 0)) == 1.0


def test_weights_and_inputs_have_factors_of_their_own():
    grown = Factors().times(16.0, 0.25)
    assert grown == Factors(2.0, 8.0)
    assert Factors(2.0, 2.0).times(0.125, 0.5, Factors(1.0, 0.1)).weight == 1.0
    both = Factors(1.5, 4.0).times(0.25, 0.5, Factors(1.0, 1.0))
    assert both.weight * both.input == pytest.approx(1.5)  # what the weights cannot take the inputs do


@pytest.mark.parametrize("width", [1, 6, 8, 12, 16, 20, 31, 64])
@pytest.mark.parametrize("output_width", [10, 16])
@pytest.mark.parametrize("threshold", [0, 25])
def test_layers_end_within_the_threshold(width, output_width, threshold):
    graph = perceptron(30, 9, 4)
    settings = IntegerSettings(width=width, output_width=output_width, threshold=threshold, rounding="nearest")
    analysis = analyse_integers(graph, samples(graph, 20), settings=settings)
    assert not analysis.overflowing and all(layer.scaling.within for layer in analysis.layers)
    for layer in analysis.layers:
        assert layer.overflows(width, output_width) <= threshold
        assert all(stage.observed <= stage.bound for stage in layer.stages)
        assert layer.scaling.weight_factor >= 1.0 and layer.scaling.input_factor >= 1.0


def test_an_unused_range_shrinks():
    graph = perceptron(8, 3)
    inputs = {"x": np.clip(samples(graph, 30)["x"], -2, 2)}
    settings = IntegerSettings(width=32, output_width=32)
    wide = analyse_integers(graph, inputs, settings=settings, ranges={"x": (-64.0, 64.0)})
    (layer,) = wide.layers
    used = np.abs(inputs["x"]).max() / 64.0
    assert layer.scaling.input_factor == pytest.approx(used) and layer.scaling.within and layer.scaling.rounds > 1
    (plain,) = analyse_integers(graph, inputs, settings=settings).layers
    assert plain.scaling.input_factor == 1.0 and layer.stages[2].observed >= plain.stages[2].observed - 1


def test_cutting_off_fills_the_width():
    graph = perceptron(8, 3)
    inputs = samples(graph, 30)
    settings = IntegerSettings(width=30, output_width=30, rounds=10)
    (whole,) = analyse_integers(graph, inputs, settings=settings).layers
    (cut,) = analyse_integers(graph, inputs, settings=settings.replace(clip=True)).layers
    assert cut.scaling.weight_factor < 1.0 == whole.scaling.weight_factor and cut.scaling.within


def test_what_cannot_be_reached_is_told():
    """Steps that round down leave -1 for the least negative number: 1 bit never holds the product of two."""
    graph = perceptron(20, 4)
    analysis = analyse_integers(graph, samples(graph), settings=IntegerSettings(width=1, output_width=1, rounds=5))
    (layer,) = analysis.layers
    assert not layer.scaling.within and layer.scaling.rounds == 5 and analysis.overflowing == (layer,)


def test_a_range_that_was_shrunk_too_far_stays_as_it_was():
    sums = {bits: count([ProductBlock(np.full((1, 2, 1), 1 << bits), np.ones((1, 1, 2), int))]) for bits in (2, 9)}
    tried = []

    def counted(factors):
        tried.append(factors)
        return sums[2 if len(tried) == 1 else 9]

    found = scale(counted, IntegerSettings(width=8, output_width=8), Factors(0.01, 0.01))
    assert found.within and found.factors == Factors() and found.sums == sums[2] and len(tried) == 2


def test_the_last_range_within_the_threshold_is_kept():
    ones = np.ones((1, 1, 2), int)
    sums = {bits: count([ProductBlock(np.full((1, 2, 1), 1 << bits), ones)]) for bits in (2, 3, 4, 9)}
    tried, bits = [], iter((2, 3, 4, 9))

    def counted(factors):
        tried.append(factors)
        return sums[next(bits)]

    found = scale(counted, IntegerSettings(width=8, output_width=8), Factors(1e-9, 1e-9))
    assert found.within and found.factors == tried[2] and found.sums == sums[4] and found.rounds == len(tried) == 4


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        (perceptron(3, 2), "dense"),
        (convolution(), "cnn"),
        (recurrent("LSTM", 2, 2, 2), "lstm"),
        (recurrent("GRU", 2, 2, 2), "recurrent"),
        (attention(), "graph"),
    ],
)
def test_kinds_have_defaults(graph, kind):
    assert kind_of(graph) == kind
    analysis = analyse_integers(graph, samples(graph))
    settings = KINDS[kind]
    assert (analysis.width, analysis.output_width, analysis.threshold) == (settings.width, settings.output_width, 0)
    assert not analysis.overflowing
    other = analyse_integers(graph, samples(graph), kind="lstm")
    assert other.width == KINDS["lstm"].width


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, r"width must be an integer in 1\.\.64, not 0"),
        ({"output_width": 65}, r"output_width must be an integer in 1\.\.64, not 65"),
        ({"input_width": 33}, r"input_width must be an integer in 1\.\.32, not 33"),
        ({"threshold": -1}, "threshold must be an integer of at least 0, not -1"),
        ({"weight_share": 1.5}, r"weight_share must be in 0\.\.1, not 1.5"),
        ({"least": 0.0}, "least and most must be 0 < least <= most, not 0.0"),
        ({"per_bit": -1.0}, "per_bit must be a finite number of at least 0, not -1.0"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"rounding": "up"}, "rounding must be floor or nearest, not 'up'"),
    ],
)
def test_settings_that_are_not_possible(change, message):
    with pytest.raises(ValueError, match=message):
        IntegerSettings(**change)


def test_what_is_not_possible():
    graph = perceptron(3, 2)
    with pytest.raises(ValueError, match="kind must be one of cnn, dense"):
        analyse_integers(graph, samples(graph), kind="tree")
    with pytest.raises(ValueError, match="ranges must be of inputs of the network, x, not"):
        analyse_integers(graph, samples(graph), ranges={"z": (0, 1)})
    with pytest.raises(ValueError, match="range of x must hold the samples"):
        analyse_integers(graph, samples(graph), ranges={"x": (0, 0.1)})
    nothing = graph_of([Node("Relu", "relu", ("x",), ("y",))], x=(1, 3))
    with pytest.raises(ValueError, match="network test must have a product, and has none"):
        analyse_integers(nothing, samples(nothing))
