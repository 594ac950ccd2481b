"""Layer normalisation: its rules in fractions, its derivative, and what is trained with it."""

from fractions import Fraction

import numpy as np
import pytest

from concord.frontend import import_model
from concord.golden.normalise import nearest, reciprocal_root, rounded_quotient
from concord.graph import execute
from concord.spec.training import TrainingFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer, described, export_onnx
from concord.train.layers.base import PassContext
from concord.train.network import TrainableNetwork
from concord.train.noise import raw
from concord.train.norm import on_one_grid
from concord.train.overflow_settings import OverflowSettings
from concord.train.quotients import nearest_quotients, reciprocal_roots, rounded_quotients, together_on_one_grid
from concord.train.tensor import Dyadic, Tensor, top_of
from support.exact_numbers import away, short, slopes, up, worth
from support.expressions import network, tensor
from support.sequences import LENGTH, WORDS, sentences
from support.train_digits import FORMATS, assert_a_break_changes_nothing, digits

WIDE = TrainingFormats(weight=TrainingFormat(24), activation=TrainingFormat(24), gradient=TrainingFormat(28))
#: Each word is known by its neighbours, which one product puts side by side for all.
LAYERS = [
    {"op": "embedding", "rows": WORDS + 1, "outputs": 8}, {"op": "flatten"}, {"op": "dense", "outputs": 32},
    {"op": "layer_norm", "name": "norm"}, {"op": "relu"}, {"op": "dense", "outputs": WORDS},
]  # fmt: skip


# Numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("den", [1, 2, 3, 7, 64, 100, 12345])
def test_quotients_have_the_bits_of_those_with_long_integers(den):
    rng = np.random.default_rng(den)
    nums = np.concatenate([
        rng.integers(-(1 << 45), 1 << 45, 300), rng.integers(-300, 300, 300), [0, den, -den, den // 2, 1 << 45],
        den * rng.integers(-(1 << 18), 1 << 18, 300) + den // 2,  # halves, where den is even
        (np.int64(1) << np.arange(46)) * den, (np.int64(1) << np.arange(16, 46)) - 1,
    ])  # fmt: skip
    assert rounded_quotients(nums, den).tolist() == [rounded_quotient(n, den) for n in nums.tolist()]
    mants, exps = nearest_quotients(nums, den, 16)
    assert list(zip(mants.tolist(), exps.tolist(), strict=True)) == [nearest(n, den, 0, 16) for n in nums.tolist()]


@pytest.mark.parametrize("epsilon", [1e-5, 2.0**-60, 1.0])
def test_roots_have_the_bits_of_those_with_long_integers(epsilon):
    rng = np.random.default_rng(3)
    nums = np.concatenate([[0, 0, 1, 4, 1 << 40], rng.integers(0, 1 << 40, 300)])
    exps = np.concatenate([[0, -300, -2, 2, 40], 2 * rng.integers(-40, 20, 300)])
    for den in (1, 7, 64):
        mants, at = reciprocal_roots(nums, den, exps, Dyadic.nearest(epsilon), 16)
        for num, exp, got in zip(
            nums.tolist(), exps.tolist(), zip(mants.tolist(), at.tolist(), strict=True), strict=True
        ):
            worth = Fraction(num, den) * Fraction(2) ** exp + Dyadic.nearest(epsilon).value
            assert got == reciprocal_root(worth.numerator, worth.denominator, 0, 16)


def test_roots_near_a_half_are_decided_by_integers():
    """Roots would be in the middle of two numbers, were it not for what is added, which is nothing in doubles."""
    tiny = Dyadic(1, -200)
    for middle in range(2 * 40000 + 1, 2 * 40000 + 81, 2):  # half a unit of 16 bits
        mants, at = reciprocal_roots(np.array([1 << 40]), middle**2, np.array([-6]), tiny, 16)
        worth = Fraction(1 << 34, middle**2) + tiny.value
        assert (int(mants[0]), int(at[0])) == reciprocal_root(worth.numerator, worth.denominator, 0, 16)
        assert int(mants[0]) == middle // 2
    exact = reciprocal_roots(np.array([0]), 1, np.array([0]), Dyadic(1, 0), 16)  # 1 itself
    assert [int(x[0]) for x in exact] == [1 << 15, -15]


def test_numbers_on_one_grid():
    rng = np.random.default_rng(5)
    mants, exps = rng.integers(-(1 << 16), 1 << 16, 40), rng.integers(-30, 10, 40)
    mants[:3] = 0
    got = together_on_one_grid(mants, exps, 30)
    want = on_one_grid(list(zip(mants.tolist(), exps.tolist(), strict=True)), 30)
    assert (got.exp, got.peak, got.mant.tolist()) == (want.exp, want.peak, want.mant.tolist())
    assert together_on_one_grid(mants[:3], exps[:3], 30).mant.tolist() == [0, 0, 0]


# Passes by their definition ------------------------------------------------------------------------------


def by_definition(x, g, gamma, epsilon, centred):
    """Values, and gradients of gamma and input, of groups ``[groups, elements]``, number by number."""
    count, unit = len(x.mant[0]), Fraction(2) ** x.exp
    fine = max(0, 30 - top_of(x.mant).bit_length())
    roots, products = [], []
    for group in x.mant.astype(np.int64).tolist():
        centre = away(Fraction(sum(group) << fine, count)) if centred else 0
        u, _ = short([((v << fine) - centre) * unit / 2**fine for v in group], x.exp - fine)
        spread = sum(c * c for c in u) / count + epsilon
        roots.append(reciprocal_root(spread.numerator, spread.denominator, 0, 16))
        products.append([c * worth(*roots[-1]) for c in u])
    at = up(max(abs(p) for group in products for p in group)) - 15
    step = Fraction(2) ** at
    normal = [[max(min(away(p / step), 32767), -32767) * step for p in group] for group in products]
    gammas = [worth(m, gamma.exp) for m in gamma.mant]
    values = [[n * s for n, s in zip(group, gammas, strict=True)] for group in normal]
    given = [[worth(v, g.exp) for v in group] for group in g.mant]
    scale = [sum(a[k] * b[k] for a, b in zip(given, normal, strict=True)) for k in range(count)]
    scaled = [v * s for group in given for v, s in zip(group, gammas, strict=True)]
    scaled, exp = short(scaled, g.exp + gamma.exp)
    scaled = [scaled[k : k + count] for k in range(0, len(scaled), count)]
    fine = max(0, 30 - max(abs(int(v / Fraction(2) ** exp)) for group in scaled for v in group).bit_length())
    grid, left = Fraction(2) ** (exp - fine), []
    for group, n in zip(scaled, normal, strict=True):
        mean = away(sum(group) / count / grid) if centred else 0
        slope = sum(a * b for a, b in zip(group, n, strict=True)) / count / grid
        slope = worth(*nearest(slope.numerator, slope.denominator, 0, 16))
        left += [(v / grid - mean - away(a * slope)) * grid for v, a in zip(group, n, strict=True)]
    left, _ = short(left, exp - fine)
    factors = on_one_grid(roots, 30)
    back = [v * worth(factors.mant[k // count], factors.exp) for k, v in enumerate(left)]
    return values, scale, [back[k : k + count] for k in range(0, len(back), count)]


def one_layer(count, scale, epsilon=1e-5, centred=True, formats=None):
    """A normalisation behind a product, which makes its input trained."""
    attrs = {"axes": (2,), "centred": centred, "epsilon": epsilon, "scale": np.asarray(scale, float)}
    normal = tensor(1, 3, count).dense(np.eye(count) / 2).then("Normalise", name="norm", **attrs)
    return TrainableNetwork(network(normal), formats or TrainingFormats()).layers[1]


def near(got, want, width=31):
    """Whether numbers are those, rounded as an intermediate is where they have more bits."""
    flat = [v for group in want for v in group] if isinstance(want[0], list) else want
    step = Fraction(2) ** got.exp
    return got.mant.reshape(-1).astype(np.int64).tolist() == [
        max(min(away(v / step), (1 << width) - 1), 1 - (1 << width)) for v in flat
    ]


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_passes_by_their_definition(seed, centred):
    rng = np.random.default_rng(seed)
    count = [1, 2, 3, 5, 8, 12][seed]
    top = [7, 1 << 10, (1 << 24) - 3, (1 << 31) - 1, 1 << 20, 100][seed]
    mant = rng.integers(-top, top + 1, (2, 1, 3, count))
    mant[0, 0, 0], mant[1, 0, 1, 0] = top, -top  # a group of one number, which may be far from others
    mant[1, 0, 2] = rng.integers(-3, 4, count)
    x = Tensor(mant.astype(np.float64), -9, top)
    layer = one_layer(count, rng.normal(size=count) * 3, [1e-5, 1e-12, 1.0][seed % 3], centred)
    layer.first = False
    context = PassContext(TrainingFormats())
    (y,), memory = layer.forward([x], context)
    g = rng.integers(-32767, 32768, mant.shape)
    g[0, 0, 0, 0] = 32767
    given = Tensor(g.astype(np.float64), -20, 32767)
    (back,), changes = layer.backward([given], memory, context)
    rows = [t.with_mant(t.mant.reshape(-1, count)) for t in (x, given)]
    values, scale, inner = by_definition(*rows, layer.weight.tensor, layer.epsilon.value, centred)
    assert near(y, values) and near(changes["scale"], scale) and near(back, inner)
    assert y.mant.any() == (count > 1 or not centred) and back.mant.shape == x.mant.shape


@pytest.mark.parametrize("axes", [(1,), (2, 3), (1, 2, 3), (1, 3)])
def test_groups_are_those_of_the_axes(axes):
    """As the same elements in the last axis give it, whatever axes they are in."""
    rng = np.random.default_rng(len(axes))
    shape = (1, 3, 4, 5)
    rest = [axis for axis in range(1, 4) if axis not in axes]
    order, count = [0, 1, *(a + 1 for a in rest), *(a + 1 for a in axes)], int(np.prod([shape[a] for a in axes]))
    mant = rng.integers(-900, 901, (2, *shape)).astype(np.float64)
    attrs = {"axes": axes, "centred": True, "epsilon": 1e-5, "scale": np.ones(())}
    graph = network(tensor(*shape).same().then("Normalise", **attrs))
    layer, context = TrainableNetwork(graph, TrainingFormats()).layers[1], PassContext(TrainingFormats())
    flat = one_layer(count, np.ones(()))
    g = rng.integers(-30000, 30001, mant.shape).astype(np.float64)
    found = []
    for one, turned in ((layer, lambda a: a), (flat, lambda a: a.transpose(order).reshape(2, 1, -1, count))):
        (y,), memory = one.forward([Tensor(turned(mant), -5, 900)], context)
        (back,), changes = one.backward([Tensor(turned(g), -18, 30000)], memory, context)
        found.append((y, back, changes["scale"]))
    for mine, other in zip(*found, strict=True):
        turned = mine.mant.transpose(order) if mine.mant.ndim == 5 else mine.mant
        assert mine.exp == other.exp and np.array_equal(turned.reshape(-1), other.mant.reshape(-1))


@pytest.mark.parametrize(("axes", "scale"), [((1,), (3, 1, 1)), ((2, 3), (3, 1, 1)), ((3,), (5,)), ((3,), (4, 1))])
@pytest.mark.parametrize("centred", [True, False])
def test_values_are_those_of_the_graph_and_gradients_those_of_differences(axes, scale, centred):
    rng = np.random.default_rng(7)
    shape = (1, 3, 4, 5)
    attrs = {"axes": axes, "centred": centred, "epsilon": 0.01, "scale": rng.normal(size=scale)}
    normal = tensor(*shape).dense(rng.normal(size=(5, 5))).then("Normalise", **attrs)
    trainable, context = TrainableNetwork(network(normal), WIDE), PassContext(WIDE)
    x, weights = rng.integers(-90, 90, (2, *shape)).astype(float), rng.normal(size=(2, *shape))
    y, memories = trainable.forward(Tensor(x, -6, 90), context)
    trained = trainable.trained()

    def value():
        return execute.run(trained, {"x": x[:, 0] / 64})["y"].reshape(2, *shape)

    assert np.abs(y.values - value()).max() < 3e-4
    g = Tensor(np.rint(weights * 2.0**20), -20, 1 << 24)
    changes = trainable.backward(g, memories, context)
    for key, change in changes.items():
        if key.endswith("bias"):
            continue
        array = next(n for n in trained.nodes if key.startswith(f"{n.name}.")).attrs[key.split(".")[1]]
        for at, want in slopes(array, [*np.ndindex(array.shape)][::3], lambda: float(np.sum(value() * g.values))):
            assert abs(change.values[at] - want) < 2e-3 * max(1, abs(want)), key


def test_equal_elements_have_no_spread():
    layer, context = one_layer(4, np.ones(4)), PassContext(TrainingFormats())
    for value in (0.0, 5.0):
        (y,), memory = layer.forward([Tensor(np.full((2, 1, 3, 4), value), 0, 5)], context)
        assert not y.mant.any()
        (back,), changes = layer.backward([Tensor(np.ones((2, 1, 3, 4)), 0, 1)], memory, context)
        assert not back.mant.any() and not changes["scale"].mant.any()


def test_the_input_of_a_network_has_no_gradient():
    layers = [{"op": "layer_norm", "name": "norm"}, {"op": "dense", "outputs": 4}]
    found, context = TrainableNetwork(described(layers, (3,)), TrainingFormats(), seed=1), PassContext(WIDE)
    assert [layer.first for layer in found.layers] == [True, False, False]
    _, memory = found.layers[0].forward([Tensor(np.arange(6.0).reshape(2, 1, 3), 0, 5)], context)
    (back,), changes = found.layers[0].backward([Tensor(np.ones((2, 1, 3)), 0, 1)], memory, context)
    assert back is None and set(changes) == {"scale"}


# Training ------------------------------------------------------------------------------------------------


def samples(count=60, place=0):
    words, labels = sentences(count, place)
    return Samples(words, labels[:, 2])


def trainer(train=None, test=None, layers=LAYERS, **settings):
    return Trainer(described(layers, (LENGTH,)), train or samples(), Settings(**settings), test, random=True)


def test_scale_and_shift_begin_as_one_and_zero():
    parameters = trainer(epochs=1).network.parameters
    assert parameters["norm.normal.scale"].values.tolist() == [1.0] * 32
    assert parameters["norm.constant"].values.tolist() == [0.0] * 32
    assert parameters["norm.constant"].exp.tolist() == parameters["norm.normal.scale"].exp.tolist()


def dimmed(data, place):
    """Digits, each divided by 1, 2, 4, 8 or 16."""
    by = (raw(3, (8, place, 1), len(data)) % np.uint64(5)).astype(int).reshape(-1, 1, 1, 1)
    return Samples(data.x.astype(int) << 4 >> by, data.y, 1 / 256)


@pytest.mark.slow
def test_dim_digits_are_learned_sooner_than_without():
    train, test = digits()
    train, test = dimmed(train.part(slice(600)), 0), dimmed(test, 1)
    layers = [{"op": "flatten"}, {"op": "dense", "outputs": 32}, {"op": "layer_norm", "name": "norm"}, {"op": "relu"},
              {"op": "dense", "outputs": 10}]  # fmt: skip

    def begun(with_norm):
        some = [layer for layer in layers if with_norm or layer["op"] != "layer_norm"]
        return Trainer(described(some, (1, 8, 8)), train, Settings(epochs=5, rate=Fraction(1, 16)), test, random=True)

    one, plain = begun(True), begun(False)
    accuracy, without = (trainer.fit()[-1].test_accuracy for trainer in (one, plain))
    assert accuracy > 0.9 and accuracy > without + 0.05
    for name, parameter in begun(True).network.parameters.items():
        assert not np.array_equal(one.network.parameters[name].values, parameter.values), name
    graph, inputs = import_model(export_onnx(one.trained())), test.inputs(slice(None))
    (got,), (want,) = (execute.run(g, {g.inputs[0]: inputs}).values() for g in (graph, one.trained()))
    assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
    assert (want.argmax(axis=1) == test.y).mean() == pytest.approx(accuracy, abs=0.01)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("axes", [(2,), (1,)])
def test_files_have_the_normalisation(axes, centred):
    rng = np.random.default_rng(4)
    attrs = {"axes": axes, "centred": centred, "epsilon": 2.0**-10, "scale": rng.integers(1, 9, (3, 1)) / 4}
    graph = network(tensor(1, 3, 4).then("Normalise", **attrs))
    other = import_model(export_onnx(graph))
    (node,) = other.nodes
    assert node.op == "Normalise" and node.attrs["centred"] == centred and node.attrs["axes"] == axes
    x = rng.normal(size=(5, 3, 4))
    assert np.array_equal(*(next(iter(execute.run(g, {g.inputs[0]: x}).values())) for g in (graph, other)))


@pytest.mark.slow
@pytest.mark.parametrize("formats", FORMATS)
def test_a_break_and_shards_change_nothing(formats, tmp_path):
    settings = {"epochs": 2, "batch": 16, "shards": 2, "formats": FORMATS[formats], "decay": Fraction(1, 100)}
    assert_a_break_changes_nothing(lambda: trainer(test=samples(20, 1), **settings), tmp_path / "c.npz")


def test_what_cannot_be_trained_is_refused():
    layers = [{"op": "dense", "outputs": 4}, {"op": "layer_norm", "name": "norm"}]
    plain = Samples(np.ones((4, 3)), np.zeros(4, int))
    with pytest.raises(ValueError, match=r"layers must be none of tables, layer .* \[overflow\]: norm.normal"):
        Trainer(described(layers, (3,)), plain, Settings(overflow=OverflowSettings(accumulator_bits=16)), random=True)
    for epsilon in (0.0, -1.0, 2.0**30):
        with pytest.raises(ValueError, match="norm must have an epsilon above 0, not"):
            one_layer(3, np.ones(3), epsilon)
